// Functions that only models with experts have: the loads before the step's
// gradients, and the update of selection biases and the metrics at the end of a
// step.
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

/// (parameters, tokens, targets, seed, step, offset) → the loads of all
/// routers, as @loss would return them.
void ModelBuilder::buildLoads() {
  std::vector<Port> arguments = parameterPorts();
  llvm::append_range(arguments, batchPorts());
  Port result =
      port(graph::kOutputAttr, routerLoads, routerType(spec.moe->experts));
  func::FuncOp loads = program(graph::Program::prepare_step, arguments, result);
  auto inputs = loads.getArguments().drop_front(all.size());
  RandomState random{inputs[2], inputs[3], inputs[4]};
  Scope scope(b, spec, random);
  for (auto [i, each] : llvm::enumerate(all))
    scope.define(each.name, loads.getArgument(i));
  if (separates())
    scope.documents = documentsOf(scope, inputs[5]);
  Routed routed;
  trunk(scope, inputs[0], random, Purpose::Loads, {}, routed);
  Emitter e = scope.at("router");
  b.create<func::ReturnOp>(loads.getLoc(), stacked(e, routed.counts));
}

/// (frozen parameters, sums of @loss) → (frozen parameters, metrics).
void ModelBuilder::buildFinishStep() {
  const MoeSpec &moe = *spec.moe;
  std::vector<Port> arguments;
  for (const Parameter &each : all)
    if (each.frozen && !each.constant)
      arguments.push_back(parameterPort(each));
  std::vector<Port> results = arguments;
  size_t fixed = arguments.size();
  arguments.push_back(
      port(graph::kInputAttr, routerLoads, routerType(moe.experts)));
  arguments.push_back(
      port(graph::kInputAttr, routerSumsName, routerType(routerSums)));
  // These stay in f32 in any precision.
  for (Port &each : arguments)
    if (llvm::none_of(each.attributes, [](NamedAttribute attribute) {
          return attribute.getName() == graph::kKeepF32Attr;
        }))
      each.attributes.push_back(
          b.getNamedAttr(graph::kKeepF32Attr, b.getUnitAttr()));
  results.push_back(
      port(graph::kOutputAttr, kRouterOutput, routerType(kRouterColumns)));
  func::FuncOp finish =
      program(graph::Program::finish_step, arguments, results);
  Value loads = finish.getArgument(fixed);
  Emitter e(b, named("router"));
  SmallVector<Value> returned;
  // Either all layers with experts have a bias, or none.
  for (size_t row = 0; row < fixed; ++row) {
    Value load = e.reshape(
        e.slice(loads, {static_cast<int64_t>(row), 0}, {1, moe.experts}),
        {moe.experts});
    returned.push_back(
        movedBias(e, finish.getArgument(row), load, recipe.moe.biasRate));
  }
  returned.push_back(routerTable(e, moe, loads, finish.getArgument(fixed + 1)));
  b.create<func::ReturnOp>(finish.getLoc(), returned);
}

} // namespace tessera::models
