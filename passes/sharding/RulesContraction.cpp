// Contractions, reductions, gather and scatter, random numbers.
#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphQuantOps.h"
#include "passes/sharding/RuleTable.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

static OpRule einsumRule(graph::EinsumOp op) {
  OpRule rule;
  graph::Einsum equation = *graph::Einsum::parse(op.getEquation());
  llvm::DenseMap<char, unsigned> known;
  auto dimsOf = [&](StringRef term, Value value) {
    OpRule::Dims dims;
    for (auto [name, size] :
         llvm::zip(term, graph::tensorType(value).getShape())) {
      auto [loopDim, isNew] = known.try_emplace(name, 0u);
      if (isNew)
        loopDim->second = rule.loopDim(
            size, StringRef(equation.out).contains(name) ? LoopKind::parallel
                                                         : LoopKind::sum);
      dims.push_back({loopDim->second});
    }
    return dims;
  };
  rule.operands = {dimsOf(equation.lhs, op.getLhs()),
                   dimsOf(equation.rhs, op.getRhs())};
  rule.results = {dimsOf(equation.out, op.getResult())};
  // A matmul rounds once; partial values in a narrow type would round each.
  if (op.getResult().getType().getElementType().getIntOrFloatBitWidth() >= 32)
    rule.linear = {{0}, {1}};
  return rule;
}

static OpRule reduceRule(graph::ReduceOp op) {
  OpRule rule;
  OpRule::Dims in = rule.loopsOf(op.getInput()), out;
  bool sum = op.getKind() == graph::ReduceKind::sum;
  for (auto [dim, loops] : llvm::enumerate(in))
    if (llvm::is_contained(op.getDims(), static_cast<int64_t>(dim)))
      rule.loops[loops[0]].kind = sum ? LoopKind::sum : LoopKind::whole;
    else
      out.push_back(loops);
  rule.operands = {in}, rule.results = {out};
  if (sum)
    rule.linear = {{0}};
  return rule;
}

// Rows of other devices count as zeros: a sharded table gives partial values.
static OpRule embeddingRule(graph::EmbeddingOp op) {
  OpRule rule;
  OpRule::Dims table = rule.loopsOf(op.getTable()),
               ids = rule.loopsOf(op.getIds()), out = ids;
  rule.loops[table[0][0]].kind = LoopKind::sum;
  out.push_back(table[1]);
  rule.operands = {table, ids}, rule.results = {out}, rule.linear = {{0}};
  return rule;
}

// Sharded updates add partial values, so the base must be partial too. With a
// sharded base, each device adds the updates of its rows.
static OpRule scatterAddRule(graph::ScatterAddOp op) {
  OpRule rule;
  OpRule::Dims base = rule.loopsOf(op.getBase()),
               ids = rule.loopsOf(op.getIds(), LoopKind::sum), updates = ids;
  updates.push_back(base[1]);
  rule.operands = {base, ids, updates}, rule.results = {base};
  rule.linear = {{0, 2}};
  rule.addend = 0;
  return rule;
}

static OpRule groupedMatmulRule(graph::GroupedMatmulOp op) {
  OpRule rule;
  OpRule::Dims rhs = rule.loopsOf(op.getRhs()), lhs, groups, out;
  bool padded = op.isPadded();
  unsigned k = rhs[op.getTransposed() ? 2 : 1][0],
           n = rhs[op.getTransposed() ? 1 : 2][0];
  rule.loops[k].kind = LoopKind::sum;
  int64_t rows = op.getLhs().getType().getDimSize(padded ? 1 : 0);
  unsigned row = rule.loopDim(rows, LoopKind::whole);
  if (padded) {
    groups = {rhs[0]};
    lhs = {rhs[0], {row}, {k}};
    out = {rhs[0], {row}, {n}};
  } else {
    rule.groups = rhs[0][0];
    rule.loops[*rule.groups].kind = rule.loops[row].kind = LoopKind::own;
    rule.ownOperands = {0, 2}, rule.ownResults = {0};
    groups = {{rule.loopDim(op.getGroups().getType().getDimSize(0),
                            LoopKind::whole)}};
    lhs = {{row}, {k}};
    out = {{row}, {n}};
  }
  rule.operands = {lhs, rhs, groups}, rule.results = {out};
  return rule;
}

static OpRule groupedOuterRule(graph::GroupedOuterOp op) {
  OpRule rule;
  OpRule::Dims out = rule.loopsOf(op.getResult()), lhs, rhs, groups;
  bool padded = op.isPadded();
  int64_t rows = op.getLhs().getType().getDimSize(padded ? 1 : 0);
  unsigned row = rule.loopDim(rows, LoopKind::whole);
  if (padded) {
    groups = {out[0]};
    lhs = {out[0], {row}, out[1]};
    rhs = {out[0], {row}, out[2]};
  } else {
    rule.groups = out[0][0];
    rule.loops[*rule.groups].kind = rule.loops[row].kind = LoopKind::own;
    rule.ownOperands = {0, 1, 2};
    groups = {{rule.loopDim(op.getGroups().getType().getDimSize(0),
                            LoopKind::whole)}};
    lhs = {{row}, out[1]};
    rhs = {{row}, out[2]};
  }
  rule.operands = {lhs, rhs, groups}, rule.results = {out};
  return rule;
}

// A random number follows from its index in the whole tensor: entries of the
// first dimension are counted from `offset` on.
static OpRule randomRule(graph::RandomOp op) {
  OpRule rule = wholeRule(op);
  if (!rule.results[0].empty())
    rule.loops[rule.results[0][0][0]].kind = LoopKind::parallel;
  return rule;
}

void sharding::addContractionRules(RuleTable &table) {
  // Packed layouts (micropanels, words) are not shardable.
  table.add<graph::DequantizeOp>(wholeRule);
  table.add<graph::EinsumOp>(einsumRule);
  table.add<graph::ReduceOp>(reduceRule);
  table.add<graph::EmbeddingOp>(embeddingRule);
  table.add<graph::ScatterAddOp>(scatterAddRule);
  table.add<graph::GroupedMatmulOp>(groupedMatmulRule);
  table.add<graph::GroupedOuterOp>(groupedOuterRule);
  table.add<graph::RandomOp>(randomRule);
}
