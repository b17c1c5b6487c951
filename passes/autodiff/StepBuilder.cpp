#include "passes/autodiff/StepBuilder.h"

using namespace mlir;

namespace tessera::autodiff {

static RankedTensorType tensorOf(ArrayRef<int64_t> shape, Type element) {
  return RankedTensorType::get(shape, element);
}

StepBuilder::StepBuilder(func::FuncOp gradients,
                         const BuildTrainStepOptions &options)
    : gradients(gradients), hooks(gradients), options(options),
      b(gradients.getContext()), loc(gradients.getLoc()), e(b, loc),
      f32(b.getF32Type()), i64(b.getI64Type()),
      optimizer(makeOptimizer(options.optimizer, options.momentum != 0.0)),
      updates(gradients->getParentOfType<ModuleOp>(), *optimizer) {}

LogicalResult StepBuilder::build(func::FuncOp init) {
  if (failed(check(init)))
    return failure();
  collectState();
  b.setInsertionPointAfter(gradients);
  if (failed(emitPrograms()))
    return failure();
  extendInit(init);
  finishInit(init);
  gradients.erase();
  hooks.erase();
  return success();
}

//===--- signatures -------------------------------------------------------===//

LogicalResult StepBuilder::check(func::FuncOp init) {
  parameters = parametersOf(gradients);
  for (const Parameter &parameter : parameters)
    if (!parameter.frozen)
      trained.push_back(parameter);
  for (StringRef name :
       {StringRef("tokens"), StringRef("targets"), StringRef("seed"),
        StringRef("step"), StringRef("offset"), StringRef(kCotangent)})
    if (!findInput(gradients, name))
      return gradients.emitOpError()
             << "has no argument with " << graph::kInputAttr << " = \"" << name
             << "\"";
  if (options.accumulate < 1)
    return gradients.emitOpError() << "cannot accumulate " << options.accumulate
                                   << " microbatches; the least is 1";
  if (graph::tensorType(findInput(gradients, "tokens")).getRank() != 2)
    return gradients.emitOpError("expects tokens of shape [B, T]");
  for (const Parameter &parameter : parameters)
    if (!parameter.frozen && !parameter.type.getElementType().isF32())
      return gradients.emitOpError()
             << "expects f32 master weights, but '" << parameter.name.getValue()
             << "' is " << parameter.type;
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
void StepBuilder::collectState() {
  for (StringRef suffix : optimizer->momentSuffixes())
    for (const Parameter &parameter : trained)
      moments.push_back(
          statePort(b.getStringAttr(parameter.name.getValue() + "." + suffix),
                    parameter.type, graph::Role::optimizer, parameter.layer));
  counter = statePort(b.getStringAttr("step"), tensorOf({1}, i64),
                      graph::Role::counter);
  hyper = statePort(b.getStringAttr(kHyperTensor), tensorOf({kHyperSlots}, f32),
                    graph::Role::counter);
  zeroState = moments;
  zeroState.push_back(counter);
}

void StepBuilder::begin(graph::Program kind, ArrayRef<Port> arguments,
                        ArrayRef<Port> results) {
  program = createProgram(b, loc, kind, arguments, results);
  b.setInsertionPointToStart(&program.front());
}

SmallVector<Port> StepBuilder::parameterPorts(bool onlyTrained) const {
  SmallVector<Port> ports;
  for (const Parameter &parameter : onlyTrained ? trained : parameters)
    ports.push_back(parameterPort(parameter));
  return ports;
}

RankedTensorType StepBuilder::batchType(StringRef input) {
  auto type = graph::tensorType(findInput(gradients, input));
  SmallVector<int64_t> shape{options.accumulate};
  llvm::append_range(shape, type.getShape());
  return tensorOf(shape, type.getElementType());
}

SmallVector<Port> StepBuilder::batchPorts() {
  SmallVector<Port> ports;
  for (StringRef name : batchInputsOf(gradients))
    ports.push_back(inputPort(name, batchType(name)));
  ports.push_back(inputPort("seed", tensorOf({1}, i64)));
  return ports;
}

Port StepBuilder::scalarOutput(StringRef name) const {
  return outputPort(name, tensorOf({}, f32));
}

//===--- the gradients of a batch -----------------------------------------===//

Value StepBuilder::termsOf(Value count) {
  if (!gradients->hasAttr(graph::kDocumentsPerTermAttr))
    return e.convert(count, f32);
  return e.convert(countTerms(b, loc, gradients,
                              [&](StringRef name) { return argument(name); }),
                   f32);
}

ValueRange StepBuilder::parameterValues() {
  return program.getArguments().take_front(parameters.size());
}

StepBuilder::Sums StepBuilder::differentiateBatch() {
  if (func::FuncOp prepare = hooks.prepare())
    prepared =
        run(prepare,
            llvm::to_vector(llvm::seq<unsigned>(0, prepare.getNumResults())));
  SmallVector<unsigned> wanted{0};
  llvm::append_range(wanted, hooks.sums());
  llvm::append_range(
      wanted, llvm::seq<unsigned>(firstGradient, gradients.getNumResults()));
  SmallVector<Value> sums = run(gradients, wanted);
  const auto of = [&](size_t first, size_t count) {
    return SmallVector<Value>(ArrayRef(sums).slice(first, count));
  };
  return {sums[0], of(sums.size() - trained.size(), trained.size()),
          of(1, hooks.sums().size())};
}

SmallVector<Value> StepBuilder::finish(MutableArrayRef<Value> results,
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

size_t StepBuilder::positionOf(StringAttr parameter) const {
  return llvm::find_if(
             parameters,
             [&](const Parameter &each) { return each.name == parameter; }) -
         parameters.begin();
}

// `ofBatch` takes a microbatch's part of an input, and `offset` is the index of
// its first sequence in the step's batch.
SmallVector<Value>
StepBuilder::runMicrobatch(func::FuncOp function, ArrayRef<unsigned> wanted,
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
  for (Value input : hooks.cotangents(function)) {
    Value value = e.splat(share, graph::tensorType(input));
    map.map(input, penalty ? e.mul(value, penalty) : value);
  }
  for (auto [i, value] : llvm::enumerate(prepared))
    bind(outputName(hooks.prepare(), i), value);
  SmallVector<Value> all = inlineBody(b, function, map), results;
  for (unsigned i : wanted)
    results.push_back(all[i]);
  return results;
}

SmallVector<Value> StepBuilder::run(func::FuncOp function,
                                    ArrayRef<unsigned> wanted) {
  if (options.accumulate > 1 || options.alwaysLoop)
    return runLoop(function, wanted);
  auto squeeze = [&](Value batch) -> Value {
    return e.reshape(batch, graph::tensorType(batch).getShape().drop_front());
  };
  return runMicrobatch(function, wanted, squeeze, e.zeros(tensorOf({}, i64)));
}

SmallVector<Value> StepBuilder::runLoop(func::FuncOp function,
                                        ArrayRef<unsigned> wanted) {
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

//===--- the update -------------------------------------------------------===//

StepBuilder::Updated StepBuilder::updateAll(HyperTable &table,
                                            ValueRange values, ValueRange grads,
                                            ValueRange momentValues,
                                            Value scale, Value lr, Value t) {
  SmallVector<Value> scalars{scale};
  llvm::append_range(scalars, optimizer->scalars(e, table, lr, t));
  unsigned count = trained.size();
  Updated result;
  result.moments.resize(moments.size());
  for (auto [i, parameter] : llvm::enumerate(trained)) {
    SmallVector<Value> operands{values[i], grads[i]};
    for (unsigned j = i; j < moments.size(); j += count)
      operands.push_back(momentValues[j]);
    llvm::append_range(operands, scalars);
    auto updated =
        b.create<func::CallOp>(loc,
                               updates.get(parameter.type, parameter.decay,
                                           ValueRange(operands).getTypes()),
                               operands);
    result.parameters.push_back(updated.getResult(0));
    for (auto [j, value] : llvm::enumerate(updated.getResults().drop_front()))
      result.moments[i + j * count] = value;
  }
  return result;
}

//===--- init -------------------------------------------------------------===//

Value StepBuilder::hyperConstant() {
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
      loc, cast<ElementsAttr>(
               DenseElementsAttr::get(hyper.type, ArrayRef<float>(values))));
}

void StepBuilder::extendInit(func::FuncOp init) {
  Operation *terminator = init.front().getTerminator();
  b.setInsertionPoint(terminator);
  SmallVector<Value> values(terminator->getOperands());
  SmallVector<Port> ports = zeroState;
  for (const Port &port : ports)
    values.push_back(e.zeros(port.type));
  ports.push_back(hyper);
  values.push_back(hyperConstant());
  terminator->setOperands(values);
  for (const Port &port : ports)
    init.insertResult(init.getNumResults(), port.type, port.attrs);
}

} // namespace tessera::autodiff
