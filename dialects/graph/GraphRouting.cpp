// Routing: choices, ranks and slots. What is verified, and what it means in
// primitives.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphVerify.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

//===--- verifiers ------------------------------------------------------===//

// Both have the same dimensions before the last, which both have.
static LogicalResult expectSameRows(Operation *op, StringRef firstName,
                                    RankedTensorType first,
                                    StringRef secondName,
                                    RankedTensorType second) {
  for (auto [name, type] : {std::pair(firstName, first), {secondName, second}})
    if (type.getRank() == 0)
      return op->emitOpError() << "expects " << name << " of rank 1 or more";
  if (first.getShape().drop_back() == second.getShape().drop_back())
    return success();
  return op->emitOpError() << "expects " << firstName << " and " << secondName
                           << " of the same rows, got " << first << " and "
                           << second;
}

LogicalResult TopKOp::verify() {
  RankedTensorType scores = tensorType(getScores()),
                   indices = tensorType(getIndices());
  if (failed(expectSameRows(*this, "scores", scores, "indices", indices)))
    return failure();
  int64_t k = indices.getShape().back(), n = scores.getShape().back();
  if (k < 1 || k > n)
    return emitOpError() << "expects 1 to " << n << " indices a row, got " << k;
  return success();
}

LogicalResult TakeAlongAxisOp::verify() {
  return expectSameRows(*this, "input", tensorType(getInput()), "indices",
                        tensorType(getIndices()));
}

LogicalResult RankInGroupOp::verify() {
  RankedTensorType ids = tensorType(getIds());
  if (failed(expectRank(*this, "ids", ids, 2)))
    return failure();
  if (static_cast<int64_t>(getGroups()) < 1)
    return emitOpError("expects at least one group");
  if (getScores())
    return expectShape(*this, "scores", tensorType(getScores()),
                       ids.getShape());
  return success();
}

LogicalResult GroupRowsOp::verify() {
  RankedTensorType offsets = tensorType(getOffsets());
  if (failed(expectRank(*this, "offsets", offsets, 1)))
    return failure();
  if (offsets.getDimSize(0) < 2)
    return emitOpError("expects at least one group");
  return expectShape(*this, "slots", tensorType(getSlots()), shapeOf(getIds()));
}

//===--- order ----------------------------------------------------------===//

namespace {

// Rows [rows, n] against themselves, [rows, n, n]: the element at (r, i, j) of
// `each` is x[r, i], of `other` x[r, j].
struct Pairs {
  Value each, other;
};

} // namespace

static Pairs pairsOf(Emitter &e, Value x) {
  SmallVector<int64_t> shape(shapeOf(x));
  shape.push_back(shape.back());
  auto dims = llvm::to_vector(llvm::seq<int64_t>(0, shape.size() - 1));
  Value each = e.broadcast(x, dims, shape);
  ++dims.back();
  return {each, e.broadcast(x, dims, shape)};
}

static RankedTensorType i32Like(Value x, ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, IntegerType::get(x.getContext(), 32));
}

// How many of the last dimension hold: i32 without that dimension.
static Value countLast(Emitter &e, Value condition) {
  return e.sumLast(e.convert(condition, e.builder().getI32Type()));
}

// j < i of pairs.
static Value standsBefore(Emitter &e, Value like) {
  RankedTensorType type = i32Like(like, shapeOf(like));
  return e.compare(e.iota(type, type.getRank() - 1), ComparePredicate::lt,
                   e.iota(type, type.getRank() - 2));
}

// Whether `other` comes before `each`: it is greater, or equal and before.
static Value comesBefore(Emitter &e, Pairs scores) {
  Value greater = e.compare(scores.other, ComparePredicate::gt, scores.each);
  Value equal = e.compare(scores.other, ComparePredicate::eq, scores.each);
  return e.binary<OrOp>(greater,
                        e.binary<AndOp>(equal, standsBefore(e, scores.each)));
}

// [..., n] as [rows, n].
static Value asRows(Emitter &e, Value x) {
  int64_t n = shapeOf(x).back();
  return e.reshape(
      x, {tensorType(x).getNumElements() / std::max<int64_t>(n, 1), n});
}

SmallVector<Value> TopKOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Value scores = asRows(e, getScores());
  int64_t rows = shapeOf(scores)[0], n = shapeOf(scores)[1],
          k = shapeOf(getIndices()).back();
  Value rank = countLast(e, comesBefore(e, pairsOf(e, scores)));
  // [rows, k, n]: element n has rank k.
  RankedTensorType type = i32Like(scores, {rows, k, n});
  Value has = e.compare(e.broadcast(rank, {0, 2}, type.getShape()),
                        ComparePredicate::eq, e.iota(type, 1));
  Value index = e.select(has, e.iota(type, 2), e.splat(-1, type));
  return {e.reshape(e.maxLast(index), shapeOf(getIndices()))};
}

