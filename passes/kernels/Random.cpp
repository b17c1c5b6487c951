// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
// 3"), in arith ops on scalars or vectors.
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/TileEmitter.h"
#include <numbers>

using namespace mlir;
using namespace tessera;

namespace {

// Emits Philox on values of one shape.
struct Words {
  OpBuilder &b;
  Location loc;
  Type like;

  Type type(Type element) const {
    if (auto vector = dyn_cast<VectorType>(like))
      return vector.clone(element);
    return element;
  }
  Type i32() const { return type(b.getI32Type()); }
  Type i64() const { return type(b.getI64Type()); }
  Type f32() const { return type(b.getF32Type()); }

  Value constant(Type type, Attribute value) const {
    auto shaped = dyn_cast<ShapedType>(type);
    return b.create<arith::ConstantOp>(
        loc, shaped ? TypedAttr(DenseElementsAttr::get(shaped, value))
                    : cast<TypedAttr>(value));
  }
  Value word(uint32_t value) const {
    return constant(i32(), b.getI32IntegerAttr(static_cast<int32_t>(value)));
  }
  Value wide(int64_t value) const {
    return constant(i64(), b.getI64IntegerAttr(value));
  }
  Value real(double value) const {
    return constant(f32(), b.getF32FloatAttr(static_cast<float>(value)));
  }
  template <typename Op> Value make(Value x, Value y) const {
    return b.create<Op>(loc, x, y).getResult();
  }
  /// Scalars are repeated over the shape.
  Value spread(Value scalar) const {
    auto vector = dyn_cast<VectorType>(like);
    if (!vector || isa<VectorType>(scalar.getType()))
      return scalar;
    return b.create<tile::BroadcastOp>(loc, vector.clone(scalar.getType()),
                                       scalar, ArrayRef<int64_t>());
  }
  Value low(Value x) const { return b.create<arith::TruncIOp>(loc, i32(), x); }
  /// x × factor, all 64 bits.
  Value product(Value x, uint32_t factor) const {
    return make<arith::MulIOp>(b.create<arith::ExtUIOp>(loc, i64(), x),
                               wide(factor));
  }
  Value high(Value x) const { return low(make<arith::ShRUIOp>(x, wide(32))); }
};

} // namespace

// A scalar seed, step or offset as 64 bits.
static Value sixtyFour(OpBuilder &b, Location loc, Value x) {
  return x.getType().isInteger(64)
             ? x
             : b.create<arith::ExtSIOp>(loc, b.getI64Type(), x).getResult();
}

// The four output words for a counter and a key.
static std::array<Value, 4> philox(const Words &w, std::array<Value, 4> counter,
                                   std::array<Value, 2> key) {
  auto [c0, c1, c2, c3] = counter;
  auto [k0, k1] = key;
  for (int round = 0; round < 10; ++round) {
    Value p0 = w.product(c0, 0xD2511F53), p1 = w.product(c2, 0xCD9E8D57);
    Value n0 = w.make<arith::XOrIOp>(w.make<arith::XOrIOp>(w.high(p1), c1), k0);
    Value n2 = w.make<arith::XOrIOp>(w.make<arith::XOrIOp>(w.high(p0), c3), k1);
    c0 = n0, c1 = w.low(p1), c2 = n2, c3 = w.low(p0);
    k0 = w.make<arith::AddIOp>(k0, w.word(0x9E3779B9));
    k1 = w.make<arith::AddIOp>(k1, w.word(0xBB67AE85));
  }
  return {c0, c1, c2, c3};
}

// (word >> 8) + add, times 2^-24.
static Value unit(const Words &w, Value word, uint32_t add) {
  Value bits = w.make<arith::ShRUIOp>(word, w.word(8));
  if (add)
    bits = w.make<arith::AddIOp>(bits, w.word(add));
  // 24 bits fit a signed word.
  Value value = w.b.create<arith::SIToFPOp>(w.loc, w.f32(), bits);
  return w.make<arith::MulFOp>(value, w.real(0x1p-24));
}

// Box–Muller: the element of even index and that of odd index of one pair.
static std::pair<Value, Value> normalPair(const Words &w, Value u, Value v) {
  Value log = w.b.create<math::LogOp>(w.loc, unit(w, u, 1));
  Value radius =
      w.b.create<math::SqrtOp>(w.loc, w.make<arith::MulFOp>(log, w.real(-2.0)));
  Value angle =
      w.make<arith::MulFOp>(unit(w, v, 0), w.real(2 * std::numbers::pi));
  Value sine = w.b.create<math::SinOp>(w.loc, angle);
  Value cosine = w.b.create<math::CosOp>(w.loc, angle);
  return {w.make<arith::MulFOp>(radius, cosine),
          w.make<arith::MulFOp>(radius, sine)};
}

