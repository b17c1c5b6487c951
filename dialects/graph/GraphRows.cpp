// Rows to their slots and back: what is verified, what it means in primitives,
// gradients, work and sharding rules.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphVerify.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

//===--- verifiers ------------------------------------------------------===//

// What moves rows to slots [tokens, k] or from there, perhaps with weights.
template <typename Op> static LogicalResult verifyMovedRows(Op op) {
  RankedTensorType from = tensorType(op.getInput()),
                   slots = tensorType(op.getSlots());
  if (failed(expectRank(op, "an input", from, 2)) ||
      failed(expectRank(op, "slots", slots, 2)))
    return failure();
  if (slots.getDimSize(1) < 1)
    return op.emitOpError("expects at least one place a token");
  if (!op.getWeights())
    return success();
  if (failed(expectShape(op, "weights", tensorType(op.getWeights()),
                         slots.getShape())))
    return failure();
  return expectSameOrWider(op, "the input", from, "the weights",
                           tensorType(op.getWeights()));
}

LogicalResult DispatchRowsOp::verify() {
  RankedTensorType input = tensorType(getInput()), result = getType();
  if (failed(verifyMovedRows(*this)) ||
      failed(expectRank(*this, "a result", result, 2)) ||
      failed(expectShape(*this, "slots", tensorType(getSlots()),
                         {input.getDimSize(0), shapeOf(getSlots())[1]})) ||
      failed(expectShape(*this, "a result", result,
                         {result.getDimSize(0), input.getDimSize(1)})))
    return failure();
  return expectSameElement(*this, "input", input, "result", result);
}

LogicalResult CombineRowsOp::verify() { return verifyMovedRows(*this); }

LogicalResult DotRowsOp::verify() {
  RankedTensorType input = tensorType(getInput()), rows = tensorType(getRows()),
                   slots = tensorType(getSlots());
  if (failed(expectRank(*this, "an input", input, 2)) ||
      failed(expectRank(*this, "rows", rows, 2)) ||
      failed(expectRank(*this, "slots", slots, 2)) ||
      failed(expectShape(*this, "slots", slots,
                         {input.getDimSize(0), slots.getDimSize(1)})) ||
      failed(expectShape(*this, "rows", rows,
                         {rows.getDimSize(0), input.getDimSize(1)})))
    return failure();
  return expectSameElement(*this, "input", input, "rows", rows);
}

//===--- meaning --------------------------------------------------------===//

// x × weights, [tokens, k, width], in the statistics type.
static Value weighted(Emitter &e, Value x, Value weights) {
  x = e.convert(x, statisticsType(x));
  weights = e.convert(weights, tensorType(x).getElementType());
  return e.mul(x, e.broadcastFirst(weights, shapeOf(x)));
}

SmallVector<Value> DispatchRowsOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Value x = getInput();
  SmallVector<int64_t> shape(shapeOf(getSlots()));
  shape.push_back(shapeOf(x)[1]);
  Value updates = e.broadcast(x, {0, 2}, shape);
  if (getWeights())
    updates = e.convert(weighted(e, updates, getWeights()),
                        tensorType(x).getElementType());
  return {e.scatterRows(updates, getSlots(), e.zeros(getResult().getType()))};
}

static Value isPlace(Emitter &e, Value slots) {
  return e.compare(slots, ComparePredicate::ge, e.zeros(tensorType(slots)));
}

// A row that exists for each place; what it holds where there is none is
// masked.
static Value safeSlots(Emitter &e, Value slots) {
  return e.max(slots, e.zeros(tensorType(slots)));
}

// Token by token, k rows each, so that one kernel picks and adds them.
SmallVector<Value> CombineRowsOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  int64_t tokens = shapeOf(getSlots())[0], k = shapeOf(getSlots())[1];
  Value safe = safeSlots(e, getSlots());
  auto column = [&](Value x, int64_t j) {
    return e.reshape(e.slice(x, {0, j}, {tokens, 1}), {tokens});
  };
  Value sum;
  for (int64_t j = 0; j < k; ++j) {
    Value row = e.embedding(getInput(), column(safe, j));
    row = getWeights() ? weighted(e, row, column(getWeights(), j))
                       : e.convert(row, statisticsType(row));
    // Spread before it is compared: the mask is then never stored.
    Value place = e.broadcastFirst(column(getSlots(), j), shapeOf(row));
    row = e.select(isPlace(e, place), row, e.splatLike(0.0, row));
    sum = sum ? e.add(sum, row) : row;
  }
  return {e.convert(sum, tensorType(getResult()).getElementType())};
}