Value tessera::graph::detail::takeAlongRows(Emitter &e, Value x,
                                            Value indices) {
  SmallVector<int64_t> shape(shapeOf(indices));
  shape.push_back(shapeOf(x)[1]);
  Value all = e.broadcast(x, {0, 2}, shape);
  Value picked =
      e.compare(e.iota(i32Like(indices, shape), 2), ComparePredicate::eq,
                e.broadcastFirst(indices, shape));
  return e.sumLast(e.select(picked, all, e.splatLike(0.0, all)));
}

Value tessera::graph::detail::addAlongRows(Emitter &e, Value x, Value indices,
                                           int64_t n) {
  SmallVector<int64_t> shape{shapeOf(x)[0], n, shapeOf(x)[1]};
  Value named =
      e.compare(e.iota(i32Like(indices, shape), 1), ComparePredicate::eq,
                e.broadcast(indices, {0, 2}, shape));
  Value spread = e.broadcast(x, {0, 2}, shape);
  return e.sumLast(e.select(named, spread, e.splatLike(0.0, spread)));
}

SmallVector<Value> TakeAlongAxisOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Value taken =
      takeAlongRows(e, asRows(e, getInput()), asRows(e, getIndices()));
  return {e.reshape(taken, shapeOf(getResult()))};
}

SmallVector<Value> TakeAlongAxisOp::buildVjp(OpBuilder &builder,
                                             ValueRange cotangents) {
  if (!cotangents[0])
    return SmallVector<Value>(2);
  Emitter e(builder, getLoc());
  Value sum = addAlongRows(e, asRows(e, cotangents[0]), asRows(e, getIndices()),
                           shapeOf(getInput()).back());
  return {e.reshape(sum, shapeOf(getInput())), Value()};
}

//===--- counting sort --------------------------------------------------===//

namespace {

// Entries in chunks, counted in parallel. Shapes: rows r, groups g, chunks c,
// entries of a chunk i.
struct Counted {
  Value ids;    ///< [r, c, i]; −1 fills the last chunk
  Value within; ///< [r, c, i]: entries of the same group before, in the chunk
  Value counts; ///< [r, g, c]
  Value before; ///< [r, g, c]: entries of the group in earlier chunks
};

} // namespace

// Comparisons are chunk × n within chunks, groups × n to count them and groups
// × (n / chunk)² to add counts up: the first and the last are equal at the cube
// root of groups × n. A short row is one chunk.
static int64_t chunkOf(int64_t n, int64_t groups) {
  if (n <= 256)
    return n;
  int64_t chunk = 64;
  while (chunk < 1024 && chunk * chunk * chunk < groups * n)
    chunk *= 2;
  return chunk;
}

static Counted countChunks(Emitter &e, Value ids, int64_t groups) {
  int64_t rows = shapeOf(ids)[0], n = shapeOf(ids)[1],
          size = std::max<int64_t>(chunkOf(n, groups), 1),
          chunks = llvm::divideCeil(n, size);
  if (int64_t missing = chunks * size - n)
    ids = e.concat({ids, e.splat(-1, i32Like(ids, {rows, missing}))}, 1);
  Counted counted;
  counted.ids = e.reshape(ids, {rows, chunks, size});
  Pairs pairs = pairsOf(e, counted.ids);
  Value same = e.compare(pairs.each, ComparePredicate::eq, pairs.other);
  counted.within =
      countLast(e, e.binary<AndOp>(same, standsBefore(e, pairs.each)));
  SmallVector<int64_t> shape{rows, groups, chunks, size};
  counted.counts = countLast(
      e, e.compare(e.broadcast(counted.ids, {0, 2, 3}, shape),
                   ComparePredicate::eq, e.iota(i32Like(ids, shape), 1)));
  Pairs sums = pairsOf(e, counted.counts);
  counted.before = e.sumLast(e.select(standsBefore(e, sums.other), sums.other,
                                      e.zeros(tensorType(sums.other))));
  return counted;
}

// values[r, g, c] of each entry's own group and chunk, 0 for those of none:
// [r, c, i].
static Value pickGroup(Emitter &e, const Counted &counted, Value values) {
  SmallVector<int64_t> shape(shapeOf(counted.ids));
  shape.push_back(shapeOf(values)[1]);
  Value own =
      e.compare(e.broadcastFirst(counted.ids, shape), ComparePredicate::eq,
                e.iota(i32Like(counted.ids, shape), 3));
  Value all = e.broadcast(e.transpose(values, {0, 2, 1}), {0, 1, 3}, shape);
  return e.sumLast(e.select(own, all, e.zeros(tensorType(all))));
}

