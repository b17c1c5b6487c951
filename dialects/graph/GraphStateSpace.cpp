// state_space_scan: what is verified, what it means in primitives, its
// gradient, cost and sharding rule.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphScanOps.h"
#include "dialects/graph/GraphVerify.h"

#include <limits>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

//===--- verifier -------------------------------------------------------===//

static LogicalResult verifyLimits(StateSpaceScanOp op) {
  auto of = [](std::optional<APFloat> limit, double absent) {
    return limit ? limit->convertToDouble() : absent;
  };
  const double least = of(op.getLeast(), 0),
               most = of(op.getMost(), std::numeric_limits<double>::infinity());
  if (!(least >= 0 && least < most))
    return op.emitOpError("expects limits of steps from 0 on, in order, got ")
           << least << " and " << most;
  return success();
}

static LogicalResult verifyOptional(StateSpaceScanOp op,
                                    ArrayRef<int64_t> state) {
  ArrayRef<int64_t> input = shapeOf(op.getInput());
  if (op.getFirst() && op.getInitial())
    return op.emitOpError("expects either documents or initial states");
  if (op.getFirst() &&
      failed(expectShape(op, "first tokens", tensorType(op.getFirst()),
                         {input[0], input[1]})))
    return failure();
  if (op.getCounts() &&
      failed(expectShape(op, "counts", tensorType(op.getCounts()), {input[0]})))
    return failure();
  return op.getInitial() ? expectShape(op, "initial states",
                                       tensorType(op.getInitial()), state)
                         : success();
}

LogicalResult StateSpaceScanOp::verify() {
  RankedTensorType input = tensorType(getInput()),
                   write = tensorType(getWrite());
  if (failed(expectRank(*this, "an input", input, 4)) ||
      failed(expectRank(*this, "a write", write, 4)))
    return failure();
  ArrayRef<int64_t> shape = input.getShape(), state = write.getShape();
  if (llvm::is_contained(shape, 0) || llvm::is_contained(state, 0))
    return emitOpError("expects dimensions of at least 1");
  if (shape[2] % state[2])
    return emitOpError("expects heads that are a multiple of the groups, got ")
           << shape[2] << " and " << state[2];
  if (failed(expectShape(*this, "a write", write,
                         {shape[0], shape[1], state[2], state[3]})) ||
      failed(expectShape(*this, "steps", tensorType(getStep()),
                         {shape[0], shape[1], shape[2]})))
    return failure();
  for (auto [what, value] : {std::pair<StringRef, Value>("a rate", getRate()),
                             {"a skip", getSkip()},
                             {"a bias", getBias()}})
    if (failed(expectShape(*this, what, tensorType(value), {shape[2]})))
      return failure();
  const SmallVector<int64_t> states{shape[0], shape[2], shape[3], state[3]};
  if (failed(expectShape(*this, "last states", tensorType(getLast()), states)))
    return failure();
  if (getChunk() < 1 || getChunk() > 256)
    return emitOpError("expects chunks of 1 to 256 tokens, got ") << getChunk();
  return failed(verifyLimits(*this)) ? failure()
                                     : verifyOptional(*this, states);
}

//===--- meaning --------------------------------------------------------===//

namespace {

/// The scan of one op, in primitives. Dimensions: b batch, c chunk, l and s
/// tokens of a chunk, h head, g group, r head of a group, p head_dim, n state.
class Scan {
public:
  Scan(Emitter &e, StateSpaceScanOp op)
      : e(e), op(op), type(statisticsType(op.getInput())) {
    ArrayRef<int64_t> input = shapeOf(op.getInput()),
                      write = shapeOf(op.getWrite());
    batch = input[0], tokens = input[1], heads = input[2], width = input[3];
    groups = write[2], state = write[3], shared = heads / groups;
    size = std::min<int64_t>(op.getChunk(), tokens);
    count = llvm::divideCeil(tokens, size);
  }

