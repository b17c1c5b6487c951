// Routing of experts, and KV caches. Expert and page numbers refer to the whole
// tensor, so those dimensions are not shardable; rows of tokens are.
#include "dialects/graph/GraphExchangeOps.h"
#include "dialects/graph/GraphSamplingOps.h"
#include "passes/sharding/RuleTable.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

// scores [..., n] → [..., k]
static OpRule topKRule(graph::TopKOp op) {
  OpRule rule;
  OpRule::Dims out = rule.loopsOf(op.getIndices()), in = out;
  rule.loops[out.back()[0]].kind = LoopKind::whole;
  int64_t n = graph::tensorType(op.getScores()).getShape().back();
  in.back() = {rule.loopDim(n, LoopKind::whole)};
  rule.operands = {in}, rule.results = {out};
  return rule;
}

// input [..., n] at indices [..., k]
static OpRule pickRule(graph::TakeAlongAxisOp op) {
  OpRule rule;
  OpRule::Dims out = rule.loopsOf(op.getResult()), in = out;
  int64_t n = graph::tensorType(op.getInput()).getShape().back();
  in.back() = {rule.loopDim(n, LoopKind::whole)};
  rule.operands = {in, out}, rule.results = {out}, rule.linear = {{0}};
  return rule;
}

// Ranks are among the entries of a row: ids and scores [rows, n].
static OpRule rankInGroupRule(graph::RankInGroupOp op) {
  OpRule rule = pointwiseRule(op);
  rule.isPointwise = false;
  rule.loops.back().kind = LoopKind::whole;
  return rule;
}

// ids [tokens, k] → offsets [groups + 1], slots [tokens, k]. A slot depends on
// all entries before it, except in device-local row order: then on those of the
// device's tokens or groups.
static OpRule groupRowsRule(graph::GroupRowsOp op) {
  OpRule rule;
  OpRule::Dims ids = rule.loopsOf(op.getIds(), LoopKind::whole),
               offsets = rule.loopsOf(op.getOffsets(), LoopKind::whole);
  rule.loops[ids[0][0]].kind = LoopKind::own;
  rule.groups = rule.loopDim(
      graph::tensorType(op.getOffsets()).getDimSize(0) - 1, LoopKind::own);
  rule.operands = {ids}, rule.results = {offsets, ids};
  rule.ownResults = {0, 1};
  rule.numbersRows = true;
  return rule;
}

// Whether `rows` has one row for each of `slots` [tokens, k], as group_rows
// makes them: then, in device-local row order, it is sharded with its tokens.
static bool isPacked(Value rows, Value slots) {
  return graph::tensorType(rows).getDimSize(0) ==
         graph::tensorType(slots).getNumElements();
}

// Loops of slots and of the first dimension of packed rows.
static OpRule::Dims packedSlots(OpRule &rule, Value slots) {
  OpRule::Dims dims = rule.loopsOf(slots, LoopKind::whole);
  rule.loops[dims[0][0]].kind = LoopKind::own;
  return dims;
}

