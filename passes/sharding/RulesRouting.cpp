// Routing of experts, and caches. Experts and pages are numbered through the
// whole tensor, so what numbers refer to is whole; rows of tokens are not.
#include "dialects/graph/GraphExchangeOps.h"
#include "dialects/graph/GraphSamplingOps.h"
#include "passes/sharding/RuleTable.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

// scores [..., n] → [..., k]
static OpRule topKRule(graph::TopKOp op) {
  OpRule rule;
  OpRule::Dims out = rule.lettersOf(op.getIndices()), in = out;
  rule.letters[out.back()[0]].kind = LetterKind::whole;
  int64_t n = graph::tensorType(op.getScores()).getShape().back();
  in.back() = {rule.letter(n, LetterKind::whole)};
  rule.operands = {in}, rule.results = {out};
  return rule;
}

// input [..., n] at indices [..., k]
static OpRule pickRule(graph::PickOp op) {
  OpRule rule;
  OpRule::Dims out = rule.lettersOf(op.getResult()), in = out;
  int64_t n = graph::tensorType(op.getInput()).getShape().back();
  in.back() = {rule.letter(n, LetterKind::whole)};
  rule.operands = {in, out}, rule.results = {out}, rule.linear = {{0}};
  return rule;
}

// Ranks are among the entries of a row: ids and scores [rows, n].
static OpRule rankInGroupRule(graph::RankInGroupOp op) {
  OpRule rule = pointwiseRule(op);
  rule.isPointwise = false;
  rule.letters.back().kind = LetterKind::whole;
  return rule;
}

// ids [tokens, k] → offsets [groups + 1], places [tokens, k]. Places follow
// from all entries before, unless rows are a device's own: those of its tokens,
// or of its groups.
static OpRule groupRowsRule(graph::GroupRowsOp op) {
  OpRule rule;
  OpRule::Dims ids = rule.lettersOf(op.getIds(), LetterKind::whole),
               offsets = rule.lettersOf(op.getOffsets(), LetterKind::whole);
  rule.letters[ids[0][0]].kind = LetterKind::own;
  rule.groups = rule.letter(
      graph::tensorType(op.getOffsets()).getDimSize(0) - 1, LetterKind::own);
  rule.operands = {ids}, rule.results = {offsets, ids};
  rule.ownResults = {0, 1};
  rule.numbersRows = true;
  return rule;
}

// Whether `rows` has one for each of `places` [tokens, k], as group_rows makes
// them: then it is cut with its tokens, if rows are a device's own.
static bool isPacked(Value rows, Value places) {
  return graph::tensorType(rows).getDimSize(0) ==
         graph::tensorType(places).getNumElements();
}

// Letters of places and of the first dimension of packed rows.
static OpRule::Dims packedPlaces(OpRule &rule, Value places) {
  OpRule::Dims dims = rule.lettersOf(places, LetterKind::whole);
  rule.letters[dims[0][0]].kind = LetterKind::own;
  return dims;
}

static OpRule packedDispatchRule(graph::DispatchRowsOp op) {
  OpRule rule;
  OpRule::Dims places = packedPlaces(rule, op.getPlaces());
  unsigned width = rule.letter(graph::tensorType(op.getInput()).getDimSize(1));
  rule.operands = {{places[0], {width}}, places};
  rule.linear = {{0}};
  if (op.getWeights()) {
    rule.operands.push_back(places);
    rule.linear.push_back({2});
  }
  rule.results = {{{places[0][0], places[1][0]}, {width}}};
  rule.ownOperands = {1}, rule.ownResults = {0};
  return rule;
}

// input [tokens, width], places and weights [tokens, k] → [rows, width]. What
// some of the tokens give is zero in the rows of the others.
static OpRule dispatchRule(graph::DispatchRowsOp op) {
  if (isPacked(op.getResult(), op.getPlaces()))
    return packedDispatchRule(op);
  OpRule rule;
  OpRule::Dims places = rule.lettersOf(op.getPlaces()),
               out = rule.lettersOf(op.getResult());
  rule.letters[places[0][0]].kind = LetterKind::sum;
  rule.letters[places[1][0]].kind = LetterKind::sum;
  rule.letters[out[0][0]].kind = LetterKind::whole;
  rule.operands = {{places[0], out[1]}, places};
  rule.linear = {{0}};
  if (op.getWeights()) {
    rule.operands.push_back(places);
    rule.linear.push_back({2});
  }
  rule.results = {out};
  return rule;
}

// Parts of sums pass where they are not rounded.
static void passParts(OpRule &rule, graph::CombineRowsOp op) {
  if (op.getResult().getType().getElementType().getIntOrFloatBitWidth() < 32)
    return;
  rule.linear = {{0}};
  if (op.getWeights())
    rule.linear.push_back({2});
}