  /// The result and the last states.
  std::pair<Value, Value> emit() {
    input = e.convert(op.getInput(), type);
    if (op.getInitial())
      initial = e.convert(op.getInitial(), type);
    auto [y, last] = tokens == 1 ? single() : chunked();
    ArrayRef<int64_t> shape = shapeOf(input);
    Value skip = e.broadcast(e.convert(op.getSkip(), type), {2}, shape);
    return {e.add(y, e.mul(input, skip)), last};
  }

private:
  /// d [batch, tokens, heads].
  Value steps() {
    Value z = e.convert(op.getStep(), type);
    ArrayRef<int64_t> shape = shapeOf(z);
    z = e.add(z, e.broadcastLast(e.convert(op.getBias(), type), shape));
    // From here on log(1 + exp(x)) is x in f32, and in f64 to 2^-29.
    constexpr double kLinear = 20;
    Value low = e.min(z, e.splatLike(kLinear, z));
    Value d = e.add(e.unary<Log1pOp>(e.exp(low)), e.sub(z, low));
    if (auto least = op.getLeast(); least && least->convertToDouble() > 0)
      d = e.max(d, e.splatLike(least->convertToDouble(), d));
    if (auto most = op.getMost())
      d = e.min(d, e.splatLike(most->convertToDouble(), d));
    if (!op.getCounts())
      return d;
    Value at =
        e.iota(RankedTensorType::get(shape, e.builder().getI32Type()), 1);
    return e.select(e.compare(at, ComparePredicate::lt,
                              e.broadcast(op.getCounts(), {0}, shape)),
                    d, e.zeros(tensorType(d)));
  }

  Value rates(ArrayRef<int64_t> shape) {
    return e.broadcastLast(e.convert(op.getRate(), type), shape);
  }

  /// One token: the state itself is updated.
  std::pair<Value, Value> single() {
    const SmallVector<int64_t> states{batch, groups, shared, width, state};
    Value d = steps(), decay = e.exp(e.mul(d, rates(shapeOf(d))));
    Value moved = e.mul(input, e.broadcast(d, {0, 1, 2}, shapeOf(input)));
    Value write =
        e.reshape(e.convert(op.getWrite(), type), {batch, groups, state});
    Value next =
        e.mul(e.broadcast(e.reshape(moved, {batch, groups, shared, width}),
                          {0, 1, 2, 3}, states),
              e.broadcast(write, {0, 1, 4}, states));
    if (initial)
      next = e.add(e.mul(e.reshape(initial, states),
                         e.broadcast(e.reshape(decay, {batch, groups, shared}),
                                     {0, 1, 2}, states)),
                   next);
    Value read =
        e.reshape(e.convert(op.getRead(), type), {batch, groups, state});
    Value y = e.einsum("bgrpn,bgn->bgrp", next, read);
    return {e.reshape(y, shapeOf(input)),
            e.reshape(next, {batch, heads, width, state})};
  }

  std::pair<Value, Value> chunked() {
    Value d = steps();
    write = inChunks(e.convert(op.getWrite(), type), {groups, state});
    read = inChunks(e.convert(op.getRead(), type), {groups, state});
    Value moved = e.mul(input, e.broadcast(d, {0, 1, 2}, shapeOf(input)));
    moved = inChunks(moved, {groups, shared, width});
    findDocuments();
    divideExponents(e.mul(d, rates(shapeOf(d))));
    Value y = within(moved), entering = passed(ends(moved));
    if (count > 1 || initial)
      y = e.add(y, carried(entering));
    y = e.reshape(y, {batch, count * size, heads, width});
    if (count * size > tokens)
      y = e.slice(y, {0, 0, 0, 0}, shapeOf(input));
    Value last =
        e.slice(entering, {0, count, 0, 0, 0}, {batch, 1, heads, width, state});
    return {y, e.reshape(last, {batch, heads, width, state})};
  }

  /// [batch, tokens, …] with zeros at the end → [b, c, l, shape…].
  Value inChunks(Value x, ArrayRef<int64_t> rest) {
    SmallVector<int64_t> shape(shapeOf(x)), low(shape.size());
    shape[1] = count * size;
    if (shape[1] > tokens)
      x = e.pad(x, low, shape);
    SmallVector<int64_t> divided{batch, count, size};
    llvm::append_range(divided, rest);
    return e.reshape(x, divided);
  }

  Type i32() { return e.builder().getI32Type(); }
  Value iota(ArrayRef<int64_t> shape, int64_t dim) {
    return e.iota(RankedTensorType::get(shape, i32()), dim);
  }

  /// The first tokens of documents, and indices of tokens, [b, c, l]. Padding
  /// is of the last document.
  void findDocuments() {
    first = op.getFirst();
    if (!first)
      return;
    const int64_t missing = count * size - tokens;
    if (missing > 0) {
      Value end =
          e.reshape(e.slice(first, {0, tokens - 1}, {batch, 1}), {batch});
      first = e.concat({first, e.broadcast(end, {0}, {batch, missing})}, 1);
    }
    first = e.reshape(first, {batch, count, size});
    index = e.reshape(iota({batch, count * size}, 1), {batch, count, size});
  }

  /// Exponents of decay, [batch, tokens, heads].
  void divideExponents(Value x) {
    exponents = e.transpose(inChunks(x, {heads}), {0, 1, 3, 2});
  }

