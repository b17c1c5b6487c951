// Composites: parallel along all dimensions except those that their rows or
// windows need whole.
#include "dialects/graph/GraphQuantOps.h"
#include "passes/sharding/RuleTable.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

// The last dimension is whole; further operands are vectors along it.
static OpRule rowRule(Operation *op) {
  OpRule rule;
  OpRule::Dims dims = rule.loopsOf(op->getResult(0));
  rule.loops.back().kind = LoopKind::whole;
  rule.operands.push_back(dims);
  for (unsigned i = 1; i < op->getNumOperands(); ++i)
    rule.operands.push_back({dims.back()});
  rule.results = {dims};
  return rule;
}

// [..., n] and the scales [..., 1] of its rows, which are whole.
static std::pair<OpRule::Dims, OpRule::Dims> rowsAndScales(OpRule &rule,
                                                           Value rows) {
  OpRule::Dims dims = rule.loopsOf(rows), scales = dims;
  rule.loops.back().kind = LoopKind::whole;
  scales.back().clear();
  return {dims, scales};
}

static OpRule quantizeRowsRule(graph::QuantizeRowsOp op) {
  OpRule rule;
  auto [rows, scales] = rowsAndScales(rule, op.getInput());
  rule.operands = {rows}, rule.results = {rows, scales};
  return rule;
}

static OpRule dequantizeRowsRule(graph::DequantizeRowsOp op) {
  OpRule rule;
  auto [rows, scales] = rowsAndScales(rule, op.getResult());
  rule.operands = {rows, scales}, rule.results = {rows};
  return rule;
}

// input [batch, tokens, heads, head_dim]. Positions are a tensor, or follow
// from the token's index (LocalPositions.cpp).
static OpRule ropeRule(graph::RopeOp op) {
  OpRule rule;
  OpRule::Dims dims = rule.loopsOf(op.getInput());
  rule.loops[dims[3][0]].kind = LoopKind::whole;
  rule.operands = {dims};
  if (op.getPositions())
    rule.operands.push_back({dims[0], dims[1]});
  rule.results = {dims}, rule.linear = {{0}};
  return rule;
}

// Random masks are numbered through the whole tensor. As for graph.random, only
// the first dimension is shardable, because a shard has one offset.
static OpRule dropoutRule(graph::DropoutOp op) {
  OpRule rule = wholeRule(op);
  if (!rule.results[0].empty()) {
    rule.operands[0] = rule.results[0];
    rule.loops[rule.results[0][0][0]].kind = LoopKind::parallel;
  }
  return rule;
}

namespace {
/// The loops of attention. Query head h reads kv head h / (heads / kv_heads),
/// so query heads are kv_heads × the rest. Queries and keys of a token are one
/// loop: a device has both or neither, and receives the other keys
/// (LocalAttention.cpp). With a `start`, every device has all keys.
struct AttentionLoops {
  AttentionLoops(OpRule &rule, Value query, Value key, Value start,
                 LoopKind ofQueries) {
    auto type = graph::tensorType(query);
    int64_t kvHeads = graph::tensorType(key).getDimSize(2);
    batch = rule.loopDim(type.getDimSize(0));
    tokens = keys = rule.loopDim(type.getDimSize(1),
                                 start ? ofQueries : LoopKind::parallel);
    if (start)
      keys =
          rule.loopDim(graph::tensorType(key).getDimSize(1), LoopKind::whole);
    heads = rule.loopDim(kvHeads);
    shared = rule.loopDim(type.getDimSize(2) / kvHeads, LoopKind::whole);
    width = rule.loopDim(type.getDimSize(3), LoopKind::whole);
  }
  OpRule::Dims query() const {
    return {{batch}, {tokens}, {heads, shared}, {width}};
  }
  OpRule::Dims key() const { return {{batch}, {keys}, {heads}, {width}}; }
  OpRule::Dims lse() const { return {{batch}, {heads, shared}, {tokens}}; }

  unsigned batch, tokens, keys, heads, shared, width;
};
} // namespace

static OpRule attentionRule(graph::AttentionOp op) {
  OpRule rule;
  AttentionLoops l(rule, op.getQuery(), op.getKey(), op.getStart(),
                   LoopKind::parallel);
  rule.operands = {l.query(), l.key(), l.key()};
  if (op.getStart())
    rule.operands.emplace_back();
  rule.results = {l.query(), l.lse()};
  return rule;
}

static OpRule attentionGradRule(graph::AttentionGradOp op) {
  OpRule rule;
  AttentionLoops l(rule, op.getQuery(), op.getKey(), op.getStart(),
                   LoopKind::sum);
  rule.operands = {l.query(), l.key(), l.key(), l.query(), l.lse(), l.query()};
  if (op.getStart())
    rule.operands.emplace_back();
  rule.results = {l.query(), l.key(), l.key()};
  return rule;
}

// input [tokens, width], weight [vocab, width], targets [tokens]: the loss is a
// sum over tokens, and so is the gradient of the weight. With a sharded
// vocabulary, a token's loss is computed on the device that has its target, and
// the gradient of the input is a sum over logits (LocalHead.cpp).
template <typename Op> static OpRule crossEntropyRule(Op op) {
  OpRule rule;
  OpRule::Dims input = rule.loopsOf(op.getInput()),
               weight = {{rule.loopDim(op.getWeight().getType().getDimSize(0),
                                       LoopKind::sum)},
                         input[1]};
  rule.loops[input[0][0]].kind = LoopKind::sum;
  rule.loops[input[1][0]].kind = LoopKind::whole;
  rule.operands = {input, weight, {input[0]}};
  rule.operands.resize(op->getNumOperands()); // and the cotangent, a scalar
  rule.results = {OpRule::Dims{}};
  if (op->getNumResults() > 1) // and the gradients
    rule.results.append({input, weight});
  return rule;
}

void sharding::addCompositeRules(RuleTable &table) {
  table.add<graph::SoftmaxOp>(rowRule);
  table.add<graph::LayerNormOp>(rowRule);
  table.add<graph::RmsNormOp>(rowRule);
  table.add<graph::QuantizeRowsOp>(quantizeRowsRule);
  table.add<graph::DequantizeRowsOp>(dequantizeRowsRule);
  table.add<graph::RopeOp>(ropeRule);
  table.add<graph::DropoutOp>(dropoutRule);
  table.add<graph::AttentionOp>(attentionRule);
  table.add<graph::AttentionGradOp>(attentionGradRule);
  table.add<graph::LinearCrossEntropyOp>(
      crossEntropyRule<graph::LinearCrossEntropyOp>);
  table.add<graph::LinearCrossEntropyGradOp>(
      crossEntropyRule<graph::LinearCrossEntropyGradOp>);
}
