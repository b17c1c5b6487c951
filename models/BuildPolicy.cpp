// The clipped policy gradient (Schulman et al. 2017, arXiv 1707.06347) of
// answers that the model sampled, as GRPO, DAPO, Dr. GRPO, GSPO and PPO use it.
// The documents of a sequence are prompts with an answer each. Advantages are
// given, or estimated (AdvantageEstimate.h).
#include "models/AdvantageEstimate.h"
#include "models/DocumentSums.h"
#include "models/KlDivergence.h"
#include "models/ModelBuilder.h"
#include "runtime/train/Policy.h"

#include <cmath>
#include <optional>

using namespace mlir;
using tessera::graph::ComparePredicate;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

using recipe::KlEstimator;
using recipe::PolicyAggregate;
using recipe::PolicyRatio;
using Policy = recipe::Recipe::Policy;

namespace {
/// Of each token, f32 [sequences, tokens], 0 where nothing is learned.
struct Tokens {
  Value isTarget; ///< i1
  Value ones;     ///< 1 where something is learned
  Value logProb, advantage;
  Value logRatio;   ///< to the policy that sampled it
  Value referenced; ///< log p - log q; null without a reference model
};
} // namespace

/// What is outside of the answers counts for nothing, whatever the host wrote.
static Tokens tokensOf(Emitter &e, const BatchValues &batch, Value losses,
                       Value advantages) {
  Value isTarget = e.compare(batch.targets, ComparePredicate::ne,
                             e.splatLike(-100, batch.targets));
  auto learned = [&](Value x) {
    return e.select(isTarget, x, e.splatLike(0.0, x));
  };
  Value logProb = e.neg(losses);
  Tokens tokens{isTarget,
                learned(e.splatLike(1.0, losses)),
                logProb,
                learned(advantages),
                e.sub(logProb, learned(batch.behavior)),
                {}};
  if (batch.reference)
    tokens.referenced = e.sub(logProb, learned(batch.reference));
  return tokens;
}

namespace {
/// Sums over documents, where the loss has some.
class Answers {
public:
  Answers(Emitter &e, const Policy &policy, const BatchValues &batch,
          const Tokens &tokens)
      : e(e) {
    if (!batch.documentNumbers)
      return;
    sum.emplace(e, batch.documentNumbers, policy.documents);
    lengths = (*sum)(tokens.ones);
    lengths = e.max(lengths, e.splatLike(1.0, lengths));
  }
  /// [B, T] → [B, documents]
  Value means(Value x) { return e.div((*sum)(x), lengths); }
  Value spread(Value x) { return sum->spread(x); }

private:
  Emitter &e;
  std::optional<DocumentSums> sum;
  Value lengths; ///< f32 [B, documents], at least 1
};
} // namespace

namespace {
/// -min(r A, clip(r) A) of each token.
struct Clipped {
  Value loss, ratio;
  Value isClipped; ///< i1: the gradient is 0
};
} // namespace

/// Ratios are compared and clipped as logarithms, so that a clipped one, which
/// may be huge, has no exponential that the gradient would multiply with 0.
static Clipped clipped(Emitter &e, const Policy &policy, Value logRatio,
                       Value advantage) {
  // Of an advantage of 0, too, a huge ratio is bounded: 0 times infinity.
  Value zero = e.splatLike(0.0, advantage);
  Value low = e.splatLike(std::log1p(-policy.clipLow), logRatio),
        high = e.splatLike(std::log1p(policy.clipHigh), logRatio);
  auto both = [&](Value x, Value y) { return e.binary<graph::AndOp>(x, y); };
  Value isHigh = both(e.compare(logRatio, ComparePredicate::gt, high),
                      e.compare(advantage, ComparePredicate::ge, zero));
  Value isLow = both(e.compare(logRatio, ComparePredicate::lt, low),
                     e.compare(advantage, ComparePredicate::lt, zero));
  Value bounded = e.select(isHigh, high, e.select(isLow, low, logRatio));
  return {e.neg(e.mul(e.exp(bounded), advantage)), e.exp(logRatio),
          both(e.binary<graph::OrOp>(isHigh, isLow),
               e.compare(advantage, ComparePredicate::ne, zero))};
}

/// Sums of the losses of tokens as `policy.aggregate` has them; the step
/// divides by the number of its tokens or documents.
static Value aggregate(Emitter &e, const Policy &policy, Answers &answers,
                       Value loss) {
  switch (policy.aggregate) {
  case PolicyAggregate::Document:
    return e.sumAll(answers.means(loss));
  case PolicyAggregate::Constant:
    return e.mul(e.sumAll(loss), 1.0 / static_cast<double>(policy.length));
  case PolicyAggregate::Token:
    break;
  }
  return e.sumAll(loss);
}

ModelBuilder::TaskLoss ModelBuilder::policyLoss(Scope &scope, Emitter &e,
                                                const BatchValues &batch,
                                                Value losses, Value x,
                                                Value advantageSums) {
  const Policy &policy = recipe.policy;
  std::optional<AdvantageEstimate> estimate;
  if (isGae())
    estimate = estimateAdvantages(e, policy, batch);
  Value advantages = !estimate ? batch.advantages
                     : advantageSums
                         ? whitened(e, estimate->advantages, advantageSums)
                         : estimate->advantages;
  const Tokens tokens = tokensOf(e, batch, losses, advantages);
  Answers answers(e, policy, batch, tokens);
  Value logRatio = tokens.logRatio;
  if (policy.ratio == PolicyRatio::Sequence)
    logRatio = e.mul(answers.spread(answers.means(logRatio)), tokens.ones);
  const Clipped each = clipped(e, policy, logRatio, tokens.advantage);
  Value loss = each.loss;
  // Estimated advantages are of rewards that have the distance in them.
  if (tokens.referenced && !estimate)
    loss =
        e.add(loss, e.mul(divergence(e, policy.kl.estimator, tokens.referenced),
                          policy.kl.beta));
  static_assert(kPolicyColumns == 7);
  SmallVector<Value> columns{
      e.convert(each.isClipped, e.builder().getF32Type()), each.ratio,
      // Sampled from the other side than the KL that is part of the loss.
      divergence(e, KlEstimator::K3, e.neg(tokens.logRatio)), tokens.advantage,
      tokens.logProb,
      e.convert(e.compare(tokens.logRatio, ComparePredicate::ne,
                          e.splatLike(0.0, tokens.logRatio)),
                e.builder().getF32Type())};
  if (tokens.referenced)
    columns.push_back(divergence(e, KlEstimator::K3, tokens.referenced));
  Value values;
  if (estimate) {
    values = tokenValues(scope, x);
    const ValueLoss own = valueLoss(e, policy, *estimate, values);
    columns.push_back(loss);
    llvm::append_range(columns, own.columns);
    loss = e.add(loss, e.mul(own.loss, policy.value.weight));
  }
  return {aggregate(e, policy, answers, loss),
          columnSums(e, tokens.isTarget, columns), values};
}

} // namespace tessera::models
