// Builds @calibrate, which measures the inputs of linear layers to choose
// scales of their channels (runtime/weights/ChooseScales.h).
#include "models/ModelBuilder.h"

using namespace mlir;
using tessera::graph::Emitter;

namespace tessera::models {

/// Σ |x| and Σ x² over the tokens of x [1, tokens, channels].
static std::pair<Value, Value> sums(Emitter &e, Value x) {
  return {e.sum(e.unary<graph::AbsOp>(x), {0, 1}), e.sum(e.mul(x, x), {0, 1})};
}

/// The block returns both sums for each of `modules`, after the activations.
func::FuncOp ModelBuilder::calibratedBlock(const LayerKind &kind,
                                           int64_t tokens,
                                           ArrayRef<std::string> &modules) {
  std::string name = blockName("layer.calibrate", kind);
  auto made = module->lookupSymbol<func::FuncOp>(name);
  if (!made) {
    OpBuilder::InsertionGuard guard(b);
    made = newBlock(name, kind, {1, tokens, spec.hidden}, {}, {});
    Scope scope(b, spec, {});
    LinearInputs inputs;
    scope.inputs = &inputs;
    defineLayer(scope, kind, made);
    SmallVector<Value> results = {
        family.layer(scope, made.getArgument(0), kind)};
    for (auto &[path, x] : inputs) {
      Emitter e = scope.at(path);
      auto [magnitude, square] = sums(e, x);
      results.append({magnitude, square});
      measured[name].push_back(path);
    }
    auto end = b.create<func::ReturnOp>(made.getLoc(), results);
    made.setType(
        b.getFunctionType(made.getArgumentTypes(), end.getOperandTypes()));
  }
  modules = measured[name];
  return made;
}

void ModelBuilder::buildCalibrate() {
  const int64_t tokens = inferenceContext(spec, recipe);
  std::vector<Port> arguments = parameterPorts();
  arguments.push_back(
      port(graph::kInputAttr, "tokens", tensor({1, tokens}, b.getI32Type())));
  func::FuncOp result = program(graph::Program::calibrate, arguments, {});
  Scope scope(b, spec, {});
  defineParameters(scope, result);
  Value x = family.embed(scope, result.getArguments().back());
  SmallVector<Value> returned;
  std::vector<Port> results;
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    std::string prefix = layerPrefix(spec, layer);
    LayerKind kind = kindOf(layer, tokens);
    SmallVector<Value> operands = {x};
    for (const Parameter &each : ofLayer(kind))
      operands.push_back(scope.parameter(prefix + each.name));
    ArrayRef<std::string> modules;
    func::FuncOp callee = calibratedBlock(kind, tokens, modules);
    func::CallOp call = callLayer(layer, callee, operands);
    x = call.getResult(0);
    for (auto [i, path] : llvm::enumerate(modules))
      for (auto [k, what] : {std::pair(1, ".magnitude"), {2, ".square"}}) {
        Value sum = call.getResult(2 * i + k);
        returned.push_back(sum);
        results.push_back(
            port(graph::kOutputAttr, prefix + path + what, sum.getType()));
      }
  }
  b.create<func::ReturnOp>(result.getLoc(), returned);
  result.setType(b.getFunctionType(result.getArgumentTypes(),
                                   ValueRange(returned).getTypes()));
  for (auto [i, each] : llvm::enumerate(results))
    result.setResultAttrs(i, each.attributes);
}

} // namespace tessera::models