// [r, c, i] → [r, n].
static Value withoutFill(Emitter &e, Value x, int64_t n) {
  ArrayRef<int64_t> shape = shapeOf(x);
  int64_t rows = shape[0];
  Value flat = e.reshape(x, {rows, shape[1] * shape[2]});
  return shapeOf(flat)[1] == n ? flat : e.slice(flat, {0, 0}, {rows, n});
}

SmallVector<Value> RankInGroupOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  if (getScores()) {
    Pairs ids = pairsOf(e, getIds());
    Value same = e.compare(ids.each, ComparePredicate::eq, ids.other);
    return {countLast(
        e, e.binary<AndOp>(same, comesBefore(e, pairsOf(e, getScores()))))};
  }
  Counted counted = countChunks(e, getIds(), getGroups());
  Value rank = e.add(counted.within, pickGroup(e, counted, counted.before));
  return {withoutFill(e, rank, shapeOf(getIds())[1])};
}

SmallVector<Value> GroupRowsOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  int64_t n = tensorType(getIds()).getNumElements(),
          groups = shapeOf(getOffsets())[0] - 1;
  Counted counted = countChunks(e, e.reshape(getIds(), {1, n}), groups);
  Value total = e.reshape(e.sumLast(counted.counts), {groups});
  SmallVector<int64_t> shape{groups + 1, groups};
  RankedTensorType type = i32Like(total, shape);
  Value earlier =
      e.compare(e.iota(type, 1), ComparePredicate::lt, e.iota(type, 0));
  Value offsets = e.sumLast(
      e.select(earlier, e.broadcastLast(total, shape), e.zeros(type)));
  Value begins = e.broadcast(e.slice(offsets, {0}, {groups}), {1},
                             shapeOf(counted.before));
  Value place = e.add(counted.within,
                      pickGroup(e, counted, e.add(begins, counted.before)));
  Value zero = e.zeros(tensorType(counted.ids)),
        bound = e.splatLike(static_cast<double>(groups), counted.ids);
  Value isMember =
      e.binary<AndOp>(e.compare(counted.ids, ComparePredicate::ge, zero),
                      e.compare(counted.ids, ComparePredicate::lt, bound));
  place = e.select(isMember, place, e.splatLike(-1, place));
  return {offsets, e.reshape(withoutFill(e, place, n), shapeOf(getSlots()))};
}

//===--- sharding rules -------------------------------------------------===//

// Expert numbers refer to the whole tensor, so those dimensions are not
// shardable; rows of tokens are.

// scores [..., n] → [..., k]
OpRule TopKOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims out = rule.loopsOf(getIndices()), in = out;
  rule.loops[out.back()[0]].kind = LoopKind::whole;
  int64_t n = tensorType(getScores()).getShape().back();
  in.back() = {rule.loopDim(n, LoopKind::whole)};
  rule.operands = {in}, rule.results = {out};
  return rule;
}

// input [..., n] at indices [..., k]
OpRule TakeAlongAxisOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims out = rule.loopsOf(getResult()), in = out;
  int64_t n = tensorType(getInput()).getShape().back();
  in.back() = {rule.loopDim(n, LoopKind::whole)};
  rule.operands = {in, out}, rule.results = {out}, rule.linear = {{0}};
  return rule;
}

// Ranks are among the entries of a row: ids and scores [rows, n].
OpRule RankInGroupOp::getShardingRule() {
  OpRule rule = pointwiseRule(*this);
  rule.isPointwise = false;
  rule.loops.back().kind = LoopKind::whole;
  return rule;
}

// ids [tokens, k] → offsets [groups + 1], slots [tokens, k]. A slot depends on
// all entries before it, except in device-local row order: then on those of the
// device's tokens or groups.
OpRule GroupRowsOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims ids = rule.loopsOf(getIds(), LoopKind::whole),
               offsets = rule.loopsOf(getOffsets(), LoopKind::whole);
  rule.loops[ids[0][0]].kind = LoopKind::own;
  rule.groups =
      rule.loopDim(tensorType(getOffsets()).getDimSize(0) - 1, LoopKind::own);
  rule.operands = {ids}, rule.results = {offsets, ids};
  rule.ownResults = {0, 1};
  rule.numbersRows = true;
  return rule;
}

//===--- Emitter --------------------------------------------------------===//

Value Emitter::topK(Value scores, int64_t k) {
  SmallVector<int64_t> shape(shapeOf(scores));
  shape.back() = k;
  return b.create<TopKOp>(loc, i32Like(scores, shape), scores);
}

Value Emitter::pick(Value x, Value indices) {
  return b.create<TakeAlongAxisOp>(loc, x, indices);
}

Value Emitter::rankInGroup(Value ids, Value scores, int64_t groups) {
  return b.create<RankInGroupOp>(loc, ids, scores, groups);
}

GroupRowsOp Emitter::groupRows(Value ids, int64_t groups) {
  return b.create<GroupRowsOp>(loc, i32Like(ids, {groups + 1}), ids.getType(),
                               ids);
}
