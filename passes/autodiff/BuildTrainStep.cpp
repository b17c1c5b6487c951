// The pass: @train_step from @gradients, and the state that @init gains.
#include "passes/autodiff/Program.h"
#include "passes/autodiff/StepMath.h"
#include "passes/autodiff/UpdateFunctions.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

namespace tessera {
#define GEN_PASS_DEF_BUILDTRAINSTEP
#include "passes/autodiff/Passes.h.inc"
} // namespace tessera

namespace {

RankedTensorType tensorOf(ArrayRef<int64_t> shape, Type element) {
  return RankedTensorType::get(shape, element);
}

class TrainStepBuilder {
public:
  TrainStepBuilder(func::FuncOp gradients, const BuildTrainStepOptions &options)
      : gradients(gradients), options(options), b(gradients.getContext()),
        loc(gradients.getLoc()), e(b, loc), f32(b.getF32Type()),
        i64(b.getI64Type()),
        optimizer(makeOptimizer(options.optimizer, options.momentum != 0.0)),
        updates(gradients->getParentOfType<ModuleOp>(), *optimizer) {}

  LogicalResult build(func::FuncOp init) {
    if (failed(check(init)))
      return failure();
    collectState();
    b.setInsertionPointAfter(gradients);
    step = createProgram(b, loc, kTrainStep, argumentPorts(), resultPorts());
    b.setInsertionPointToStart(&step.front());
    emitBody();
    extendInit(init);
    gradients.erase();
    return success();
  }

private:
  //===--- signature ------------------------------------------------------===//

  LogicalResult check(func::FuncOp init) {
    parameters = parametersOf(gradients);
    for (StringRef name :
         {"tokens", "targets", "seed", "step", "offset", "cotangent"})
      if (!findInput(gradients, name))
        return gradients.emitOpError()
               << "has no argument with " << graph::kInputAttr << " = \""
               << name << "\"";
    if (options.accumulate < 1)
      return gradients.emitOpError()
             << "cannot accumulate " << options.accumulate
             << " microbatches; the least is 1";
    if (graph::tensorType(findInput(gradients, "tokens")).getRank() != 2)
      return gradients.emitOpError("expects tokens of shape [B, T]");
    for (const Parameter &parameter : parameters)
      if (!parameter.type.getElementType().isF32())
        return gradients.emitOpError()
               << "expects f32 parameters (the master weights), but '"
               << parameter.name.getValue() << "' is " << parameter.type;
    if (gradients.getNumResults() != parameters.size() + 1)
      return gradients.emitOpError()
             << "expects the loss and " << parameters.size()
             << " gradients, got " << gradients.getNumResults() << " results";
    if (init.getNumResults() != parameters.size())
      return init.emitOpError()
             << "expects one result for each of " << parameters.size()
             << " parameters, got " << init.getNumResults();
    return success();
  }

  // Moments follow the parameters, kind by kind.
  void collectState() {
    for (StringRef suffix : optimizer->momentSuffixes())
      for (const Parameter &parameter : parameters)
        moments.push_back(
            statePort(b.getStringAttr(parameter.name.getValue() + "." + suffix),
                      parameter.type, graph::Role::optimizer));
    counter = statePort(b.getStringAttr("step"), tensorOf({1}, i64),
                        graph::Role::counter);
    hyper = statePort(b.getStringAttr(kHyperTensor),
                      tensorOf({kHyperSlots}, f32), graph::Role::counter);
  }

  SmallVector<Port> parameterPorts() const {
    SmallVector<Port> ports;
    for (const Parameter &parameter : parameters)
      ports.push_back(statePort(parameter.name, parameter.type,
                                graph::Role::parameter, parameter.decay));
    return ports;
  }

  RankedTensorType batchType(StringRef input) {
    auto type = graph::tensorType(findInput(gradients, input));
    SmallVector<int64_t> shape{options.accumulate};
    llvm::append_range(shape, type.getShape());
    return tensorOf(shape, type.getElementType());
  }

  SmallVector<Port> argumentPorts() {
    SmallVector<Port> ports = parameterPorts();
    llvm::append_range(ports, moments);
    ports.push_back(counter);
    ports.push_back(hyper);
    ports.push_back(inputPort("tokens", batchType("tokens")));
    ports.push_back(inputPort("targets", batchType("targets")));
    ports.push_back(inputPort("seed", tensorOf({1}, i64)));
    return ports;
  }

