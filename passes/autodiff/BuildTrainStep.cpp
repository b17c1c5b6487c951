// The pass: @train_step from @gradients, and the state that @init gains.
#include "passes/autodiff/StepBuilder.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

namespace tessera {
#define GEN_PASS_DEF_BUILDTRAINSTEP
#include "passes/autodiff/Passes.h.inc"
} // namespace tessera

namespace {

class TrainStepBuilder final : public StepBuilder {
public:
  using StepBuilder::StepBuilder;

private:
  LogicalResult emitPrograms() override {
    begin(graph::Program::train_step, argumentPorts(), resultPorts());
    emitBody();
    return success();
  }

  SmallVector<Port> argumentPorts() {
    SmallVector<Port> ports = parameterPorts();
    llvm::append_range(ports, moments);
    ports.push_back(counter);
    ports.push_back(hyper);
    llvm::append_range(ports, batchPorts());
    return ports;
  }

  SmallVector<Port> resultPorts() {
    SmallVector<Port> ports = parameterPorts();
    llvm::append_range(ports, moments);
    ports.push_back(counter);
    for (StringRef name : {"loss", "grad_norm", "lr"})
      ports.push_back(scalarOutput(name));
    ports.push_back(outputPort("tokens", RankedTensorType::get({}, i64)));
    llvm::append_range(ports, hooks.outputPorts());
    return ports;
  }

  ValueRange momentValues() {
    return program.getArguments().slice(parameters.size(), moments.size());
  }
  Value counterValue() {
    return program.getArgument(parameters.size() + moments.size());
  }
  Value hyperValue() {
    return program.getArgument(parameters.size() + moments.size() + 1);
  }

  void emitBody() {
    seed = e.reshape(argument("seed"), {});
    stepsDone = e.reshape(counterValue(), {});
    Value count = countTargets(b, loc, argument("targets"));
    Value terms = termsOf(count);
    Value one = e.splatLike(1.0, terms), divisor = e.max(terms, one);
    Value any =
        e.compare(terms, graph::ComparePredicate::gt, e.splatLike(0.0, terms));
    cotangent = e.select(any, e.div(one, divisor), e.splatLike(0.0, terms));
    Sums sums = differentiateBatch();
    Value loss = e.div(sums.loss, divisor);

    HyperTable table(e, hyperValue());
    Value norm = globalNorm(e, sums.grads, trained);
    Value scale = clipScale(e, table, norm);
    Value t = e.convert(stepsDone, f32);
    Value lr = learningRate(e, options.schedule, table, t);
    SmallVector<Value> values;
    for (const Parameter &parameter : trained)
      values.push_back(parameterValues()[positionOf(parameter.name)]);
    Updated updated =
        updateAll(table, values, sums.grads, momentValues(), scale, lr, t);
    SmallVector<Value> results(parameterValues());
    for (auto [parameter, value] : llvm::zip_equal(trained, updated.parameters))
      results[positionOf(parameter.name)] = value;
    llvm::append_range(results, updated.moments);
    results.push_back(e.add(counterValue(), e.splatLike(1, counterValue())));
    llvm::append_range(results, ArrayRef<Value>{loss, norm, lr, count});
    llvm::append_range(results, finish(results, sums.extra));
    b.create<func::ReturnOp>(loc, results);
  }
};

} // namespace

std::unique_ptr<StepBuilder>
autodiff::makeTrainStepBuilder(func::FuncOp gradients,
                               const BuildTrainStepOptions &options) {
  return std::make_unique<TrainStepBuilder>(gradients, options);
}

namespace {

struct BuildTrainStep : tessera::impl::BuildTrainStepBase<BuildTrainStep> {
  using BuildTrainStepBase::BuildTrainStepBase;

  void runOnOperation() override {
    if (failed(build(getOperation())))
      signalPassFailure();
  }

  LogicalResult build(ModuleOp module) {
    func::FuncOp gradients =
        requireProgram(module, graph::Program::gradients, "differentiate");
    if (!gradients)
      return failure();
    func::FuncOp init =
        requireProgram(module, graph::Program::init, "importing a model");
    if (!init)
      return failure();
    auto make = separate ? makeSeparateStepsBuilder : makeTrainStepBuilder;
    return make(gradients, chosen())->build(init);
  }

  BuildTrainStepOptions chosen() const {
    return {optimizer, schedule, accumulate,  lr,         beta1,
            beta2,     eps,      weightDecay, clip,       momentum,
            warmup,    total,    minRatio,    alwaysLoop, separate};
  }
};

} // namespace
