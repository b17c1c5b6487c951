// @loss: what it takes of a batch, and the loss of it.
#include "models/ModelBuilder.h"
#include "models/moe/Routing.h"
#include "runtime/train/Policy.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

/// The arguments of @loss after the parameters.
std::vector<Port> ModelBuilder::batchPorts() {
  auto ids =
      tensor({recipe.batch.micro, recipe.batch.sequence}, b.getI32Type());
  std::vector<Port> ports;
  for (const char *each : {"tokens", "targets"})
    ports.push_back(port(graph::kInputAttr, each, ids));
  for (const char *each : {"seed", "step", "offset"})
    ports.push_back(port(graph::kInputAttr, each, scalar(b.getI64Type())));
  if (separates())
    ports.push_back(port(graph::kInputAttr, "document_starts", ids));
  if (takesDocumentNumbers())
    ports.push_back(port(graph::kInputAttr, "document_numbers", ids));
  auto addReal = [&](const char *name, RankedTensorType type) {
    ports.push_back(port(graph::kInputAttr, name, type));
    ports.back().attributes.push_back(
        b.getNamedAttr(graph::kKeepF32Attr, b.getUnitAttr()));
  };
  const RankedTensorType reals = tensor(ids.getShape(), b.getF32Type());
  if (hasReference())
    addReal("reference", reals);
  if (isPolicy()) {
    addReal("behavior", reals);
    if (isGae()) {
      addReal("rewards", reals);
      addReal("values", reals);
    } else {
      addReal("advantages", reals);
    }
  }
  if (isKto())
    ports.push_back(port(graph::kInputAttr, "document_labels", ids));
  if (isDistill()) {
    const int64_t top = recipe.distill.top;
    auto classes = [&](int64_t count, Type element) {
      return tensor({recipe.batch.micro, recipe.batch.sequence, count},
                    element);
    };
    ports.push_back(port(graph::kInputAttr, "teacher_tokens",
                         classes(top, b.getI32Type())));
    addReal("teacher_log_probs", classes(top + 1, b.getF32Type()));
  }
  return ports;
}

BatchValues ModelBuilder::takeBatch(ValueRange &inputs) const {
  auto take = [&]() -> Value {
    Value first = inputs.front();
    inputs = inputs.drop_front();
    return first;
  };
  BatchValues batch;
  batch.tokens = take();
  batch.targets = take();
  batch.random.seed = take();
  batch.random.step = take();
  batch.random.offset = take();
  if (separates())
    batch.documentStarts = take();
  if (takesDocumentNumbers())
    batch.documentNumbers = take();
  if (hasReference())
    batch.reference = take();
  if (isPolicy()) {
    batch.behavior = take();
    if (isGae()) {
      batch.rewards = take();
      batch.values = take();
    } else {
      batch.advantages = take();
    }
  }
  if (isKto())
    batch.documentLabels = take();
  if (isDistill()) {
    batch.teacherTokens = take();
    batch.teacherLogProbs = take();
  }
  return batch;
}

/// Where the prompt of each token's document ends: at the token whose target is
/// the document's first one. -1 without targets. All are i32 [batch, tokens].
static Value promptEnds(Emitter &e, Value first, Value targets) {
  ArrayRef<int64_t> shape = tensorType(first).getShape();
  const SmallVector<int64_t> pairs{shape[0], shape[1], shape[1]};
  auto ofOthers = [&](Value each) { return e.broadcast(each, {0, 2}, pairs); };
  Value isOwn = e.compare(e.broadcast(first, {0, 1}, pairs),
                          graph::ComparePredicate::eq, ofOthers(first));
  Value hasTarget = e.compare(targets, graph::ComparePredicate::ne,
                              e.splatLike(-100, targets));
  Value position = e.iota(tensorType(first), 1),
        none = e.splatLike(double(shape[1]), first);
  Value at = ofOthers(e.select(hasTarget, position, none));
  Value end = e.reduce(e.select(isOwn, at, e.splatLike(double(shape[1]), at)),
                       graph::ReduceKind::min, {2});
  Value isThere = e.compare(end, graph::ComparePredicate::lt, none);
  return e.select(isThere, end, e.splatLike(-1, end));
}

/// The documents of a batch, from the input that says where they begin.
Documents ModelBuilder::documentsOf(Scope &scope, const BatchValues &batch) {
  Emitter e = scope.at("documents");
  Value first = batch.documentStarts;
  Documents documents{first, e.sub(e.iota(tensorType(first), 1), first), {}};
  if (hasBidirectionalPrompts())
    documents.promptEnds = promptEnds(e, first, batch.targets);
  return documents;
}