  SmallVector<Port> resultPorts() {
    SmallVector<Port> ports = parameterPorts();
    llvm::append_range(ports, moments);
    ports.push_back(counter);
    for (StringRef name : {"loss", "grad_norm", "lr"})
      ports.push_back(outputPort(name, tensorOf({}, f32)));
    ports.push_back(outputPort("tokens", tensorOf({}, i64)));
    return ports;
  }

  //===--- body -----------------------------------------------------------===//

  Value argument(StringRef input) { return findInput(step, input); }
  ValueRange parameterValues() {
    return step.getArguments().take_front(parameters.size());
  }
  ValueRange momentValues() {
    return step.getArguments().slice(parameters.size(), moments.size());
  }
  Value counterValue() {
    return step.getArgument(parameters.size() + moments.size());
  }
  Value hyperValue() {
    return step.getArgument(parameters.size() + moments.size() + 1);
  }

  void emitBody() {
    seed = e.reshape(argument("seed"), {});
    stepsDone = e.reshape(counterValue(), {});
    Value count = countTargets(b, loc, argument("targets"));
    Value tokens = e.convert(count, f32), one = e.splatLike(1.0, tokens);
    Value divisor = e.max(tokens, one);
    Value any = e.compare(tokens, graph::ComparePredicate::gt,
                          e.splatLike(0.0, tokens));
    cotangent = e.select(any, e.div(one, divisor), e.splatLike(0.0, tokens));

    SmallVector<Value> sums = options.accumulate == 1 ? runOnce() : runLoop();
    Value loss = e.div(sums[0], divisor);
    MutableArrayRef<Value> grads = MutableArrayRef(sums).drop_front();

    HyperTable table(e, hyperValue());
    Value norm = globalNorm(e, grads);
    Value scale = clipScale(e, table, norm);
    Value t = e.convert(stepsDone, f32);
    Value lr = learningRate(e, options.schedule, table, t);
    SmallVector<Value> results = updateAll(table, grads, scale, lr, t);
    results.push_back(e.add(counterValue(), e.splatLike(1, counterValue())));
    llvm::append_range(results, ArrayRef<Value>{loss, norm, lr, count});
    b.create<func::ReturnOp>(loc, results);
  }

  // Loss sum and gradients of one microbatch; `offset` is the index of its
  // first sequence in the step's batch.
  SmallVector<Value> runMicrobatch(Value tokens, Value targets, Value offset) {
    IRMapping map;
    for (auto [parameter, value] : llvm::zip(parameters, parameterValues()))
      map.map(gradients.getArgument(parameter.index), value);
    auto bind = [&](StringRef name, Value value) {
      Value input = findInput(gradients, name);
      Type element = graph::tensorType(input).getElementType();
      map.map(input, e.convert(value, element));
    };
    bind("tokens", tokens);
    bind("targets", targets);
    bind("seed", seed);
    bind("step", stepsDone);
    bind("offset", offset);
    bind("cotangent", cotangent);
    return inlineBody(b, gradients, map);
  }

  SmallVector<Value> runOnce() {
    auto squeeze = [&](Value batch) {
      return e.reshape(batch, graph::tensorType(batch).getShape().drop_front());
    };
    return runMicrobatch(squeeze(argument("tokens")),
                         squeeze(argument("targets")),
                         e.zeros(tensorOf({}, i64)));
  }

  SmallVector<Value> runLoop() {
    Value tokens = argument("tokens"), targets = argument("targets");
    int64_t sequences = graph::tensorType(tokens).getDimSize(1);
    SmallVector<Value> zeros{e.zeros(tensorOf({}, f32))};
    for (const Parameter &parameter : parameters)
      zeros.push_back(e.zeros(tensorOf(parameter.type.getShape(), f32)));
    auto loop = b.create<graph::LoopOp>(
        loc, options.accumulate, zeros,
        [&](OpBuilder &, Location, Value index, ValueRange carried) {
          // The builder is our own, moved into the body; so is the emitter.
          Value offset =
              e.mul(e.convert(index, i64), static_cast<double>(sequences));
          SmallVector<Value> sums =
              runMicrobatch(e.dynamicSlice(tokens, index),
                            e.dynamicSlice(targets, index), offset);
          for (auto [sum, before] : llvm::zip_equal(sums, carried))
            sum = e.add(before, sum);
          b.create<graph::YieldOp>(loc, sums);
        });
    hoistInvariants(loop);
    return llvm::to_vector_of<Value>(loop.getResults());
  }

