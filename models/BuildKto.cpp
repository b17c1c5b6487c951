// The loss of Kahneman-Tversky optimization, of answers with a label. Documents
// without one are prompts with the answer to another: their log p - log q says
// how far the model is from the reference model on the whole.
#include "models/DocumentSums.h"
#include "models/ModelBuilder.h"
#include "runtime/train/Kto.h"

using namespace mlir;
using tessera::graph::ComparePredicate;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

namespace {
/// f32 [sequences, documents], and i1.
struct Labelled {
  Value logProb;
  Value distance; ///< log p - log q
  Value isDesirable, isUndesirable, isMismatched;
};
} // namespace

static Labelled labelledOf(Emitter &e, const BatchValues &batch, Value losses,
                           int64_t documents) {
  DocumentSums sum(e, batch.documentNumbers, documents);
  Value logProb = e.neg(sum(losses));
  Value labels = sum(e.convert(batch.documentLabels, e.builder().getF32Type()));
  Value sizes = sum(e.splatLike(1.0, losses)), zero = e.splatLike(0.0, labels);
  auto is = [&](Value x, ComparePredicate predicate) {
    return e.compare(x, predicate, zero);
  };
  return {logProb, e.sub(logProb, sum(batch.reference)),
          is(labels, ComparePredicate::gt), is(labels, ComparePredicate::lt),
          e.binary<graph::AndOp>(is(labels, ComparePredicate::eq),
                                 is(sizes, ComparePredicate::gt))};
}

/// max(0, the mean distance of the microbatch's mismatched documents), which is
/// not differentiated: f32 [].
static Value baseline(Emitter &e, const Labelled &documents) {
  auto sum = [&](Value x) {
    return e.sumAll(e.select(documents.isMismatched, x, e.splatLike(0.0, x)));
  };
  Value count = sum(e.splatLike(1.0, documents.distance));
  Value mean =
      e.div(sum(documents.distance), e.max(count, e.splatLike(1.0, count)));
  Value bounded = e.max(mean, e.splatLike(0.0, mean));
  bounded.getDefiningOp()->setAttr(graph::kStopGradientAttr,
                                   e.builder().getUnitAttr());
  return bounded;
}

ModelBuilder::TaskLoss
ModelBuilder::ktoLoss(Emitter &e, const BatchValues &batch, Value losses) {
  const recipe::Recipe::Kto &kto = recipe.kto;
  const Labelled each = labelledOf(e, batch, losses, kto.documents);
  ArrayRef<int64_t> shape = tensorType(each.distance).getShape();
  Value zero = e.splatLike(0.0, each.distance);
  // 1 - σ(x) is σ(-x).
  Value better =
      e.mul(e.sub(each.distance, e.broadcastScalar(baseline(e, each), shape)),
            kto.beta);
  auto loss = [&](Value x, double weight) {
    return e.mul(e.unary<graph::SigmoidOp>(x), weight);
  };
  Value all = e.select(
      each.isDesirable, loss(e.neg(better), kto.desirableWeight),
      e.select(each.isUndesirable, loss(better, kto.undesirableWeight), zero));
  Value reward = e.mul(each.distance, kto.beta);
  static_assert(kKtoColumns == 5);
  return {e.sumAll(all), columnSums(e, {{reward, each.isDesirable},
                                        {reward, each.isUndesirable},
                                        {each.logProb, each.isDesirable},
                                        {each.logProb, each.isUndesirable},
                                        {each.distance, each.isMismatched}})};
}

} // namespace tessera::models