std::vector<Port> ModelBuilder::lossResults() {
  std::vector<Port> results{
      port(graph::kOutputAttr, "loss_sum", scalar(b.getF32Type()))};
  if (hasPenalty())
    results.push_back(
        port(graph::kOutputAttr, "penalty_sum", scalar(b.getF32Type())));
  NamedAttribute metric = b.getNamedAttr(graph::kMetricAttr, b.getUnitAttr());
  auto addMetric = [&](StringRef name, RankedTensorType type) {
    results.push_back(port(graph::kOutputAttr, name, type));
    results.back().attributes.push_back(metric);
  };
  if (spec.moe) {
    addMetric(routerLoads, routerType(spec.moe->experts));
    addMetric(routerSumsName, routerType(routerSums));
  }
  if (!isOfTokens())
    addMetric(taskSumsName, taskSumsType());
  if (isGae())
    addMetric(kValuesOutput, tensor({recipe.batch.micro, recipe.batch.sequence},
                                    b.getF32Type()));
  return results;
}

Value ModelBuilder::headLoss(Scope &scope, Value x, Value targets, bool isSum,
                             double temperature) {
  Emitter e = scope.at("lm_head");
  ArrayRef<int64_t> shape = tensorType(targets).getShape();
  SmallVector<int64_t> rows{shape[0] * shape[1]};
  llvm::append_range(rows, shape.drop_front(2));
  if (temperature != 1)
    x = e.mul(x, 1 / temperature);
  // cap tanh(z / cap) / temperature is such a cap of z / temperature.
  const FloatAttr cap = spec.logitCap
                            ? b.getF64FloatAttr(*spec.logitCap / temperature)
                            : FloatAttr();
  Value losses = b.create<graph::LinearCrossEntropyOp>(
      e.location(),
      isSum ? scalar(b.getF32Type()) : tensor(rows, b.getF32Type()),
      e.reshape(x, {rows[0], spec.hidden}), head(scope),
      e.reshape(targets, rows), /*ignore=*/-100, cap);
  return isSum ? losses : e.reshape(losses, shape);
}

void ModelBuilder::buildLoss() {
  std::vector<Port> arguments = parameterPorts();
  llvm::append_range(arguments, batchPorts());
  // What @prepare_step gives. Of counts of tokens bf16 has three digits.
  auto addPrepared = [&](const char *name, RankedTensorType type) {
    arguments.push_back(port(graph::kInputAttr, name, type));
    arguments.back().attributes.push_back(
        b.getNamedAttr(graph::kKeepF32Attr, b.getUnitAttr()));
  };
  if (needsLoads())
    addPrepared(routerLoads, routerType(spec.moe->experts));
  if (whitens())
    addPrepared(advantageSumsName, advantageSumsType());
  func::FuncOp loss = program(graph::Program::loss, arguments, lossResults());
  if (int64_t documents = documentsPerTerm())
    loss->setAttr(graph::kDocumentsPerTermAttr, b.getI64IntegerAttr(documents));

  ValueRange inputs = loss.getArguments().drop_front(all.size());
  const BatchValues batch = takeBatch(inputs);
  Scope scope(b, spec, batch.random);
  defineParameters(scope, loss);
  if (separates())
    scope.documents = documentsOf(scope, batch);
  Routed routed;
  Value x = trunk(scope, batch.tokens, batch.random, Purpose::Loss,
                  needsLoads() ? inputs.front() : Value(), routed);
  Emitter e = scope.at(isReward() ? "score" : "lm_head");
  const TaskLoss task =
      taskLoss(scope, e, batch, x, whitens() ? inputs.back() : Value());
  SmallVector<Value> returned{task.loss};
  if (hasPenalty()) {
    Value sum = routed.penalties.front();
    for (Value each : llvm::drop_begin(routed.penalties))
      sum = e.add(sum, each);
    returned.push_back(sum);
  }
  if (spec.moe)
    returned.append({stacked(e, routed.counts), stacked(e, routed.sums)});
  if (!isOfTokens())
    returned.push_back(task.sums);
  if (isGae())
    returned.push_back(task.values);
  b.create<func::ReturnOp>(loss.getLoc(), returned);
}

} // namespace tessera::models