  // Before the loop goes what is worth a buffer: scalars, and conversions of
  // weights. A view or an elementwise op costs nothing where it is used.
  static void hoistInvariants(graph::LoopOp loop) {
    auto isOutside = [&](Value value) {
      return !loop.getBody().isAncestor(value.getParentRegion());
    };
    auto isWorthIt = [](Operation &op) {
      return isa<graph::ConvertOp>(op) ||
             (op.getNumOperands() > 0 &&
              llvm::all_of(op.getResults(), [](Value result) {
                return graph::tensorType(result).getRank() == 0;
              }));
    };
    for (Operation &op : llvm::make_early_inc_range(
             loop.getBody().front().without_terminator()))
      if (isPure(&op) && op.getNumRegions() == 0 &&
          llvm::all_of(op.getOperands(), isOutside) &&
          (isWorthIt(op) || op.getNumOperands() == 0))
        op.moveBefore(loop);
  }

  // Parameters, then moments in the order of the state.
  SmallVector<Value> updateAll(HyperTable &table, ArrayRef<Value> grads,
                               Value scale, Value lr, Value t) {
    SmallVector<Value> scalars{scale};
    llvm::append_range(scalars, optimizer->scalars(e, table, lr, t));
    unsigned count = parameters.size();
    SmallVector<Value> results(count + moments.size());
    for (auto [i, parameter] : llvm::enumerate(parameters)) {
      SmallVector<Value> operands{parameterValues()[i], grads[i]};
      for (unsigned j = i; j < moments.size(); j += count)
        operands.push_back(momentValues()[j]);
      llvm::append_range(operands, scalars);
      auto updated =
          b.create<func::CallOp>(loc,
                                 updates.get(parameter.type, parameter.decay,
                                             ValueRange(operands).getTypes()),
                                 operands);
      for (auto [j, value] : llvm::enumerate(updated.getResults()))
        results[i + j * count] = value;
    }
    return results;
  }

  //===--- init -----------------------------------------------------------===//

  Value hyperConstant() {
    SmallVector<float> values(kHyperSlots, 0.0f);
    auto set = [&](HyperSlot slot, double value) {
      values[static_cast<size_t>(slot)] = static_cast<float>(value);
    };
    set(HyperSlot::lr, options.lr);
    set(HyperSlot::beta1, options.beta1);
    set(HyperSlot::beta2, options.beta2);
    set(HyperSlot::eps, options.eps);
    set(HyperSlot::weightDecay, options.weightDecay);
    set(HyperSlot::clip, options.clip);
    set(HyperSlot::momentum, options.momentum);
    set(HyperSlot::warmup, static_cast<double>(options.warmup));
    set(HyperSlot::total, static_cast<double>(options.total));
    set(HyperSlot::minRatio, options.minRatio);
    return b.create<graph::ConstantOp>(
        loc, hyper.type,
        cast<ElementsAttr>(
            DenseElementsAttr::get(hyper.type, ArrayRef<float>(values))));
  }

  // Moments and the counter start at zero.
  void extendInit(func::FuncOp init) {
    Operation *terminator = init.front().getTerminator();
    b.setInsertionPoint(terminator);
    SmallVector<Value> values(terminator->getOperands());
    SmallVector<Port> ports = moments;
    ports.push_back(counter);
    for (const Port &port : ports)
      values.push_back(e.zeros(port.type));
    ports.push_back(hyper);
    values.push_back(hyperConstant());
    terminator->setOperands(values);
    for (const Port &port : ports)
      init.insertResult(init.getNumResults(), port.type, port.attrs);
  }

  func::FuncOp gradients, step;
  BuildTrainStepOptions options;
  OpBuilder b;
  Location loc;
  graph::Emitter e;
  Type f32, i64;
  std::unique_ptr<Optimizer> optimizer;
  UpdateFunctions updates;
  SmallVector<Parameter> parameters;
  SmallVector<Port> moments; // kind by kind, parameters in order
  Port counter, hyper;
  Value seed, stepsDone, cotangent;
};

struct BuildTrainStep : tessera::impl::BuildTrainStepBase<BuildTrainStep> {
  using BuildTrainStepBase::BuildTrainStepBase;

  void runOnOperation() override {
    if (failed(build(getOperation())))
      signalPassFailure();
  }

  LogicalResult build(ModuleOp module) {
    func::FuncOp gradients =
        requireFunction(module, kGradients, "differentiate");
    if (!gradients)
      return failure();
    func::FuncOp init = requireFunction(module, kInit, "importing a model");
    return init ? TrainStepBuilder(gradients, chosen()).build(init) : failure();
  }

  BuildTrainStepOptions chosen() const {
    return {optimizer,   schedule, accumulate, lr,     beta1, beta2,   eps,
            weightDecay, clip,     momentum,   warmup, total, minRatio};
  }
};

} // namespace