SmallVector<Value> DotRowsOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Type type = statisticsType(getInput());
  Value picked =
      e.convert(e.embedding(getRows(), safeSlots(e, getSlots())), type);
  Value spread =
      e.broadcast(e.convert(getInput(), type), {0, 2}, shapeOf(picked));
  Value sum = e.sumLast(e.mul(spread, picked));
  sum = e.select(isPlace(e, getSlots()), sum, e.splatLike(0.0, sum));
  return {e.convert(sum, tensorType(getResult()).getElementType())};
}

SmallVector<Value> DispatchRowsOp::buildVjp(OpBuilder &builder,
                                            ValueRange cotangents) {
  SmallVector<Value> result(getNumOperands());
  Value g = cotangents[0];
  if (!g)
    return result;
  Emitter e(builder, getLoc());
  result[0] = e.combineRows(g, getSlots(), getWeights());
  if (getWeights())
    result[2] = e.dotRows(getInput(), g, getSlots(), getWeights());
  return result;
}

SmallVector<Value> CombineRowsOp::buildVjp(OpBuilder &builder,
                                           ValueRange cotangents) {
  SmallVector<Value> result(getNumOperands());
  Value g = cotangents[0];
  if (!g)
    return result;
  Emitter e(builder, getLoc());
  result[0] =
      e.dispatchRows(g, getSlots(), getWeights(), shapeOf(getInput())[0]);
  if (getWeights())
    result[2] = e.dotRows(g, getInput(), getSlots(), getWeights());
  return result;
}

// Without weights rows are only moved, or added.
int64_t DispatchRowsOp::getFlops() {
  return getWeights()
             ? tensorType(getSlots()).getNumElements() * shapeOf(getInput())[1]
             : 0;
}

int64_t CombineRowsOp::getFlops() {
  return tensorType(getSlots()).getNumElements() * shapeOf(getInput())[1] *
         (getWeights() ? 2 : 1);
}

int64_t DotRowsOp::getFlops() {
  return 2 * tensorType(getSlots()).getNumElements() * shapeOf(getInput())[1];
}

//===--- sharding rules -------------------------------------------------===//

// Whether `rows` has one row for each of `slots` [tokens, k], as group_rows
// makes them: then, in device-local row order, it is sharded with its tokens.
static bool isPacked(Value rows, Value slots) {
  return tensorType(rows).getDimSize(0) == tensorType(slots).getNumElements();
}

OpRule::Dims tessera::graph::detail::packedSlots(OpRule &rule, Value slots) {
  OpRule::Dims dims = rule.loopsOf(slots, LoopKind::whole);
  rule.loops[dims[0][0]].kind = LoopKind::own;
  return dims;
}

static OpRule packedDispatchRule(DispatchRowsOp op) {
  OpRule rule;
  OpRule::Dims slots = packedSlots(rule, op.getSlots());
  unsigned width = rule.loopDim(tensorType(op.getInput()).getDimSize(1));
  rule.operands = {{slots[0], {width}}, slots};
  rule.linear = {{0}};
  if (op.getWeights()) {
    rule.operands.push_back(slots);
    rule.linear.push_back({2});
  }
  rule.results = {{{slots[0][0], slots[1][0]}, {width}}};
  rule.ownOperands = {1}, rule.ownResults = {0};
  return rule;
}

