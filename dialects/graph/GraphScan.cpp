// discounted_sum: what is verified, what it means in primitives, and its
// sharding rule.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphScanOps.h"
#include "dialects/graph/GraphVerify.h"

#include <cmath>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

#define GET_OP_CLASSES
#include "dialects/graph/GraphScanOps.cpp.inc"

LogicalResult DiscountedSumOp::verify() {
  RankedTensorType input = tensorType(getInput());
  if (input.getRank() == 0)
    return emitOpError("expects an input of rank 1 or more");
  const double discount = getDiscount().convertToDouble();
  if (!(discount >= 0 && discount <= 1))
    return emitOpError("expects a discount of 0 to 1, got ") << discount;
  return expectShape(*this, "segments", tensorType(getSegments()),
                     input.getShape());
}

namespace {

/// Rows in chunks: [rows, chunks, size].
struct Chunks {
  Value x, segments;
  int64_t rows, count, size;
};

} // namespace

// A sum within chunks takes n × size multiplications, one over chunks n ×
// chunks: together the fewest at the root of n. A short row is one chunk.
static int64_t chunkOf(int64_t n) {
  if (n <= 64)
    return std::max<int64_t>(n, 1);
  int64_t size = 32;
  while (size * size < n)
    size *= 2;
  return size;
}

// The last chunk is filled with zeros, whose segment then does not matter.
static Chunks chunksOf(Emitter &e, Value x, Value segments) {
  const int64_t n = shapeOf(x).back(),
                rows = tensorType(x).getNumElements() / std::max<int64_t>(n, 1),
                size = chunkOf(n),
                count = std::max<int64_t>(llvm::divideCeil(n, size), 1);
  auto divided = [&](Value value) {
    value = e.reshape(value, {rows, n});
    if (count * size > n)
      value = e.pad(value, {0, 0}, {rows, count * size});
    return e.reshape(value, {rows, count, size});
  };
  return {divided(x), divided(segments), rows, count, size};
}

// `exponent` gives the power of the discount at (i, j), negative ones mean 0.
static Value powers(Emitter &e, RankedTensorType type, double discount,
                    llvm::function_ref<int64_t(int64_t, int64_t)> exponent) {
  auto element = cast<FloatType>(type.getElementType());
  const int64_t columns = type.getShape().back();
  SmallVector<APFloat> values;
  for (int64_t at = 0; at < type.getNumElements(); ++at) {
    const int64_t power = exponent(at / columns, at % columns);
    bool inexact;
    values.emplace_back(power < 0 ? 0.0 : std::pow(discount, double(power)));
    values.back().convert(element.getFloatSemantics(),
                          APFloat::rmNearestTiesToEven, &inexact);
  }
  return e.builder().create<ConstantOp>(
      e.location(), cast<ElementsAttr>(DenseElementsAttr::get(type, values)));
}

static Value where(Emitter &e, Value segments, Value other, Value x) {
  return e.select(e.compare(segments, ComparePredicate::eq, other), x,
                  e.zeros(tensorType(x)));
}

// Of what follows in the chunk: [rows, chunks, size].
static Value sumsWithin(Emitter &e, const Chunks &c, double discount) {
  const SmallVector<int64_t> wide{c.rows, c.count, c.size, c.size};
  Value weights = powers(
      e,
      RankedTensorType::get({c.size, c.size}, tensorType(c.x).getElementType()),
      discount, [](int64_t i, int64_t j) { return j - i; });
  Value x = e.mul(e.broadcast(c.x, {0, 1, 3}, wide),
                  e.broadcast(weights, {2, 3}, wide));
  return e.sumLast(where(e, e.broadcast(c.segments, {0, 1, 2}, wide),
                         e.broadcast(c.segments, {0, 1, 3}, wide), x));
}

// The result at the first element of each chunk: [rows, chunks], in the sum
// over later chunks and their elements.
static Value sumsFromFirst(Emitter &e, const Chunks &c, Value firsts,
                           double discount) {
  Type element = tensorType(c.x).getElementType();
  const SmallVector<int64_t> wide{c.rows, c.count, c.count, c.size};
  Value inChunk = powers(e, RankedTensorType::get({1, c.size}, element),
                         discount, [](int64_t, int64_t j) { return j; });
  Value ofChunk =
      powers(e, RankedTensorType::get({c.count, c.count}, element), discount,
             [&](int64_t from, int64_t to) { return (to - from) * c.size; });
  Value x =
      e.mul(c.x, e.broadcast(e.reshape(inChunk, {c.size}), {2}, shapeOf(c.x)));
  x = where(e, e.broadcast(firsts, {0, 1}, wide),
            e.broadcast(c.segments, {0, 2, 3}, wide),
            e.broadcast(x, {0, 2, 3}, wide));
  Value ofEach = e.sumLast(x); // [rows, chunks, chunks]
  return e.sumLast(
      e.mul(ofEach, e.broadcast(ofChunk, {1, 2}, shapeOf(ofEach))));
}

// Of each chunk what the next has, zero of the last: [rows, chunks].
static Value ofNext(Emitter &e, Value x) {
  const int64_t rows = shapeOf(x)[0], count = shapeOf(x)[1];
  return e.pad(e.slice(x, {0, 1}, {rows, count - 1}), {0, 0}, {rows, count});
}

SmallVector<Value> DiscountedSumOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  const double discount = getDiscount().convertToDouble();
  Value x = e.convert(getInput(), statisticsType(getInput()));
  const Chunks c = chunksOf(e, x, getSegments());
  Value sums = sumsWithin(e, c, discount);
  if (c.count > 1) {
    Value firsts =
        e.reshape(e.slice(c.segments, {0, 0, 0}, {c.rows, c.count, 1}),
                  {c.rows, c.count});
    Value later = ofNext(e, sumsFromFirst(e, c, firsts, discount));
    ArrayRef<int64_t> shape = shapeOf(c.x);
    Value decay = powers(
        e, RankedTensorType::get({1, c.size}, tensorType(x).getElementType()),
        discount, [&](int64_t, int64_t i) { return c.size - i; });
    Value carried = e.mul(e.broadcast(later, {0, 1}, shape),
                          e.broadcast(e.reshape(decay, {c.size}), {2}, shape));
    sums = e.add(sums,
                 where(e, c.segments,
                       e.broadcast(ofNext(e, firsts), {0, 1}, shape), carried));
  }
  const int64_t n = shapeOf(x).back();
  sums = e.reshape(sums, {c.rows, c.count * c.size});
  if (c.count * c.size > n)
    sums = e.slice(sums, {0, 0}, {c.rows, n});
  return {convertLike(e, e.reshape(sums, shapeOf(x)), getInput())};
}

// input and segments [..., n]: a scan reads whole rows.
OpRule DiscountedSumOp::getShardingRule() {
  OpRule rule = pointwiseRule(*this, {{0}});
  rule.isPointwise = false;
  rule.loops.back().kind = LoopKind::whole;
  return rule;
}