static OpRule packedDispatchRule(graph::DispatchRowsOp op) {
  OpRule rule;
  OpRule::Dims slots = packedSlots(rule, op.getSlots());
  unsigned width = rule.loopDim(graph::tensorType(op.getInput()).getDimSize(1));
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
static OpRule dispatchRule(graph::DispatchRowsOp op) {
  if (isPacked(op.getResult(), op.getSlots()))
    return packedDispatchRule(op);
  OpRule rule;
  OpRule::Dims slots = rule.loopsOf(op.getSlots()),
               out = rule.loopsOf(op.getResult());
  rule.loops[slots[0][0]].kind = LoopKind::sum;
  rule.loops[slots[1][0]].kind = LoopKind::sum;
  rule.loops[out[0][0]].kind = LoopKind::whole;
  rule.operands = {{slots[0], out[1]}, slots};
  rule.linear = {{0}};
  if (op.getWeights()) {
    rule.operands.push_back(slots);
    rule.linear.push_back({2});
  }
  rule.results = {out};
  return rule;
}

// Partial values pass through if the result is not rounded.
static void passParts(OpRule &rule, graph::CombineRowsOp op) {
  if (op.getResult().getType().getElementType().getIntOrFloatBitWidth() < 32)
    return;
  rule.linear = {{0}};
  if (op.getWeights())
    rule.linear.push_back({2});
}

static OpRule packedCombineRule(graph::CombineRowsOp op) {
  OpRule rule;
  OpRule::Dims slots = packedSlots(rule, op.getSlots());
  unsigned width =
      rule.loopDim(graph::tensorType(op.getResult()).getDimSize(1));
  rule.operands = {{{slots[0][0], slots[1][0]}, {width}}, slots};
  if (op.getWeights())
    rule.operands.push_back(slots);
  passParts(rule, op);
  rule.results = {{slots[0], {width}}};
  rule.ownOperands = {0, 1};
  return rule;
}

// rows [tokens × k, width], slots [tokens, k], offsets [groups + 1] → the same
// rows.
template <typename Op> static OpRule exchangeRule(Op op) {
  OpRule rule;
  OpRule::Dims slots = packedSlots(rule, op.getSlots()),
               groups = rule.loopsOf(op.getGroups(), LoopKind::whole);
  OpRule::Dims rows{
      {slots[0][0], slots[1][0]},
      {rule.loopDim(graph::tensorType(op.getRows()).getDimSize(1))}};
  rule.operands = {rows, slots, groups};
  rule.results = {rows};
  rule.ownOperands = {0, 1, 2}, rule.ownResults = {0};
  return rule;
}

static OpRule sendRowsRule(graph::SendRowsOp op) {
  OpRule rule = exchangeRule(op);
  rule.results.push_back(rule.operands[2]);
  rule.ownResults.push_back(1);
  rule.sentResult = 0;
  return rule;
}

static OpRule returnRowsRule(graph::ReturnRowsOp op) {
  OpRule rule = exchangeRule(op);
  rule.linear = {{0}};
  rule.sentOperand = 0;
  return rule;
}

// input [tokens, width], rows [rows, width], slots [tokens, k] → [tokens, k].
static OpRule dotRowsRule(graph::DotRowsOp op) {
  OpRule rule;
  OpRule::Dims slots = packedSlots(rule, op.getSlots());
  unsigned width = rule.loopDim(graph::tensorType(op.getInput()).getDimSize(1),
                                LoopKind::sum);
  OpRule::Dim rows = {slots[0][0], slots[1][0]};
  if (isPacked(op.getRows(), op.getSlots())) {
    rule.ownOperands = {1, 2};
  } else {
    rule.loops[slots[0][0]].kind = LoopKind::parallel;
    rows = {rule.loopDim(graph::tensorType(op.getRows()).getDimSize(0),
                         LoopKind::whole)};
  }
  rule.operands = {{slots[0], {width}}, {rows, {width}}, slots};
  rule.linear = {{0}, {1}};
  rule.results = {slots};
  return rule;
}

// input [rows, width], slots and weights [tokens, k] → [tokens, width]. Rows
// of a token are summed before they are rounded.
static OpRule combineRule(graph::CombineRowsOp op) {
  if (isPacked(op.getInput(), op.getSlots()))
    return packedCombineRule(op);
  OpRule rule;
  OpRule::Dims slots = rule.loopsOf(op.getSlots()),
               in = rule.loopsOf(op.getInput());
  bool rounds =
      op.getResult().getType().getElementType().getIntOrFloatBitWidth() < 32;
  rule.loops[slots[1][0]].kind = rounds ? LoopKind::whole : LoopKind::sum;
  rule.loops[in[0][0]].kind = LoopKind::whole;
  rule.operands = {in, slots};
  if (op.getWeights())
    rule.operands.push_back(slots);
  passParts(rule, op);
  rule.results = {{slots[0], in[1]}};
  return rule;
}

// Overwrites rows: base [rows, width], updates [ids, width].
static OpRule scatterRowsRule(graph::ScatterRowsOp op) {
  OpRule rule;
  OpRule::Dims base = rule.loopsOf(op.getBase()),
               ids = rule.loopsOf(op.getIds(), LoopKind::whole), updates = ids;
  rule.loops[base[0][0]].kind = LoopKind::whole;
  updates.push_back(base[1]);
  rule.operands = {base, ids, updates}, rule.results = {base};
  rule.linear = {{0, 2}};
  return rule;
}

// query [batch, tokens, heads, head_dim], keys and values [pages, page,
// kv_heads, head_dim], table [batch, n], starts and lengths [batch]; heads are
// kv_heads × the rest, as in attention.
static OpRule pagedAttentionRule(graph::PagedAttentionOp op) {
  OpRule rule;
  OpRule::Dims keys = rule.loopsOf(op.getKeys(), LoopKind::whole),
               table = rule.loopsOf(op.getTable(), LoopKind::whole);
  unsigned batch = table[0][0], heads = keys[2][0];
  rule.loops[batch].kind = rule.loops[heads].kind = LoopKind::parallel;
  ArrayRef<int64_t> query = graph::tensorType(op.getQuery()).getShape();
  unsigned tokens = rule.loopDim(query[1], LoopKind::whole),
           shared =
               rule.loopDim(query[2] / rule.loops[heads].size, LoopKind::whole);
  OpRule::Dims queries{{batch}, {tokens}, {heads, shared}, keys[3]};
  rule.operands = {queries, keys, keys, table, {{batch}}, {{batch}}};
  rule.results = {queries};
  return rule;
}

// logits [batch, vocab] and sampling parameters → token [batch]. Sampling reads
// whole rows.
static OpRule sampleRule(graph::SampleOp op) {
  OpRule rule;
  unsigned batch = rule.loopDim(graph::tensorType(op.getLogits()).getDimSize(0),
                                LoopKind::parallel);
  for (Value operand : op->getOperands()) {
    OpRule::Dims dims{{batch}};
    for (int64_t size : graph::tensorType(operand).getShape().drop_front())
      dims.push_back({rule.loopDim(size, LoopKind::whole)});
    rule.operands.push_back(dims);
  }
  rule.results = {{{batch}}};
  return rule;
}

void sharding::addRoutingRules(RuleTable &table) {
  table.add<graph::TopKOp>(topKRule);
  table.add<graph::TakeAlongAxisOp>(pickRule);
  table.add<graph::RankInGroupOp>(rankInGroupRule);
  table.add<graph::GroupRowsOp>(groupRowsRule);
  table.add<graph::DispatchRowsOp>(dispatchRule);
  table.add<graph::CombineRowsOp>(combineRule);
  table.add<graph::DotRowsOp>(dotRowsRule);
  table.add<graph::SendRowsOp>(sendRowsRule);
  table.add<graph::ReturnRowsOp>(returnRowsRule);
  table.add<graph::ScatterRowsOp>(scatterRowsRule);
  table.add<graph::PagedAttentionOp>(pagedAttentionRule);
  table.add<graph::SampleOp>(sampleRule);
}