  /// Of each token the sum of the exponents up to it, or after it: [b, c, h,
  /// l].
  Value sums(bool isAfter) {
    const SmallVector<int64_t> wide{batch, count, heads, size, size};
    Value counts =
        e.compare(iota({size, size}, 1),
                  isAfter ? ComparePredicate::gt : ComparePredicate::le,
                  iota({size, size}, 0));
    Value terms = e.broadcast(exponents, {0, 1, 2, 4}, wide);
    return e.sumLast(e.select(e.broadcast(counts, {3, 4}, wide), terms,
                              e.zeros(tensorType(terms))));
  }

  /// exp(x), 0 where the condition, if there is one, does not hold.
  Value decay(Value x, Value condition) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return e.exp(condition ? e.select(condition, x, e.splatLike(-kInfinity, x))
                           : x);
  }

  /// [b, c, l, h] → [b, c, l, g, r, p].
  Value ofHeads(Value x) {
    const SmallVector<int64_t> wide{batch, count, size, groups, shared, width};
    x = e.reshape(x, {batch, count, size, groups, shared});
    return e.broadcast(x, {0, 1, 2, 3, 4}, wide);
  }

  /// What tokens read of earlier ones of their chunk, and of themselves.
  Value within(Value moved) {
    const SmallVector<int64_t> wide{batch, count, heads, size, size},
        divided{batch, count, groups, shared, size, size};
    Value seen = e.compare(iota({size, size}, 1), ComparePredicate::le,
                           iota({size, size}, 0));
    seen = e.broadcast(seen, {3, 4}, wide);
    if (first) {
      const SmallVector<int64_t> pairs{batch, count, size, size};
      Value same =
          e.compare(e.broadcast(index, {0, 1, 3}, pairs), ComparePredicate::ge,
                    e.broadcast(first, {0, 1, 2}, pairs));
      seen = e.binary<AndOp>(seen, e.broadcast(same, {0, 1, 3, 4}, wide));
    }
    Value ranges = e.builder().create<SegmentSumOp>(
        e.location(), RankedTensorType::get(wide, type), exponents);
    Value decays = decay(ranges, seen);
    Value products = e.einsum("bclgn,bcsgn->bcgls", read, write);
    Value weights = e.mul(e.broadcast(products, {0, 1, 2, 4, 5}, divided),
                          e.reshape(decays, divided));
    return e.einsum("bcgrls,bcsgrp->bclgrp", weights, moved);
  }

  /// What each chunk adds to the state at its end: [b, c, h, p, n].
  Value ends(Value moved) {
    const SmallVector<int64_t> shape{batch, count, heads, size};
    Value same;
    if (first) {
      Value ofLast = e.reshape(
          e.slice(first, {0, 0, size - 1}, {batch, count, 1}), {batch, count});
      same = e.compare(index, ComparePredicate::ge,
                       e.broadcast(ofLast, {0, 1}, shapeOf(index)));
      same = e.broadcast(same, {0, 1, 3}, shape);
    }
    Value decays = decay(sums(/*isAfter=*/true), same);
    Value left = e.mul(moved, ofHeads(e.transpose(decays, {0, 1, 3, 2})));
    return e.reshape(e.einsum("bcsgrp,bcsgn->bcgrpn", left, write),
                     {batch, count, heads, width, state});
  }

  /// The states that each chunk begins with, and the last ones, of what chunks
  /// add: [b, count + 1, h, p, n]. Source 0 is the initial state; source z + 1
  /// is the end of chunk z.
  Value passed(Value added) {
    const int64_t skipped = initial ? 0 : 1, sources = count + 1 - skipped;
    if (initial)
      added = e.concat(
          {e.reshape(initial, {batch, 1, heads, width, state}), added}, 1);
    const SmallVector<int64_t> triples{count + 1, sources, count},
        pairs{count + 1, sources},
        wide{batch, heads, count + 1, sources, count},
        shape{batch, heads, count + 1, sources};
    auto sourceOf = [&](ArrayRef<int64_t> shape) {
      Value source = iota(shape, 1);
      return skipped ? e.add(source, e.splatLike(skipped, source)) : source;
    };
    // Chunks between source and target decay what passes.
    Value chunk = iota(triples, 2);
    Value passes = e.binary<AndOp>(
        e.compare(chunk, ComparePredicate::ge, sourceOf(triples)),
        e.compare(chunk, ComparePredicate::lt, iota(triples, 0)));
    Value totals = e.transpose(e.sumLast(exponents), {0, 2, 1});
    Value terms = e.broadcast(totals, {0, 1, 4}, wide);
    Value between = e.sumLast(e.select(e.broadcast(passes, {2, 3, 4}, wide),
                                       terms, e.zeros(tensorType(terms))));
    Value from = sourceOf(pairs);
    Value seen = e.broadcast(
        e.compare(from, ComparePredicate::le, iota(pairs, 0)), {2, 3}, shape);
    if (first)
      seen = e.binary<AndOp>(
          seen, e.broadcast(isOfDocument(pairs), {0, 2, 3}, shape));
    return e.einsum("bhcz,bzhpn->bchpn", decay(between, seen), added);
  }