static OpRule packedCombineRule(graph::CombineRowsOp op) {
  OpRule rule;
  OpRule::Dims places = packedPlaces(rule, op.getPlaces());
  unsigned width = rule.letter(graph::tensorType(op.getResult()).getDimSize(1));
  rule.operands = {{{places[0][0], places[1][0]}, {width}}, places};
  if (op.getWeights())
    rule.operands.push_back(places);
  passParts(rule, op);
  rule.results = {{places[0], {width}}};
  rule.ownOperands = {0, 1};
  return rule;
}

// rows [tokens × k, width], places [tokens, k], offsets [groups + 1] → the same
// rows.
template <typename Op> static OpRule exchangeRule(Op op) {
  OpRule rule;
  OpRule::Dims places = packedPlaces(rule, op.getPlaces()),
               groups = rule.lettersOf(op.getGroups(), LetterKind::whole);
  OpRule::Dims rows{
      {places[0][0], places[1][0]},
      {rule.letter(graph::tensorType(op.getRows()).getDimSize(1))}};
  rule.operands = {rows, places, groups};
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

// input [tokens, width], rows [rows, width], places [tokens, k] → [tokens, k].
static OpRule dotRowsRule(graph::DotRowsOp op) {
  OpRule rule;
  OpRule::Dims places = packedPlaces(rule, op.getPlaces());
  unsigned width = rule.letter(graph::tensorType(op.getInput()).getDimSize(1),
                               LetterKind::sum);
  OpRule::Dim rows = {places[0][0], places[1][0]};
  if (isPacked(op.getRows(), op.getPlaces())) {
    rule.ownOperands = {1, 2};
  } else {
    rule.letters[places[0][0]].kind = LetterKind::free;
    rows = {rule.letter(graph::tensorType(op.getRows()).getDimSize(0),
                        LetterKind::whole)};
  }
  rule.operands = {{places[0], {width}}, {rows, {width}}, places};
  rule.linear = {{0}, {1}};
  rule.results = {places};
  return rule;
}

// input [rows, width], places and weights [tokens, k] → [tokens, width]. Rows
// of a token are summed before they are rounded.
static OpRule combineRule(graph::CombineRowsOp op) {
  if (isPacked(op.getInput(), op.getPlaces()))
    return packedCombineRule(op);
  OpRule rule;
  OpRule::Dims places = rule.lettersOf(op.getPlaces()),
               in = rule.lettersOf(op.getInput());
  bool rounds =
      op.getResult().getType().getElementType().getIntOrFloatBitWidth() < 32;
  rule.letters[places[1][0]].kind =
      rounds ? LetterKind::whole : LetterKind::sum;
  rule.letters[in[0][0]].kind = LetterKind::whole;
  rule.operands = {in, places};
  if (op.getWeights())
    rule.operands.push_back(places);
  passParts(rule, op);
  rule.results = {{places[0], in[1]}};
  return rule;
}

// Rows take the place of others: base [rows, width], updates [ids, width].
static OpRule scatterRowsRule(graph::ScatterRowsOp op) {
  OpRule rule;
  OpRule::Dims base = rule.lettersOf(op.getBase()),
               ids = rule.lettersOf(op.getIds(), LetterKind::whole),
               updates = ids;
  rule.letters[base[0][0]].kind = LetterKind::whole;
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
  OpRule::Dims keys = rule.lettersOf(op.getKeys(), LetterKind::whole),
               table = rule.lettersOf(op.getTable(), LetterKind::whole);
  unsigned batch = table[0][0], heads = keys[2][0];
  rule.letters[batch].kind = rule.letters[heads].kind = LetterKind::free;
  ArrayRef<int64_t> query = graph::tensorType(op.getQuery()).getShape();
  unsigned tokens = rule.letter(query[1], LetterKind::whole),
           shared = rule.letter(query[2] / rule.letters[heads].size,
                                LetterKind::whole);
  OpRule::Dims queries{{batch}, {tokens}, {heads, shared}, keys[3]};
  rule.operands = {queries, keys, keys, table, {{batch}}, {{batch}}};
  rule.results = {queries};
  return rule;
}

// logits [batch, vocab] and what says which token of a row is chosen → token
// [batch]. A row is chosen of as a whole.
static OpRule sampleRule(graph::SampleOp op) {
  OpRule rule;
  unsigned batch = rule.letter(graph::tensorType(op.getLogits()).getDimSize(0),
                               LetterKind::free);
  for (Value operand : op->getOperands()) {
    OpRule::Dims dims{{batch}};
    for (int64_t size : graph::tensorType(operand).getShape().drop_front())
      dims.push_back({rule.letter(size, LetterKind::whole)});
    rule.operands.push_back(dims);
  }
  rule.results = {{{batch}}};
  return rule;
}

void sharding::addRoutingRules(RuleTable &table) {
  table.add<graph::TopKOp>(topKRule);
  table.add<graph::PickOp>(pickRule);
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
