// What the losses of all tasks but next tokens have in common: the documents
// and inputs that they need, and the metrics that they report.
#include "models/ModelBuilder.h"
#include "runtime/train/Distill.h"
#include "runtime/train/Kto.h"
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
  if (isKto())
    return true;
  return recipe.task == Task::Dpo &&
         recipe.preference.reference == recipe::Reference::Stored;
}

int64_t ModelBuilder::documentsPerTerm() const {
  if (hasPairs())
    return 2;
  if (isPolicy())
    return recipe.policy.aggregate != PolicyAggregate::Token ? 1 : 0;
  return isKto() ? 1 : 0;
}

bool ModelBuilder::takesDocumentNumbers() const {
  return documentsPerTerm() > 0 ||
         (isPolicy() && recipe.policy.ratio == PolicyRatio::Sequence);
}

ModelBuilder::TaskLoss ModelBuilder::taskLoss(Scope &scope, Emitter &e,
                                              const BatchValues &batch, Value x,
                                              Value advantageSums) {
  if (isOfTokens())
    return {headLoss(scope, x, batch.targets, /*isSum=*/true), {}};
  if (isDistill())
    return distillLoss(scope, x, batch);
  if (isReward())
    return rewardLoss(
        e, batch,
        e.reshape(scores(scope, x), tensorType(batch.tokens).getShape()));
  Value losses = headLoss(scope, x, batch.targets, /*isSum=*/false);
  if (isKto())
    return ktoLoss(e, batch, losses);
  return isPolicy() ? policyLoss(scope, e, batch, losses, x, advantageSums)
                    : pairLoss(e, batch, losses);
}

ModelBuilder::TaskMetrics ModelBuilder::taskMetrics() const {
  if (isKto())
    return {kKtoOutput, int64_t(kKtoColumns)};
  if (isReward())
    return {kPreferenceOutput, int64_t(kRewardColumns)};
  if (isDistill())
    return {kDistillOutput,
            int64_t(kDistillColumns) - (recipe.distill.weight < 1 ? 0 : 1)};
  if (!isPolicy())
    return {kPreferenceOutput, int64_t(kPreferenceColumns)};
  return {kPolicyOutput, int64_t(kPolicyColumns) - (hasReference() ? 0 : 1) +
                             (isGae() ? int64_t(kValueColumns) : 0)};
}

Value ModelBuilder::columnSums(Emitter &e, ArrayRef<Column> columns) {
  SmallVector<Value> all;
  auto add = [&](Value values, Value isPresent) {
    Value present = e.select(isPresent, values, e.splatLike(0.0, values));
    all.push_back(e.reshape(e.sumAll(present), {1, 1}));
  };
  for (const Column &each : columns)
    add(e.splatLike(1.0, each.values), each.isPresent);
  for (const Column &each : columns)
    add(each.values, each.isPresent);
  return e.reshape(e.concat(all, 0), {2, static_cast<int64_t>(columns.size())});
}

Value ModelBuilder::columnSums(Emitter &e, Value isPresent,
                               ArrayRef<Value> columns) {
  SmallVector<Column> all;
  for (Value each : columns)
    all.push_back({each, isPresent});
  return columnSums(e, all);
}

/// Of the sums of all microbatches.
Value ModelBuilder::columnMeans(Emitter &e, Value sums) {
  const int64_t columns = taskMetrics().columns;
  auto row = [&](int64_t number) {
    return e.reshape(e.slice(sums, {number, 0}, {1, columns}), {columns});
  };
  Value counts = row(0);
  return e.div(row(1), e.max(counts, e.splatLike(1.0, counts)));
}

/// The column of the explained variance is the mean square of the returns.
static Value withExplainedVariance(Emitter &e, Value means) {
  const int64_t first =
      tensorType(means).getDimSize(0) - int64_t(kValueColumns);
  auto column = [&](ValueColumn which) {
    return e.slice(means, {first + int64_t(which)}, {1});
  };
  Value returns = column(ValueColumn::returns);
  Value variance =
      e.sub(column(ValueColumn::explained), e.mul(returns, returns));
  // Returns that are all equal, but for rounding, have nothing to explain.
  Value least = e.mul(column(ValueColumn::explained), 1e-6);
  Value isAny = e.compare(variance, graph::ComparePredicate::gt, least);
  Value ratio = e.div(column(ValueColumn::error),
                      e.select(isAny, variance, e.splatLike(1.0, variance)));
  Value explained =
      e.select(isAny, e.add(e.neg(ratio), 1), e.splatLike(0.0, variance));
  static_assert(size_t(ValueColumn::explained) + 1 == kValueColumns);
  return e.concat(
      {e.slice(means, {0}, {first + int64_t(ValueColumn::explained)}),
       explained},
      0);
}

Value ModelBuilder::taskTable(Emitter &e, Value sums) {
  Value means = columnMeans(e, sums);
  return isGae() ? withExplainedVariance(e, means) : means;
}

} // namespace tessera::models