  /// Whether the end of source chunk z is of the document in which the chunk
  /// before target c ends: [b, c, z].
  Value isOfDocument(ArrayRef<int64_t> pairs) {
    const SmallVector<int64_t> shape{batch, pairs[0], pairs[1]};
    auto lastOf = [&](Value x) {
      return e.reshape(e.slice(x, {0, 0, size - 1}, {batch, count, 1}),
                       {batch, count});
    };
    Value begins = e.pad(lastOf(first), {0, 1}, {batch, pairs[0]});
    return e.compare(e.broadcast(lastOf(index), {0, 2}, shape),
                     ComparePredicate::ge, e.broadcast(begins, {0, 1}, shape));
  }

  /// What tokens read of the states that their chunks begin with.
  Value carried(Value entering) {
    Value states =
        e.slice(entering, {0, 0, 0, 0, 0}, {batch, count, heads, width, state});
    states = e.reshape(states, {batch, count, groups, shared, width, state});
    Value y = e.einsum("bclgn,bcgrpn->bclgrp", read, states);
    Value same;
    if (first) {
      Value begin = e.reshape(e.slice(index, {0, 0, 0}, {batch, count, 1}),
                              {batch, count});
      same = e.compare(first, ComparePredicate::lt,
                       e.broadcast(begin, {0, 1}, shapeOf(first)));
      same = e.broadcast(same, {0, 1, 3}, {batch, count, heads, size});
    }
    Value decays = decay(sums(/*isAfter=*/false), same);
    return e.mul(y, ofHeads(e.transpose(decays, {0, 1, 3, 2})));
  }

  Emitter &e;
  StateSpaceScanOp op;
  Type type; ///< of all floats here
  int64_t batch, tokens, heads, width, groups, state;
  int64_t shared;       ///< heads of a group
  int64_t size, count;  ///< tokens of a chunk, and chunks
  Value input, initial; ///< the latter may be null
  Value write, read;    ///< [b, c, l, g, n]
  Value first, index;   ///< [b, c, l]; null without documents
  Value exponents;      ///< of decay, [b, c, h, l]
};

} // namespace

SmallVector<Value> StateSpaceScanOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  auto [y, last] = Scan(e, *this).emit();
  return {convertLike(e, y, getInput()), convertLike(e, last, getLast())};
}

SmallVector<Value> StateSpaceScanOp::buildVjp(OpBuilder &builder,
                                              ValueRange cotangents) {
  return vjpOfDecomposition(*this, builder, cotangents);
}

// The products of the recurrence: with a state and by it.
int64_t StateSpaceScanOp::getFlops() {
  return 4 * tensorType(getInput()).getNumElements() *
         tensorType(getWrite()).getDimSize(3);
}

// input [batch, tokens, heads, head_dim]. Heads are groups × the rest; with one
// group every device has its writes and reads, and heads are sharded instead.
OpRule StateSpaceScanOp::getShardingRule() {
  OpRule rule;
  ArrayRef<int64_t> input = shapeOf(getInput()), shape = shapeOf(getWrite());
  const LoopKind whole = LoopKind::whole, parallel = LoopKind::parallel;
  unsigned batch = rule.loopDim(input[0]),
           tokens = rule.loopDim(input[1], whole),
           groups = rule.loopDim(shape[2]),
           shared = rule.loopDim(input[2] / shape[2],
                                 shape[2] == 1 ? parallel : whole),
           width = rule.loopDim(input[3]),
           state = rule.loopDim(shape[3], whole);
  const OpRule::Dim heads{groups, shared};
  const OpRule::Dims values{{batch}, {tokens}, heads, {width}},
      vectors{{batch}, {tokens}, {groups}, {state}}, ofHeads{heads},
      states{{batch}, heads, {width}, {state}};
  rule.operands = {
      values, {{batch}, {tokens}, heads}, ofHeads, vectors, vectors, ofHeads,
      ofHeads};
  if (getFirst())
    rule.operands.push_back({{batch}, {tokens}});
  if (getCounts())
    rule.operands.push_back({{batch}});
  if (getInitial())
    rule.operands.push_back(states);
  rule.results = {values, states};
  return rule;
}
