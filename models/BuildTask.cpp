// What the losses of all tasks but next tokens have in common: the documents
// and inputs that they need, and the metrics that they report.
#include "models/ModelBuilder.h"
#include "runtime/train/Policy.h"
#include "runtime/train/Preference.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

using recipe::PolicyAggregate;
using recipe::PolicyRatio;
using recipe::Task;

bool ModelBuilder::hasReference() const {
  if (isPolicy())
    return recipe.policy.kl.beta > 0;
  return recipe.task == Task::Dpo &&
         recipe.preference.reference == recipe::Reference::Stored;
}

int64_t ModelBuilder::documentsPerTerm() const {
  if (hasPairs())
    return 2;
  return isPolicy() && recipe.policy.aggregate != PolicyAggregate::Token ? 1
                                                                         : 0;
}

bool ModelBuilder::takesDocumentNumbers() const {
  return documentsPerTerm() > 0 ||
         (isPolicy() && recipe.policy.ratio == PolicyRatio::Sequence);
}

ModelBuilder::TaskLoss
ModelBuilder::taskLoss(Emitter &e, const BatchValues &batch, Value losses) {
  losses = e.reshape(losses, tensorType(batch.tokens).getShape());
  return isPolicy() ? policyLoss(e, batch, losses) : pairLoss(e, batch, losses);
}

ModelBuilder::TaskMetrics ModelBuilder::taskMetrics() const {
  if (!isPolicy())
    return {kPreferenceOutput, int64_t(kPreferenceColumns)};
  return {kPolicyOutput, int64_t(kPolicyColumns) - (hasReference() ? 0 : 1)};
}

Value ModelBuilder::columnSums(Emitter &e, Value isPresent,
                               ArrayRef<Value> columns) {
  SmallVector<Value> all{e.splatLike(1.0, columns.front())}, sums;
  llvm::append_range(all, columns);
  for (Value each : all)
    sums.push_back(e.reshape(
        e.sumAll(e.select(isPresent, each, e.splatLike(0.0, each))), {1}));
  return e.concat(sums, 0);
}

/// Means, of the sums of all microbatches.
Value ModelBuilder::columnMeans(Emitter &e, Value sums) {
  const int64_t columns = taskMetrics().columns;
  Value count = e.reshape(e.slice(sums, {0}, {1}), {});
  count = e.max(count, e.splatLike(1.0, count));
  Value values = e.slice(sums, {1}, {columns});
  return e.div(values, e.broadcastScalar(count, {columns}));
}

} // namespace tessera::models
