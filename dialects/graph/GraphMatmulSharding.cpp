// Sharding rules of contractions, reductions, gather and scatter, and random
// numbers.
#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphOps.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

OpRule EinsumOp::getShardingRule() {
  OpRule rule;
  Einsum equation = *Einsum::parse(getEquation());
  llvm::DenseMap<char, unsigned> known;
  auto dimsOf = [&](StringRef term, Value value) {
    OpRule::Dims dims;
    for (auto [name, size] : llvm::zip(term, tensorType(value).getShape())) {
      auto [loopDim, isNew] = known.try_emplace(name, 0u);
      if (isNew)
        loopDim->second = rule.loopDim(
            size, StringRef(equation.out).contains(name) ? LoopKind::parallel
                                                         : LoopKind::sum);
      dims.push_back({loopDim->second});
    }
    return dims;
  };
  rule.operands = {dimsOf(equation.lhs, getLhs()),
                   dimsOf(equation.rhs, getRhs())};
  rule.results = {dimsOf(equation.out, getResult())};
  // A matmul rounds once; partial values in a narrow type would round each.
  if (getResult().getType().getElementType().getIntOrFloatBitWidth() >= 32)
    rule.linear = {{0}, {1}};
  return rule;
}

OpRule ReduceOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims in = rule.loopsOf(getInput()), out;
  bool sum = getKind() == ReduceKind::sum;
  for (auto [dim, loops] : llvm::enumerate(in))
    if (llvm::is_contained(getDims(), static_cast<int64_t>(dim)))
      rule.loops[loops[0]].kind = sum ? LoopKind::sum : LoopKind::whole;
    else
      out.push_back(loops);
  rule.operands = {in}, rule.results = {out};
  if (sum)
    rule.linear = {{0}};
  return rule;
}

// Rows of other devices count as zeros: a sharded table gives partial values.
OpRule EmbeddingOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims table = rule.loopsOf(getTable()), ids = rule.loopsOf(getIds()),
               out = ids;
  rule.loops[table[0][0]].kind = LoopKind::sum;
  out.push_back(table[1]);
  rule.operands = {table, ids}, rule.results = {out}, rule.linear = {{0}};
  return rule;
}

// Sharded updates add partial values, so the base must be partial too. With a
// sharded base, each device adds the updates of its rows.
OpRule ScatterAddOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims base = rule.loopsOf(getBase()),
               ids = rule.loopsOf(getIds(), LoopKind::sum), updates = ids;
  updates.push_back(base[1]);
  rule.operands = {base, ids, updates}, rule.results = {base};
  rule.linear = {{0, 2}};
  rule.addend = 0;
  return rule;
}

// A random number follows from its index in the whole tensor: entries of the
// first dimension are counted from `offset` on.
OpRule RandomOp::getShardingRule() {
  OpRule rule = wholeRule(*this);
  if (!rule.results[0].empty())
    rule.loops[rule.results[0][0][0]].kind = LoopKind::parallel;
  return rule;
}
