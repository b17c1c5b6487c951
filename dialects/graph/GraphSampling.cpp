// What fits together in graph.sample, and what it costs.
#include "dialects/graph/GraphSamplingOps.h"
#include "dialects/graph/GraphVerify.h"
#include "runtime/support/TokenChoice.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using tessera::kMostChoices;
using namespace tessera::graph;
using namespace tessera::graph::detail;

#define GET_OP_CLASSES
#include "dialects/graph/GraphSamplingOps.cpp.inc"

LogicalResult SampleOp::verify() {
  RankedTensorType logits = tensorType(getLogits()),
                   allowed = tensorType(getAllowed()),
                   changed = tensorType(getChanged());
  if (failed(expectRank(*this, "logits", logits, 2)) ||
      failed(expectRank(*this, "allowed", allowed, 2)) ||
      failed(expectRank(*this, "changed", changed, 2)))
    return failure();
  int64_t batch = logits.getDimSize(0), vocab = logits.getDimSize(1);
  // Weights are at most 2^40, and their sum is a number of 64 bits with a sign.
  if (vocab < 1 || vocab > kMostChoices)
    return emitOpError("expects 1 to ")
           << kMostChoices << " logits a row, got " << vocab;
  int64_t words = allowed.getDimSize(1), entries = changed.getDimSize(1);
  if (entries < 1)
    return emitOpError("expects room for a changed logit");
  if (words < static_cast<int64_t>(llvm::divideCeil(vocab, 32)))
    return emitOpError("expects allowed to have a bit for each of ")
           << vocab << " tokens, got " << words << " words of 32 bits";
  struct {
    const char *name;
    Value value;
    SmallVector<int64_t> shape;
  } const expected[] = {{"allowed", getAllowed(), {batch, words}},
                        {"changed", getChanged(), {batch, entries}},
                        {"changes", getChanges(), {batch, entries, 4}},
                        {"options", getOptions(), {batch, 2}},
                        {"limits", getLimits(), {batch, 4}}};
  for (const auto &each : expected)
    if (failed(
            expectShape(*this, each.name, tensorType(each.value), each.shape)))
      return failure();
  return success();
}

// The likeliest token alone: a comparison a logit. What more is done is asked
// for by data.
int64_t SampleOp::getFlops() { return countElements(getLogits()); }
int64_t SampleOp::getBytes() {
  return countBytes(getOperands()) + countBytes(getResult());
}

// logits [batch, vocab] and sampling parameters → token [batch]. Sampling reads
// whole rows.
OpRule SampleOp::getShardingRule() {
  OpRule rule;
  unsigned batch =
      rule.loopDim(tensorType(getLogits()).getDimSize(0), LoopKind::parallel);
  for (Value operand : (*this)->getOperands()) {
    OpRule::Dims dims{{batch}};
    for (int64_t size : tensorType(operand).getShape().drop_front())
      dims.push_back({rule.loopDim(size, LoopKind::whole)});
    rule.operands.push_back(dims);
  }
  rule.results = {{{batch}}};
  return rule;
}
