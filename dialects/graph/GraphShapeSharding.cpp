// Sharding rules of constants and re-indexing.
#include "dialects/graph/GraphOps.h"

using namespace mlir;
using namespace tessera::graph;

// A splat can be made anywhere; other constants would have to be sliced.
OpRule ConstantOp::getShardingRule() {
  OpRule rule;
  bool splat = isa<SplatElementsAttr>(getValue());
  rule.results = {
      rule.loopsOf(getResult(), splat ? LoopKind::parallel : LoopKind::whole)};
  return rule;
}

// Along a sharded dimension: LocalPositions.cpp.
OpRule IotaOp::getShardingRule() {
  OpRule rule;
  rule.results = {rule.loopsOf(getResult())};
  return rule;
}

// Whether each row of the result is of the same row of all operands, so that
// their order does not matter.
static bool keepsRows(const OpRule &rule) {
  const OpRule::Dims &out = rule.results[0];
  return !out.empty() && out[0].size() == 1 &&
         rule.loops[out[0][0]].kind == LoopKind::parallel &&
         llvm::all_of(rule.operands, [&](const OpRule::Dims &in) {
           return !in.empty() && in[0] == out[0];
         });
}

// Both shapes are products of common factors as long as their sizes divide one
// another; where they do not, a range of dimensions is not shardable.
OpRule ReshapeOp::getShardingRule() {
  OpRule rule;
  ArrayRef<int64_t> from = getInput().getType().getShape(),
                    to = getResult().getType().getShape();
  OpRule::Dims in(from.size()), out(to.size());
  auto whole = [&](ArrayRef<int64_t> shape, size_t i, OpRule::Dims &dims) {
    for (; i < shape.size(); ++i)
      dims[i].push_back(rule.loopDim(shape[i], LoopKind::whole));
  };
  if (getInput().getType().getNumElements() == 0) {
    whole(from, 0, in), whole(to, 0, out);
    rule.operands = {in}, rule.results = {out};
    return rule;
  }
  size_t i = 0, o = 0;
  int64_t left = from.empty() ? 1 : from[0], right = to.empty() ? 1 : to[0];
  // From the slowest-varying on: the remaining size of a dimension on each
  // side.
  while (i < from.size() && o < to.size()) {
    int64_t common = std::min(left, right);
    if (std::max(left, right) % common) {
      // 6 × 4 against 4 × 6: a shard of one side is not a shard of the other.
      OpRule::Dim rest;
      in[i].push_back(rule.loopDim(left, LoopKind::whole));
      out[o].push_back(rule.loopDim(right, LoopKind::whole));
      whole(from, i + 1, in), whole(to, o + 1, out);
      rule.operands = {in}, rule.results = {out};
      return rule;
    }
    if (common > 1) {
      unsigned loopDim = rule.loopDim(common);
      in[i].push_back(loopDim);
      out[o].push_back(loopDim);
    }
    left /= common, right /= common;
    if (left == 1 && ++i < from.size())
      left = from[i];
    if (right == 1 && ++o < to.size())
      right = to[o];
  }
  rule.operands = {in}, rule.results = {out}, rule.linear = {{0}};
  rule.isPointwise = keepsRows(rule);
  return rule;
}

OpRule TransposeOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims in = rule.loopsOf(getInput()), out;
  for (int64_t dim : getPermutation())
    out.push_back(in[dim]);
  rule.operands = {in}, rule.results = {out}, rule.linear = {{0}};
  return rule;
}

OpRule BroadcastOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims out = rule.loopsOf(getResult()), in;
  for (int64_t dim : getDims())
    in.push_back(out[dim]);
  rule.operands = {in}, rule.results = {out}, rule.linear = {{0}};
  return rule;
}

// A slice that is one of n equal parts drops the factor n; any other slice of a
// dimension needs all of it.
OpRule SliceOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims in, out;
  for (auto [from, to, start] :
       llvm::zip(getInput().getType().getShape(),
                 getResult().getType().getShape(), getStart())) {
    if (from == to) {
      in.push_back({rule.loopDim(to)});
      out.push_back(in.back());
    } else if (to > 0 && from % to == 0 && start % to == 0) {
      out.push_back({rule.loopDim(to)});
      in.push_back({rule.loopDim(from / to, LoopKind::whole), out.back()[0]});
    } else {
      in.push_back({rule.loopDim(from, LoopKind::whole)});
      out.push_back({rule.loopDim(to, LoopKind::whole)});
    }
  }
  rule.operands = {in}, rule.results = {out}, rule.linear = {{0}};
  rule.isPointwise = keepsRows(rule);
  return rule;
}

// The number of equal inputs is a factor of the result; unequal inputs are not
// shardable along the dimension.
OpRule ConcatOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims out = rule.loopsOf(getResult());
  int64_t dim = getDim(), count = getInputs().size();
  auto sizeOf = [&](Value input) { return tensorType(input).getDimSize(dim); };
  int64_t each = sizeOf(getInputs().front());
  bool equal = llvm::all_of(getInputs(),
                            [&](Value input) { return sizeOf(input) == each; });
  OpRule::Dims in = out;
  if (equal)
    in[dim] = {rule.loopDim(each)};
  for (Value input : getInputs()) {
    if (!equal)
      in[dim] = {rule.loopDim(sizeOf(input), LoopKind::whole)};
    rule.operands.push_back(in);
  }
  unsigned joined = out[dim][0];
  rule.loops[joined] = {equal ? count : count * each, LoopKind::whole};
  if (equal)
    out[dim].push_back(in[dim][0]);
  else
    rule.loops[joined].size = getResult().getType().getDimSize(dim);
  rule.results = {out};
  rule.linear = {llvm::to_vector<2>(llvm::seq<unsigned>(0, count))};
  rule.isPointwise = keepsRows(rule);
  return rule;
}

OpRule PadOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims in, out;
  for (auto [from, to] : llvm::zip(getInput().getType().getShape(),
                                   getResult().getType().getShape())) {
    bool same = from == to;
    LoopKind kind = same ? LoopKind::parallel : LoopKind::whole;
    out.push_back({rule.loopDim(to, kind)});
    in.push_back(same ? out.back() : OpRule::Dim{rule.loopDim(from, kind)});
  }
  rule.operands = {in}, rule.results = {out}, rule.linear = {{0}};
  rule.isPointwise = keepsRows(rule);
  return rule;
}

OpRule DynamicSliceOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims out = rule.loopsOf(getResult()), in;
  in.push_back(
      {rule.loopDim(getInput().getType().getDimSize(0), LoopKind::whole)});
  llvm::append_range(in, out);
  rule.operands = {in, {}}, rule.results = {out}, rule.linear = {{0}};
  return rule;
}

OpRule DynamicUpdateOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims update = rule.loopsOf(getUpdate()), in;
  in.push_back(
      {rule.loopDim(getInput().getType().getDimSize(0), LoopKind::whole)});
  llvm::append_range(in, update);
  rule.operands = {in, update, {}}, rule.results = {in};
  rule.linear = {{0, 1}};
  return rule;
}
