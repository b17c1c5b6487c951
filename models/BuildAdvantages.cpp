#include "dialects/graph/GraphScanOps.h"
#include "models/AdvantageEstimate.h"
#include "models/KlDivergence.h"
#include "runtime/train/Policy.h"
#include "runtime/weights/AdapterNames.h"

using namespace mlir;
using tessera::graph::ComparePredicate;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

using Policy = recipe::Recipe::Policy;

Value ModelBuilder::tokenValues(Scope &scope, Value x) {
  Emitter e = scope.at(StringRef(kValueHead));
  auto parameter = [&](const char *part) {
    return scope.parameter(Twine(StringRef(kValueHead)) + part);
  };
  Value y = e.einsum("btk,nk->btn", x, parameter(".weight"));
  y = e.add(y, e.broadcastLast(parameter(".bias"), tensorType(y).getShape()));
  return e.reshape(y, tensorType(y).getShape().drop_back());
}

/// Of each token what the next of its row has, 0 of the last.
static Value ofNext(Emitter &e, Value x) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  return e.pad(e.slice(x, {0, 1}, {shape[0], shape[1] - 1}), {0, 0}, shape);
}

/// The reward of an answer is at its last token. As in TRL, the distance to
/// the reference model is that of the policy that sampled.
static Value rewardsOf(Emitter &e, const Policy &policy,
                       const BatchValues &batch) {
  if (!batch.reference)
    return batch.rewards;
  Value distance = divergence(e, policy.kl.estimator,
                              e.sub(batch.behavior, batch.reference));
  return e.sub(batch.rewards, e.mul(distance, policy.kl.beta));
}

AdvantageEstimate estimateAdvantages(Emitter &e, const Policy &policy,
                                     const BatchValues &batch) {
  Value starts = batch.documentStarts;
  Value isTarget = e.compare(batch.targets, ComparePredicate::ne,
                             e.splatLike(-100, batch.targets));
  // What the host wrote of other tokens counts for nothing.
  auto learned = [&](Value x) {
    return e.select(isTarget, x, e.splatLike(0.0, x));
  };
  Value old = learned(batch.values);
  // After the last token of an answer nothing follows.
  Value isSame = e.compare(ofNext(e, starts), ComparePredicate::eq, starts);
  Value next = e.select(isSame, ofNext(e, old), e.splatLike(0.0, old));
  Value residual = learned(e.sub(
      e.add(rewardsOf(e, policy, batch), e.mul(next, policy.gae.gamma)), old));
  Value advantages = learned(e.builder().create<graph::DiscountedSumOp>(
      e.location(), residual, starts,
      e.builder().getF64FloatAttr(policy.gae.gamma * policy.gae.lambda)));
  return {isTarget, advantages, old, e.add(advantages, old)};
}

/// In f64: the variance is a difference of sums over all microbatches and
/// devices, and advantages may be far from 0.
RankedTensorType ModelBuilder::advantageSumsType() {
  return tensor({3}, b.getF64Type());
}

Value ModelBuilder::advantageSums(Emitter &e, const BatchValues &batch) {
  const AdvantageEstimate own = estimateAdvantages(e, recipe.policy, batch);
  Value x = e.convert(own.advantages, e.builder().getF64Type());
  Value count = e.convert(e.convert(own.isTarget, e.builder().getF32Type()),
                          e.builder().getF64Type());
  SmallVector<Value> sums;
  for (Value each : {count, x, e.mul(x, x)})
    sums.push_back(e.reshape(e.sumAll(each), {1}));
  return e.concat(sums, 0);
}

/// The variance is that of a sample, and 1e-8 is added to it, as in TRL.
/// Without tokens (an evaluation does not count them) all stay as they are.
Value whitened(Emitter &e, Value advantages, Value sums) {
  auto sum = [&](int64_t which) {
    return e.reshape(e.slice(sums, {which}, {1}), {});
  };
  Value count = sum(0), one = e.splatLike(1.0, count);
  Value mean = e.div(sum(1), e.max(count, one));
  Value squares = e.sub(sum(2), e.mul(sum(1), mean));
  Value variance = e.div(e.max(squares, e.splatLike(0.0, squares)),
                         e.max(e.add(count, -1), one));
  Value isAny = e.compare(count, ComparePredicate::gt, e.splatLike(0.0, count));
  Type element = tensorType(advantages).getElementType();
  Value scale =
      e.unary<graph::RsqrtOp>(e.add(e.convert(variance, element), 1e-8));
  scale = e.select(isAny, scale, e.splatLike(1.0, scale));
  ArrayRef<int64_t> shape = tensorType(advantages).getShape();
  Value centered =
      e.sub(advantages, e.broadcastScalar(e.convert(mean, element), shape));
  return e.mul(centered, e.broadcastScalar(scale, shape));
}

/// The larger of two squared errors / 2: of the value, and of the value at the
/// bound that it moved beyond, which has no gradient.
ValueLoss valueLoss(Emitter &e, const Policy &policy,
                    const AdvantageEstimate &estimate, Value values) {
  auto squared = [&](Value x) { return e.mul(x, x); };
  Value error = squared(e.sub(values, estimate.returns));
  Value largest = error, clipped = e.splatLike(0.0, error);
  if (const double clip = policy.value.clip; clip > 0) {
    Value high = e.add(estimate.old, clip), low = e.add(estimate.old, -clip);
    Value bound =
        e.select(e.compare(values, ComparePredicate::gt, high), high, low);
    Value isBeyond =
        e.binary<graph::OrOp>(e.compare(values, ComparePredicate::gt, high),
                              e.compare(values, ComparePredicate::lt, low));
    Value bounded = squared(e.sub(bound, estimate.returns));
    Value isClipped = e.binary<graph::AndOp>(
        isBeyond, e.compare(bounded, ComparePredicate::gt, error));
    largest = e.select(isClipped, bounded, error);
    clipped = e.convert(isClipped, e.builder().getF32Type());
  }
  // Sums are over all tokens; only learned ones are in them.
  Value loss = e.select(estimate.isTarget, e.mul(largest, 0.5),
                        e.splatLike(0.0, largest));
  static_assert(kValueColumns == 7);
  return {loss,
          {loss, clipped, values, error, estimate.returns,
           squared(estimate.returns)}};
}

} // namespace tessera::models
