// A step as two programs: @forward_backward adds gradients to sums, any number
// of times, and @optimizer_step uses them. @init_trained begins another model
// over the same constant weights.
#include "runtime/train/SeparateSteps.h"

#include "passes/autodiff/StepBuilder.h"
#include <limits>

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

namespace {

class SeparateStepsBuilder final : public StepBuilder {
public:
  using StepBuilder::StepBuilder;

private:
  LogicalResult emitPrograms() override {
    if (failed(checkFinish()))
      return failure();
    for (const Parameter &parameter : trained)
      sums.push_back(statePort(
          b.getStringAttr(parameter.name.getValue() + kGradientSuffix),
          parameter.type, graph::Role::optimizer, parameter.layer));
    llvm::append_range(zeroState, sums);
    emitForwardBackward();
    b.setInsertionPointAfter(program);
    emitOptimizerStep();
    return success();
  }

  // What changes without a gradient would change for all models.
  LogicalResult checkFinish() {
    func::FuncOp finish = hooks.finish();
    for (unsigned i = 0; finish && i < finish.getNumResults(); ++i)
      if (finish.getResultAttr(i, graph::kStateAttr))
        return finish.emitOpError(
            "gives next values of parameters, which separate steps do not "
            "support");
    return success();
  }

  // After the parameters: sums, counter; and in a step moments between them.
  ValueRange arguments(size_t first, size_t count) {
    return program.getArguments().slice(first, count);
  }

  void emitForwardBackward() {
    SmallVector<Port> taken = parameterPorts();
    llvm::append_range(taken, sums);
    taken.push_back(counter);
    llvm::append_range(taken, batchPorts());
    SmallVector<Port> given = sums;
    given.push_back(scalarOutput("loss"));
    given.push_back(scalarOutput(kTermsOutput));
    given.push_back(outputPort("tokens", RankedTensorType::get({}, i64)));
    llvm::append_range(given, hooks.outputPorts());
    begin(graph::Program::forward_backward, taken, given);

    seed = e.reshape(argument("seed"), {});
    stepsDone =
        e.reshape(program.getArgument(parameters.size() + sums.size()), {});
    Value count = countTargets(b, loc, argument("targets"));
    Value terms = termsOf(count);
    // Of the sum of the batch's losses; the step divides by all terms.
    cotangent = e.splatLike(1.0, terms);
    penalty = terms;
    Sums batch = differentiateBatch();
    Value loss = e.div(batch.loss, e.max(terms, e.splatLike(1.0, terms)));
    SmallVector<Value> results;
    for (auto [before, more] : llvm::zip_equal(
             arguments(parameters.size(), sums.size()), batch.grads))
      results.push_back(e.add(before, more));
    llvm::append_range(results, ArrayRef<Value>{loss, terms, count});
    llvm::append_range(results, finish({}, batch.extra));
    b.create<func::ReturnOp>(loc, results);
  }

  void emitOptimizerStep() {
    SmallVector<Port> taken = parameterPorts(/*onlyTrained=*/true), given;
    llvm::append_range(taken, moments);
    llvm::append_range(taken, sums);
    taken.push_back(counter);
    given = taken;
    taken.push_back(hyper);
    taken.push_back(inputPort(kScaleInput, RankedTensorType::get({1}, f32)));
    for (StringRef name : {"grad_norm", "lr"})
      given.push_back(scalarOutput(name));
    begin(graph::Program::optimizer_step, taken, given);

    const size_t first = trained.size();
    ValueRange momentValues = arguments(first, moments.size());
    ValueRange grads = arguments(first + moments.size(), sums.size());
    Value steps = program.getArgument(first + moments.size() + sums.size());
    HyperTable table(
        e, program.getArgument(first + moments.size() + sums.size() + 1));
    Value mean = e.reshape(argument(kScaleInput), {});
    Value norm = e.mul(globalNorm(e, grads, trained), mean);
    Value scale = e.mul(clipScale(e, table, norm), mean);
    Value t = e.convert(e.reshape(steps, {}), f32);
    Value lr = learningRate(e, options.schedule, table, t);
    Updated updated = updateAll(table, arguments(0, first), grads, momentValues,
                                scale, lr, t);
    // Where it is not, only the sums change, and the host reports the norm.
    Value isFinite =
        e.compare(norm, graph::ComparePredicate::le,
                  e.splatLike(std::numeric_limits<float>::max(), norm));
    SmallVector<Value> results = std::move(updated.parameters);
    llvm::append_range(results, updated.moments);
    for (auto [next, before] :
         llvm::zip(results, program.getArguments().take_front(results.size())))
      next = e.select(
          e.broadcastScalar(isFinite, graph::tensorType(next).getShape()), next,
          before);
    for (const Port &sum : sums)
      results.push_back(e.zeros(sum.type));
    Value made = e.reshape(e.convert(isFinite, i64), {1});
    results.push_back(e.add(steps, made));
    llvm::append_range(results, ArrayRef<Value>{norm, lr});
    b.create<func::ReturnOp>(loc, results);
  }

  // All state that a step changes, from the seed.
  void finishInit(func::FuncOp init) override {
    b.setInsertionPointAfter(program);
    auto copy = cast<func::FuncOp>(b.clone(*init));
    copy.setName(graph::stringifyProgram(graph::Program::init_trained));
    copy->setAttr(
        graph::kProgramAttr,
        graph::ProgramAttr::get(b.getContext(), graph::Program::init_trained));
    llvm::DenseSet<Attribute> frozen;
    for (const Parameter &parameter : parameters)
      if (parameter.frozen)
        frozen.insert(parameter.name);
    llvm::BitVector constant(copy.getNumResults());
    for (unsigned i = 0; i < copy.getNumResults(); ++i)
      if (frozen.contains(copy.getResultAttr(i, graph::kStateAttr)))
        constant.set(i);
    copy.front().getTerminator()->eraseOperands(constant);
    copy.eraseResults(constant);
  }

  SmallVector<Port> sums; // of gradients, of trained parameters in order
};

} // namespace

std::unique_ptr<StepBuilder>
autodiff::makeSeparateStepsBuilder(func::FuncOp gradients,
                                   const BuildTrainStepOptions &options) {
  return std::make_unique<SeparateStepsBuilder>(gradients, options);
}
