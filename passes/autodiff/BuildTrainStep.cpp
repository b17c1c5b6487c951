// The pass: @train_step from @gradients, and the state that @init gains.
#include "passes/autodiff/Program.h"
#include "passes/autodiff/StepHooks.h"
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
      : gradients(gradients), hooks(gradients), options(options),
        b(gradients.getContext()), loc(gradients.getLoc()), e(b, loc),
        f32(b.getF32Type()), i64(b.getI64Type()),
        optimizer(makeOptimizer(options.optimizer, options.momentum != 0.0)),
        updates(gradients->getParentOfType<ModuleOp>(), *optimizer) {}

  LogicalResult build(func::FuncOp init) {
    if (failed(check(init)))
      return failure();
    collectState();
    b.setInsertionPointAfter(gradients);
    step = createProgram(b, loc, graph::Program::train_step, argumentPorts(),
                         resultPorts());
    b.setInsertionPointToStart(&step.front());
    emitBody();
    extendInit(init);
    gradients.erase();
    hooks.erase();
    return success();
  }

private:
  //===--- signature ------------------------------------------------------===//

  LogicalResult check(func::FuncOp init) {
    parameters = parametersOf(gradients);
    for (const Parameter &parameter : parameters)
      if (!parameter.frozen)
        trained.push_back(parameter);
    for (StringRef name :
         {StringRef("tokens"), StringRef("targets"), StringRef("seed"),
          StringRef("step"), StringRef("offset"), StringRef(kCotangent)})
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
      if (!parameter.frozen && !parameter.type.getElementType().isF32())
        return gradients.emitOpError()
               << "expects f32 master weights, but '"
               << parameter.name.getValue() << "' is " << parameter.type;
    if (gradients.getNumResults() < trained.size() + 1)
      return gradients.emitOpError()
             << "expects the loss and " << trained.size() << " gradients, got "
             << gradients.getNumResults() << " results";
    firstGradient = gradients.getNumResults() - trained.size();
    // Quantized ones come from a checkpoint.
    auto given = static_cast<size_t>(
        llvm::count_if(parameters, [](const Parameter &parameter) {
          return !parameter.quantized;
        }));
    if (init.getNumResults() != given)
      return init.emitOpError() << "expects one result for each of " << given
                                << " parameters, got " << init.getNumResults();
    return hooks.check(parameters);
  }

  // Moments follow the parameters, kind by kind.
  void collectState() {
    for (StringRef suffix : optimizer->momentSuffixes())
      for (const Parameter &parameter : trained)
        moments.push_back(
            statePort(b.getStringAttr(parameter.name.getValue() + "." + suffix),
                      parameter.type, graph::Role::optimizer, parameter.layer));
    counter = statePort(b.getStringAttr("step"), tensorOf({1}, i64),
                        graph::Role::counter);
    hyper = statePort(b.getStringAttr(kHyperTensor),
                      tensorOf({kHyperSlots}, f32), graph::Role::counter);
  }

  SmallVector<Port> parameterPorts() const {
    SmallVector<Port> ports;
    for (const Parameter &parameter : parameters)
      ports.push_back(parameterPort(parameter));
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
    for (StringRef name : batchInputsOf(gradients))
      ports.push_back(inputPort(name, batchType(name)));
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
    llvm::append_range(ports, hooks.outputPorts());
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
    Value terms = e.convert(
        gradients->hasAttr(graph::kDocumentsPerTermAttr)
            ? countTerms(b, loc, gradients,
                         [&](StringRef name) { return argument(name); })
            : count,
        f32);
    Value one = e.splatLike(1.0, terms), divisor = e.max(terms, one);
    Value any =
        e.compare(terms, graph::ComparePredicate::gt, e.splatLike(0.0, terms));
    cotangent = e.select(any, e.div(one, divisor), e.splatLike(0.0, terms));

    if (func::FuncOp prepare = hooks.prepare())
      prepared =
          run(prepare,
              llvm::to_vector(llvm::seq<unsigned>(0, prepare.getNumResults())));
    SmallVector<unsigned> wanted{0};
    llvm::append_range(wanted, hooks.sums());
    llvm::append_range(
        wanted, llvm::seq<unsigned>(firstGradient, gradients.getNumResults()));
    SmallVector<Value> sums = run(gradients, wanted);
    Value loss = e.div(sums[0], divisor);
    SmallVector<Value> grads(ArrayRef(sums).take_back(trained.size()));
    ArrayRef<Value> extra = ArrayRef(sums).slice(1, hooks.sums().size());

    HyperTable table(e, hyperValue());
    Value norm = globalNorm(e, grads, trained);
    Value scale = clipScale(e, table, norm);
    Value t = e.convert(stepsDone, f32);
    Value lr = learningRate(e, options.schedule, table, t);
    SmallVector<Value> results = updateAll(table, grads, scale, lr, t);
    results.push_back(e.add(counterValue(), e.splatLike(1, counterValue())));
    llvm::append_range(results, ArrayRef<Value>{loss, norm, lr, count});
    llvm::append_range(results, finish(results, extra));
    b.create<func::ReturnOp>(loc, results);
  }

  // What @finish_step makes of the sums: next values of frozen parameters in
  // their slots of `results`, and the metrics that it gives.
  SmallVector<Value> finish(MutableArrayRef<Value> results,
                            ArrayRef<Value> sums) {
    func::FuncOp function = hooks.finish();
    if (!function)
      return {};
    IRMapping map;
    for (Parameter frozen : parametersOf(function))
      map.map(function.getArgument(frozen.index),
              parameterValues()[positionOf(frozen.name)]);
    for (auto [i, sum] : llvm::zip_equal(hooks.sums(), sums))
      map.map(findInput(function, outputName(gradients, i)), sum);
    SmallVector<Value> metrics;
    for (auto [i, value] : llvm::enumerate(inlineBody(b, function, map)))
      if (auto state =
              function.getResultAttrOfType<StringAttr>(i, graph::kStateAttr))
        results[positionOf(state)] = value;
      else
        metrics.push_back(value);
    return metrics;
  }

  size_t positionOf(StringAttr parameter) const {
    return llvm::find_if(
               parameters,
               [&](const Parameter &each) { return each.name == parameter; }) -
           parameters.begin();
  }

  // The wanted results of `function`, @gradients or @prepare_step, for one
  // microbatch: `ofBatch` takes its part of an input. `offset` is the index of
  // its first sequence in the step's batch.
  SmallVector<Value> runMicrobatch(func::FuncOp function,
                                   ArrayRef<unsigned> wanted,
                                   llvm::function_ref<Value(Value)> ofBatch,
                                   Value offset) {
    IRMapping map;
    for (const Parameter &parameter : parametersOf(function))
      map.map(function.getArgument(parameter.index),
              parameterValues()[positionOf(parameter.name)]);
    auto bind = [&](StringRef name, Value value) {
      Value input = findInput(function, name);
      if (!input)
        return;
      Type element = graph::tensorType(input).getElementType();
      map.map(input, e.convert(value, element));
    };
    for (StringRef name : batchInputsOf(function))
      bind(name, ofBatch(argument(name)));
    bind("seed", seed);
    bind("step", stepsDone);
    bind("offset", offset);
    bind(kCotangent, cotangent);
    // Other sums are means over all tokens, masked or not.
    double share =
        1.0 / static_cast<double>(
                  graph::tensorType(argument("tokens")).getNumElements());
    for (Value input : hooks.cotangents(function))
      map.map(input, e.splat(share, graph::tensorType(input)));
    for (auto [i, value] : llvm::enumerate(prepared))
      bind(outputName(hooks.prepare(), i), value);
    SmallVector<Value> all = inlineBody(b, function, map), results;
    for (unsigned i : wanted)
      results.push_back(all[i]);
    return results;
  }

  // The same, summed over all microbatches.
  SmallVector<Value> run(func::FuncOp function, ArrayRef<unsigned> wanted) {
    if (options.accumulate > 1 || options.alwaysLoop)
      return runLoop(function, wanted);
    auto squeeze = [&](Value batch) -> Value {
      return e.reshape(batch, graph::tensorType(batch).getShape().drop_front());
    };
    return runMicrobatch(function, wanted, squeeze, e.zeros(tensorOf({}, i64)));
  }

  SmallVector<Value> runLoop(func::FuncOp function, ArrayRef<unsigned> wanted) {
    int64_t sequences = graph::tensorType(argument("tokens")).getDimSize(1);
    SmallVector<Value> zeros;
    for (unsigned i : wanted)
      zeros.push_back(
          e.zeros(cast<RankedTensorType>(function.getResultTypes()[i])));
    auto loop = b.create<graph::LoopOp>(
        loc, options.accumulate, zeros,
        [&](OpBuilder &, Location, Value index, ValueRange carried) {
          // The builder is our own, moved into the body; so is the emitter.
          Value offset =
              e.mul(e.convert(index, i64), static_cast<double>(sequences));
          auto slice = [&](Value batch) -> Value {
            return e.dynamicSlice(batch, index);
          };
          SmallVector<Value> sums =
              runMicrobatch(function, wanted, slice, offset);
          for (auto [sum, before] : llvm::zip_equal(sums, carried))
            sum = e.add(before, sum);
          b.create<graph::YieldOp>(loc, sums);
        });
    hoistInvariants(loop);
    return llvm::to_vector_of<Value>(loop.getResults());
  }

  // Parameters, then moments in the order of the state.
  SmallVector<Value> updateAll(HyperTable &table, ArrayRef<Value> grads,
                               Value scale, Value lr, Value t) {
    SmallVector<Value> scalars{scale};
    llvm::append_range(scalars, optimizer->scalars(e, table, lr, t));
    unsigned count = trained.size();
    SmallVector<Value> results(parameterValues());
    results.resize(parameters.size() + moments.size());
    for (auto [i, parameter] : llvm::enumerate(trained)) {
      size_t at = positionOf(parameter.name);
      SmallVector<Value> operands{parameterValues()[at], grads[i]};
      for (unsigned j = i; j < moments.size(); j += count)
        operands.push_back(momentValues()[j]);
      llvm::append_range(operands, scalars);
      auto updated =
          b.create<func::CallOp>(loc,
                                 updates.get(parameter.type, parameter.decay,
                                             ValueRange(operands).getTypes()),
                                 operands);
      results[at] = updated.getResult(0);
      for (auto [j, value] : llvm::enumerate(updated.getResults().drop_front()))
        results[parameters.size() + i + j * count] = value;
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
  StepHooks hooks;
  BuildTrainStepOptions options;
  OpBuilder b;
  Location loc;
  graph::Emitter e;
  Type f32, i64;
  std::unique_ptr<Optimizer> optimizer;
  UpdateFunctions updates;
  SmallVector<Parameter> parameters, trained;
  unsigned firstGradient;    // of the results of @gradients
  SmallVector<Port> moments; // kind by kind, trained parameters in order
  Port counter, hyper;
  Value seed, stepsDone, cotangent;
  SmallVector<Value> prepared; // what @prepare_step gives
};

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
    return init ? TrainStepBuilder(gradients, chosen()).build(init) : failure();
  }

  BuildTrainStepOptions chosen() const {
    return {optimizer, schedule, accumulate,  lr,        beta1,
            beta2,     eps,      weightDecay, clip,      momentum,
            warmup,    total,    minRatio,    alwaysLoop};
  }
};

} // namespace