// The elements of a group from its words.
static std::array<Value, 4> numbersOf(const Words &w, graph::RandomKind kind,
                                      const std::array<Value, 4> &words) {
  if (kind == graph::RandomKind::uniform)
    return {unit(w, words[0], 0), unit(w, words[1], 0), unit(w, words[2], 0),
            unit(w, words[3], 0)};
  auto [a, b] = normalPair(w, words[0], words[1]);
  auto [c, d] = normalPair(w, words[2], words[3]);
  return {a, b, c, d};
}

// One of four values by `place`.
static Value pick(const Words &w, ArrayRef<Value> values, Value place) {
  Value result = values[0];
  for (uint32_t i = 1; i < values.size(); ++i) {
    Value here = w.b.create<arith::CmpIOp>(w.loc, arith::CmpIPredicate::eq,
                                           place, w.word(i));
    result = w.b.create<arith::SelectOp>(w.loc, here, values[i], result);
  }
  return result;
}

int64_t tessera::entryElements(graph::RandomOp op) {
  RankedTensorType type = graph::tensorType(op.getResult());
  return type.getRank() ? type.getNumElements() / type.getDimSize(0) : 1;
}

// The output words of the groups of four at `group` (i64).
static std::array<Value, 4> wordsOf(const Words &w, graph::RandomOp op,
                                    Value group, const RandomOperands &from) {
  OpBuilder &b = w.b;
  Words scalar{b, w.loc, b.getI64Type()};
  Value seed = sixtyFour(b, w.loc, from.seed);
  Value step = sixtyFour(b, w.loc, from.step);
  Value k0 = scalar.make<arith::XOrIOp>(
      scalar.low(seed),
      scalar.make<arith::MulIOp>(scalar.high(seed), scalar.word(0x9E3779B9)));
  Value k1 = scalar.word(static_cast<uint32_t>(op.getStream()));
  return philox(w,
                {w.low(group), w.high(group), w.spread(scalar.low(step)),
                 w.spread(scalar.high(step))},
                {w.spread(k0), w.spread(k1)});
}

// `place` moved by the offset, where an entry has `entry` of them.
static Value shift(const Words &w, Value place, Value offset, int64_t entry) {
  if (!offset)
    return place;
  Words scalar{w.b, w.loc, w.b.getI64Type()};
  return w.make<arith::AddIOp>(
      place, w.spread(scalar.make<arith::MulIOp>(sixtyFour(w.b, w.loc, offset),
                                                 scalar.wide(entry))));
}

Value tessera::emitRandom(OpBuilder &b, graph::RandomOp op, Value index,
                          const RandomOperands &operands) {
  Words w{b, op.getLoc(), index.getType()};
  index = shift(w, index, operands.offset, entryElements(op));
  std::array<Value, 4> words =
      wordsOf(w, op, w.make<arith::ShRUIOp>(index, w.wide(2)), operands);
  Value place = w.make<arith::AndIOp>(w.low(index), w.word(3));
  if (op.getKind() == graph::RandomKind::uniform)
    return unit(w, pick(w, words, place), 0);
  Value pair = w.make<arith::AndIOp>(place, w.word(2));
  Value second = w.b.create<arith::CmpIOp>(w.loc, arith::CmpIPredicate::ne,
                                           pair, w.word(0));
  auto select = [&](Value x, Value y) -> Value {
    return b.create<arith::SelectOp>(w.loc, second, x, y);
  };
  auto [even, odd] =
      normalPair(w, select(words[2], words[0]), select(words[3], words[1]));
  return pick(w, {even, odd}, w.make<arith::AndIOp>(place, w.word(1)));
}

Value tessera::emitRandomGroups(OpBuilder &b, graph::RandomOp op, Value group,
                                const RandomOperands &operands) {
  Words w{b, op.getLoc(), group.getType()};
  group = shift(w, group, operands.offset, entryElements(op) / 4);
  std::array<Value, 4> x =
      numbersOf(w, op.getKind(), wordsOf(w, op, group, operands));
  auto interleave = [&](Value even, Value odd) -> Value {
    return b.create<vector::InterleaveOp>(w.loc, even, odd);
  };
  return interleave(interleave(x[0], x[2]), interleave(x[1], x[3]));
}
