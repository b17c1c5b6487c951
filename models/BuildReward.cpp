// Models that score answers: the head, and the Bradley-Terry loss of pairs
// (Ouyang et al. 2022, arXiv 2203.02155, equation 1), as TRL's RewardTrainer
// has it. The score of an answer is that of its document's last token.
#include "models/AnswerPairs.h"
#include "models/DocumentSums.h"
#include "models/ModelBuilder.h"
#include "runtime/train/Preference.h"
#include "runtime/weights/AdapterNames.h"

using namespace mlir;
using tessera::graph::ComparePredicate;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

Value ModelBuilder::scores(Scope &scope, Value x) {
  Emitter e = scope.at("score");
  const bool isFlat = tensorType(x).getRank() == 2;
  return e.einsum(isFlat ? "bk,nk->bn" : "btk,nk->btn", x,
                  scope.parameter(kScoreHead.data()));
}

/// Of the last of `lengths` tokens: x [batch, tokens, hidden] → [batch, 1].
Value ModelBuilder::lastScores(Scope &scope, Value x, Value lengths) {
  Emitter e = scope.at("score");
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  // Row b's tokens are rows b × tokens and on. Empty rows take their first.
  Value first = e.mul(e.iota(tensorType(lengths), 0), double(shape[1]));
  Value last = e.max(e.add(lengths, -1), e.splatLike(0.0, lengths));
  Value rows = e.reshape(x, {shape[0] * shape[1], shape[2]});
  return scores(scope, e.embedding(rows, e.add(first, last)));
}

/// i1 [B, T]. Positions are counted in f32, which is exact up to 2^24.
static Value isLast(Emitter &e, const BatchValues &batch, DocumentSums &sum) {
  Value starts = batch.documentStarts;
  Value positions = e.convert(e.sub(e.iota(tensorType(starts), 1), starts),
                              e.builder().getF32Type());
  Value sizes = sum.spread(sum(e.splatLike(1.0, positions)));
  return e.compare(e.add(positions, 1), ComparePredicate::eq, sizes);
}

ModelBuilder::TaskLoss
ModelBuilder::rewardLoss(Emitter &e, const BatchValues &batch, Value scores) {
  DocumentSums sum(e, batch.documentNumbers, 2 * recipe.preference.pairs);
  Value zero = e.splatLike(0.0, scores);
  Value rewards = sum(e.select(isLast(e, batch, sum), scores, zero));
  Value chosen = answer(e, rewards, 0), rejected = answer(e, rewards, 1);
  Value margin = e.sub(chosen, rejected);
  Value loss = e.neg(logSigmoid(e, margin));
  if (const double center = recipe.preference.center; center > 0) {
    Value both = e.add(chosen, rejected);
    loss = e.add(loss, e.mul(e.mul(both, both), center));
  }
  Value sizes = answer(e, sum(e.splatLike(1.0, scores)), 0);
  Value none = e.splatLike(0.0, sizes);
  Value isPresent = e.compare(sizes, ComparePredicate::gt, none);
  Value isRight = e.convert(e.compare(margin, ComparePredicate::gt, none),
                            e.builder().getF32Type());
  static_assert(kRewardColumns == 4);
  return {e.sumAll(e.select(isPresent, loss, none)),
          columnSums(e, isPresent, {isRight, margin, chosen, rejected})};
}

} // namespace tessera::models
