// Losses of pairs of answers: DPO, ORPO and SimPO. The documents of a sequence
// are pairs, each a chosen answer and then a rejected one, both after their
// prompt. What is differentiated are log-probabilities of whole answers; those
// of tokens come from the fused head, so that no logits are stored.
#include "models/AnswerPairs.h"
#include "models/DocumentSums.h"
#include "models/ModelBuilder.h"
#include "runtime/train/Preference.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

using recipe::PreferenceLoss;
using recipe::Task;

namespace {
/// What a loss is made of. f32 [sequences, pairs] each.
struct Pairs {
  Value chosen, rejected; ///< what is compared: log p - log q, or a mean
  Value chosenLogProb, rejectedLogProb;
  Value isPresent; ///< i1
};
} // namespace

/// log(1 - e^x) of a mean log-probability; finite also at 0.
static Value logOneMinusExp(Emitter &e, Value x) {
  Value below = e.min(x, e.splatLike(-1e-6, x));
  return e.unary<graph::LogOp>(e.add(e.neg(e.exp(below)), 1));
}

/// Of Dpo, by `x`: beta × (chosen - rejected).
static Value dpoLoss(Emitter &e, const recipe::Recipe::Preference &preference,
                     const Pairs &pairs, Value x) {
  const double smoothing = preference.labelSmoothing;
  switch (preference.loss) {
  case PreferenceLoss::Hinge:
    return e.unary<graph::ReluOp>(e.add(e.neg(x), 1));
  case PreferenceLoss::Ipo: {
    Value distance =
        e.add(e.sub(pairs.chosen, pairs.rejected), -1 / (2 * preference.beta));
    return e.mul(distance, distance);
  }
  case PreferenceLoss::Sigmoid:
    break;
  }
  Value loss = e.mul(logSigmoid(e, x), smoothing - 1);
  if (smoothing > 0)
    loss = e.sub(loss, e.mul(logSigmoid(e, e.neg(x)), smoothing));
  return loss;
}

/// The loss of each pair.
static Value lossOf(Emitter &e, const Recipe &recipe, const Pairs &pairs) {
  const recipe::Recipe::Preference &preference = recipe.preference;
  Value distance = e.sub(pairs.chosen, pairs.rejected);
  if (recipe.task == Task::Orpo) {
    Value odds = e.sub(distance, e.sub(logOneMinusExp(e, pairs.chosen),
                                       logOneMinusExp(e, pairs.rejected)));
    return e.sub(e.mul(logSigmoid(e, odds), -preference.beta), pairs.chosen);
  }
  Value x = e.mul(distance, preference.beta);
  if (recipe.task == Task::Simpo)
    return e.neg(logSigmoid(e, e.add(x, -preference.margin)));
  return dpoLoss(e, preference, pairs, x);
}

/// The columns of Preference.h, of each pair.
static SmallVector<Value> columnsOf(Emitter &e, const Pairs &pairs,
                                    double beta) {
  Value chosen = e.mul(pairs.chosen, beta),
        rejected = e.mul(pairs.rejected, beta);
  Value isRight = e.compare(chosen, graph::ComparePredicate::gt, rejected);
  static_assert(kPreferenceColumns == 6);
  return {e.convert(isRight, e.builder().getF32Type()),
          e.sub(chosen, rejected),
          chosen,
          rejected,
          pairs.chosenLogProb,
          pairs.rejectedLogProb};
}

static Pairs pairsOf(Emitter &e, const Recipe &recipe, const BatchValues &batch,
                     Value losses) {
  DocumentSums sum(e, batch.documentNumbers, 2 * recipe.preference.pairs);
  Value logProbs = e.neg(sum(losses)), compared = logProbs;
  if (batch.reference)
    compared = e.sub(compared, sum(batch.reference));
  const bool isMean =
      recipe.task != Task::Dpo || recipe.preference.loss == PreferenceLoss::Ipo;
  if (isMean) {
    Value isTarget =
        e.convert(e.compare(batch.targets, graph::ComparePredicate::ne,
                            e.splatLike(-100, batch.targets)),
                  e.builder().getF32Type());
    Value lengths = sum(isTarget);
    lengths = e.max(lengths, e.splatLike(1.0, lengths));
    compared = e.div(compared, lengths);
    logProbs = e.div(logProbs, lengths);
  }
  Value sizes = answer(e, sum(e.splatLike(1.0, losses)), 0);
  return {
      answer(e, compared, 0), answer(e, compared, 1), answer(e, logProbs, 0),
      answer(e, logProbs, 1),
      e.compare(sizes, graph::ComparePredicate::gt, e.splatLike(0.0, sizes))};
}

ModelBuilder::TaskLoss
ModelBuilder::pairLoss(Emitter &e, const BatchValues &batch, Value losses) {
  const Pairs pairs = pairsOf(e, recipe, batch, losses);
  Value loss = lossOf(e, recipe, pairs);
  loss = e.select(pairs.isPresent, loss, e.splatLike(0.0, loss));
  return {e.sumAll(loss),
          columnSums(e, pairs.isPresent,
                     columnsOf(e, pairs, recipe.preference.beta))};
}

} // namespace tessera::models
