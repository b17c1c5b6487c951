// Functions around the gradients of a step: the loads of routers before them,
// and at the end of a step the update of selection biases and the metrics.
#include "models/ModelBuilder.h"
#include "models/moe/Routing.h"
#include "runtime/train/Router.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

Value ModelBuilder::stacked(Emitter &e, ArrayRef<Value> rows) {
  SmallVector<Value> parts;
  for (Value row : rows)
    parts.push_back(e.reshape(row, {1, tensorType(row).getNumElements()}));
  return e.concat(parts, 0);
}

/// (parameters, a batch) → the loads of all routers, as @loss would return
/// them, and the sums that advantages are whitened with.
void ModelBuilder::buildPrepareStep() {
  std::vector<Port> arguments = parameterPorts(), results;
  llvm::append_range(arguments, batchPorts());
  if (needsLoads())
    results.push_back(
        port(graph::kOutputAttr, routerLoads, routerType(spec.moe->experts)));
  if (whitens())
    results.push_back(
        port(graph::kOutputAttr, advantageSumsName, advantageSumsType()));
  func::FuncOp prepare =
      program(graph::Program::prepare_step, arguments, results);
  ValueRange inputs = prepare.getArguments().drop_front(all.size());
  const BatchValues batch = takeBatch(inputs);
  SmallVector<Value> returned;
  if (needsLoads()) {
    Scope scope(b, spec, batch.random);
    defineParameters(scope, prepare);
    if (separates())
      scope.documents = documentsOf(scope, batch);
    Routed routed;
    trunk(scope, batch.tokens, batch.random, Purpose::Loads, {}, routed);
    Emitter e = scope.at("router");
    returned.push_back(stacked(e, routed.counts));
  }
  if (whitens()) {
    Emitter e(b, named("v_head"));
    returned.push_back(advantageSums(e, batch));
  }
  b.create<func::ReturnOp>(prepare.getLoc(), returned);
}

/// (frozen parameters, sums of @loss) → (frozen parameters, metrics).
void ModelBuilder::buildFinishStep() {
  std::vector<Port> arguments;
  for (const Parameter &each : all)
    if (spec.moe && each.frozen && !each.constant)
      arguments.push_back(parameterPort(each));
  std::vector<Port> results = arguments;
  const size_t fixed = arguments.size();
  auto add = [&](StringRef sums, RankedTensorType sumsType, StringRef output,
                 RankedTensorType outputType) {
    arguments.push_back(port(graph::kInputAttr, sums, sumsType));
    if (!output.empty())
      results.push_back(port(graph::kOutputAttr, output, outputType));
  };
  if (spec.moe) {
    add(routerLoads, routerType(spec.moe->experts), {}, {});
    add(routerSumsName, routerType(routerSums), kRouterOutput,
        routerType(kRouterColumns));
  }
  if (!isOfTokens())
    add(taskSumsName, taskSumsType(), taskMetrics().output,
        tensor({taskMetrics().columns}, b.getF32Type()));
  // These stay in f32 in any precision.
  for (Port &each : arguments)
    if (llvm::none_of(each.attributes, [](NamedAttribute attribute) {
          return attribute.getName() == graph::kKeepF32Attr;
        }))
      each.attributes.push_back(
          b.getNamedAttr(graph::kKeepF32Attr, b.getUnitAttr()));
  func::FuncOp finish =
      program(graph::Program::finish_step, arguments, results);
  Emitter e(b, named("router"));
  SmallVector<Value> returned;
  if (spec.moe)
    finishRouters(e, finish.getArguments().take_front(fixed + 2), returned);
  if (!isOfTokens())
    returned.push_back(taskTable(e, finish.getArguments().back()));
  b.create<func::ReturnOp>(finish.getLoc(), returned);
}

/// `inputs`: selection biases, of all layers with experts or of none; then
/// their loads and sums.
void ModelBuilder::finishRouters(Emitter &e, ValueRange inputs,
                                 SmallVectorImpl<Value> &returned) {
  const MoeSpec &moe = *spec.moe;
  const size_t fixed = inputs.size() - 2;
  Value loads = inputs[fixed];
  for (size_t row = 0; row < fixed; ++row) {
    Value load = e.reshape(
        e.slice(loads, {static_cast<int64_t>(row), 0}, {1, moe.experts}),
        {moe.experts});
    returned.push_back(movedBias(e, inputs[row], load, recipe.moe.biasRate));
  }
  returned.push_back(routerTable(e, moe, loads, inputs[fixed + 1]));
}

} // namespace tessera::models