// input [tokens, width], slots and weights [tokens, k] → [rows, width]. The
// rows of other devices' tokens are zero.
OpRule DispatchRowsOp::getShardingRule() {
  if (isPacked(getResult(), getSlots()))
    return packedDispatchRule(*this);
  OpRule rule;
  OpRule::Dims slots = rule.loopsOf(getSlots()),
               out = rule.loopsOf(getResult());
  rule.loops[slots[0][0]].kind = LoopKind::sum;
  rule.loops[slots[1][0]].kind = LoopKind::sum;
  rule.loops[out[0][0]].kind = LoopKind::whole;
  rule.operands = {{slots[0], out[1]}, slots};
  rule.linear = {{0}};
  if (getWeights()) {
    rule.operands.push_back(slots);
    rule.linear.push_back({2});
  }
  rule.results = {out};
  return rule;
}

// Partial values pass through if the result is not rounded.
static void passParts(OpRule &rule, CombineRowsOp op) {
  if (op.getResult().getType().getElementType().getIntOrFloatBitWidth() < 32)
    return;
  rule.linear = {{0}};
  if (op.getWeights())
    rule.linear.push_back({2});
}

static OpRule packedCombineRule(CombineRowsOp op) {
  OpRule rule;
  OpRule::Dims slots = packedSlots(rule, op.getSlots());
  unsigned width = rule.loopDim(tensorType(op.getResult()).getDimSize(1));
  rule.operands = {{{slots[0][0], slots[1][0]}, {width}}, slots};
  if (op.getWeights())
    rule.operands.push_back(slots);
  passParts(rule, op);
  rule.results = {{slots[0], {width}}};
  rule.ownOperands = {0, 1};
  return rule;
}

// input [rows, width], slots and weights [tokens, k] → [tokens, width]. Rows
// of a token are summed before they are rounded.
OpRule CombineRowsOp::getShardingRule() {
  if (isPacked(getInput(), getSlots()))
    return packedCombineRule(*this);
  OpRule rule;
  OpRule::Dims slots = rule.loopsOf(getSlots()), in = rule.loopsOf(getInput());
  bool rounds =
      getResult().getType().getElementType().getIntOrFloatBitWidth() < 32;
  rule.loops[slots[1][0]].kind = rounds ? LoopKind::whole : LoopKind::sum;
  rule.loops[in[0][0]].kind = LoopKind::whole;
  rule.operands = {in, slots};
  if (getWeights())
    rule.operands.push_back(slots);
  passParts(rule, *this);
  rule.results = {{slots[0], in[1]}};
  return rule;
}

// input [tokens, width], rows [rows, width], slots [tokens, k] → [tokens, k].
OpRule DotRowsOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims slots = packedSlots(rule, getSlots());
  unsigned width =
      rule.loopDim(tensorType(getInput()).getDimSize(1), LoopKind::sum);
  OpRule::Dim rows = {slots[0][0], slots[1][0]};
  if (isPacked(getRows(), getSlots())) {
    rule.ownOperands = {1, 2};
  } else {
    rule.loops[slots[0][0]].kind = LoopKind::parallel;
    rows = {rule.loopDim(tensorType(getRows()).getDimSize(0), LoopKind::whole)};
  }
  rule.operands = {{slots[0], {width}}, {rows, {width}}, slots};
  rule.linear = {{0}, {1}};
  rule.results = {slots};
  return rule;
}

// Overwrites rows: base [rows, width], updates [ids, width].
OpRule ScatterRowsOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims base = rule.loopsOf(getBase()),
               ids = rule.loopsOf(getIds(), LoopKind::whole), updates = ids;
  rule.loops[base[0][0]].kind = LoopKind::whole;
  updates.push_back(base[1]);
  rule.operands = {base, ids, updates}, rule.results = {base};
  rule.linear = {{0, 2}};
  return rule;
}

//===--- Emitter --------------------------------------------------------===//

Value Emitter::dispatchRows(Value x, Value slots, Value weights, int64_t rows) {
  return b.create<DispatchRowsOp>(
      loc, tensorType(x).clone({rows, shapeOf(x)[1]}), x, slots, weights);
}

Value Emitter::combineRows(Value rows, Value slots, Value weights) {
  return b.create<CombineRowsOp>(loc, rows, slots, weights);
}

Value Emitter::dotRows(Value x, Value rows, Value slots, Value like) {
  return b.create<DotRowsOp>(
      loc, tensorType(slots).clone(tensorType(like).getElementType()), x, rows,
      slots);
}
