#include "compiler/interpreter/Interpreter.h"
#include "compiler/interpreter/Device.h"
#include "compiler/interpreter/Evaluators.h"
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include <algorithm>
#include <memory>

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;
using namespace tessera::interpreter;

using TensorPtr = std::shared_ptr<const Tensor>;

llvm::Error tessera::interpreter::fail(Operation *op,
                                       const llvm::Twine &message) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << op->getName() << " at " << op->getLoc() << ": " << message;
  return llvm::createStringError(text);
}

static const EvaluatorTable &evaluators() {
  static const EvaluatorTable table = [] {
    EvaluatorTable table;
    addShapeEvaluators(table);
    addMatmulEvaluators(table);
    addSamplingEvaluators(table);
    return table;
  }();
  return table;
}

bool tessera::interpreter::isInterpretable(Type type) {
  auto ranked = dyn_cast<RankedTensorType>(type);
  if (!ranked || !ranked.hasStaticShape())
    return false;
  int64_t count = 1;
  for (int64_t size : ranked.getShape())
    if (llvm::MulOverflow(count, size, count) || count > kMaxElements)
      return false;
  return true;
}

//===--- rounding -------------------------------------------------------===//

static void roundTo(Type element, Tensor &tensor) {
  auto type = dyn_cast<FloatType>(element);
  if (!type || type.isF64())
    return;
  for (double &value : tensor.data) {
    if (type.isF32()) {
      value = static_cast<float>(value);
      continue;
    }
    APFloat rounded(value);
    bool inexact;
    rounded.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven,
                    &inexact);
    value = rounded.convertToDouble();
  }
}

//===--- execution ------------------------------------------------------===//

namespace {

// The values of one function's activation.
using Frame = llvm::DenseMap<Value, TensorPtr>;

class Interpreter {
public:
  Interpreter(ModuleOp module, const Options &options, Device *device)
      : symbols(module), options(options), device(device) {}

  llvm::Expected<Tensors> call(func::FuncOp function,
                               std::vector<TensorPtr> arguments);
  func::FuncOp find(StringRef name) {
    return symbols.lookup<func::FuncOp>(name);
  }

private:
  // Runs a block in `frame`, where its arguments are bound, and gives the
  // operands of its terminator.
  llvm::Expected<std::vector<TensorPtr>> run(Block &block, Frame &frame);
  llvm::Expected<Tensors> execute(Operation &op, ArrayRef<TensorPtr> operands,
                                  Frame &frame);
  llvm::Expected<Tensors> executeLoop(LoopOp loop, Frame &frame);
  llvm::Expected<Tensors> executeCluster(ClusterOp cluster,
                                         ArrayRef<TensorPtr> operands);
  llvm::Expected<Tensors> executeComposite(Decomposable op,
                                           ArrayRef<TensorPtr> operands);
  Tensor executeElementwise(Elementwise op, ArrayRef<TensorPtr> operands);
  llvm::Expected<Tensors> executeDist(Operation &op,
                                      ArrayRef<TensorPtr> operands);

  SymbolTable symbols;
  Options options;
  Device *device; ///< null: the only one
  // Decompositions, each a function of the composite's operands.
  llvm::DenseMap<Operation *, OwningOpRef<func::FuncOp>> decompositions;
};

} // namespace

static std::vector<TensorPtr> share(Tensors tensors) {
  std::vector<TensorPtr> shared;
  for (Tensor &tensor : tensors)
    shared.push_back(std::make_shared<Tensor>(std::move(tensor)));
  return shared;
}

static Tensors copy(ArrayRef<TensorPtr> shared) {
  Tensors tensors;
  for (const TensorPtr &tensor : shared)
    tensors.push_back(*tensor);
  return tensors;
}

// What the value of a type is: of a collective that was started, what it gives.
static Type resultTensor(Type type) {
  auto pending = dyn_cast<dist::PendingType>(type);
  return pending ? pending.getTensor() : type;
}

static void bindValues(Frame &frame, ValueRange values,
                       ArrayRef<TensorPtr> tensors) {
  for (auto [value, tensor] : llvm::zip_equal(values, tensors))
    frame[value] = tensor;
}

llvm::Expected<std::vector<TensorPtr>> Interpreter::run(Block &block,
                                                        Frame &frame) {
  for (Operation &op : block) {
    std::vector<TensorPtr> operands;
    for (Value operand : op.getOperands())
      operands.push_back(frame.at(operand));
    if (op.hasTrait<OpTrait::IsTerminator>())
      return operands;
    if (!llvm::all_of(op.getResultTypes(), [](Type type) {
          return isInterpretable(resultTensor(type));
        }))
      return fail(&op, "a result is not a tensor of static shape, or is too "
                       "large for the interpreter");
    llvm::Expected<Tensors> results = execute(op, operands, frame);
    if (!results)
      return results.takeError();
    if (options.roundToType)
      for (auto [value, tensor] : llvm::zip_equal(op.getResults(), *results))
        roundTo(cast<RankedTensorType>(resultTensor(value.getType()))
                    .getElementType(),
                tensor);
    bindValues(frame, op.getResults(), share(std::move(*results)));
  }
  return fail(block.getParentOp(), "the body has no terminator");
}

llvm::Expected<Tensors> Interpreter::call(func::FuncOp function,
                                          std::vector<TensorPtr> arguments) {
  if (function.isExternal())
    return fail(function, "the function has no body");
  Frame frame;
  bindValues(frame, function.getArguments(), arguments);
  llvm::Expected<std::vector<TensorPtr>> results = run(function.front(), frame);
  if (!results)
    return results.takeError();
  return copy(*results);
}

llvm::Expected<Tensors> Interpreter::execute(Operation &op,
                                             ArrayRef<TensorPtr> operands,
                                             Frame &frame) {
  if (const Evaluator *evaluate = evaluators().find(&op)) {
    SmallVector<const Tensor *> inputs;
    for (const TensorPtr &operand : operands)
      inputs.push_back(operand.get());
    llvm::Expected<Tensor> result = (*evaluate)(&op, inputs);
    if (!result)
      return result.takeError();
    return Tensors{std::move(*result)};
  }
  if (auto elementwise = dyn_cast<Elementwise>(op))
    return Tensors{executeElementwise(elementwise, operands)};
  if (auto composite = dyn_cast<Decomposable>(op))
    return executeComposite(composite, operands);
  if (auto loop = dyn_cast<LoopOp>(op))
    return executeLoop(loop, frame);
  if (auto cluster = dyn_cast<ClusterOp>(op))
    return executeCluster(cluster, operands);
  if (isa<dist::DistDialect>(op.getDialect()))
    return executeDist(op, operands);
  if (auto callOp = dyn_cast<func::CallOp>(op))
    if (func::FuncOp callee = find(callOp.getCallee()))
      return call(callee, operands);
  return fail(&op, "cannot interpret this op; the reference covers graph ops "
                   "and calls of functions of the module");
}

// From one layout to the other, element by element; `pack` or what it undoes.
static void movePacked(
    const dist::Packing &packing, int64_t pieces,
    llvm::function_ref<void(size_t tensor, int64_t element, int64_t packed)>
        move) {
  for (auto [tensor, size] : llvm::enumerate(packing.sizes))
    for (int64_t piece = 0; piece < pieces; ++piece)
      for (int64_t i = 0; i < size; ++i)
        move(tensor, piece * size + i,
             piece * packing.pieceSize + packing.offsets[tensor] + i);
}

static Tensors executePack(dist::PackOp op, ArrayRef<TensorPtr> operands) {
  Tensor packed(cast<RankedTensorType>(op.getResult().getType()).getShape());
  movePacked(dist::packingOf(op.getInputs().getTypes(), op.getPieces()),
             op.getPieces(), [&](size_t tensor, int64_t from, int64_t to) {
               packed.data[to] = operands[tensor]->data[from];
             });
  return Tensors{std::move(packed)};
}

static Tensors executeUnpack(dist::UnpackOp op, const Tensor &packed) {
  Tensors results;
  for (Type type : op.getOutputs().getTypes())
    results.emplace_back(cast<RankedTensorType>(type).getShape());
  movePacked(dist::packingOf(op.getOutputs().getTypes(), op.getPieces()),
             op.getPieces(), [&](size_t tensor, int64_t to, int64_t from) {
               results[tensor].data[to] = packed.data[from];
             });
  return results;
}

// A reshard is the same tensor elsewhere, and what a collective gives is there
// when it starts.
llvm::Expected<Tensors> Interpreter::executeDist(Operation &op,
                                                 ArrayRef<TensorPtr> operands) {
  if (isa<dist::ReshardOp, dist::WaitOp>(op))
    return Tensors{*operands.front()};
  if (auto pack = dyn_cast<dist::PackOp>(op))
    return executePack(pack, operands);
  if (auto unpack = dyn_cast<dist::UnpackOp>(op))
    return executeUnpack(unpack, *operands.front());
  if (!device)
    return fail(&op, "needs the devices of a mesh, of which there is one");
  SmallVector<const Tensor *> inputs;
  for (const TensorPtr &operand : operands)
    inputs.push_back(operand.get());
  llvm::Expected<Tensor> result = device->execute(&op, inputs);
  if (!result)
    return result.takeError();
  return Tensors{std::move(*result)};
}

llvm::Expected<Tensors> Interpreter::executeLoop(LoopOp loop, Frame &frame) {
  std::vector<TensorPtr> carried;
  for (Value init : loop.getInits())
    carried.push_back(frame.at(init));
  auto trip = static_cast<int64_t>(loop.getTrip());
  if (loop.getOverflow())
    trip = 0; // on whole tensors
  if (loop.getCounted())
    trip = std::clamp<int64_t>(
        static_cast<int64_t>(carried.front()->data.front()), 0, trip);
  for (int64_t i = 0; i < trip; ++i) {
    frame[loop.getInduction()] =
        std::make_shared<Tensor>(ArrayRef<int64_t>(), static_cast<double>(i));
    bindValues(frame, ValueRange(loop.getCarried()), carried);
    llvm::Expected<std::vector<TensorPtr>> next =
        run(loop.getBody().front(), frame);
    if (!next)
      return next.takeError();
    carried = std::move(*next);
  }
  return copy(carried);
}

llvm::Expected<Tensors>
Interpreter::executeCluster(ClusterOp cluster, ArrayRef<TensorPtr> operands) {
  Frame frame;
  Block &body = cluster.getBody().front();
  bindValues(frame, body.getArguments(), operands);
  llvm::Expected<std::vector<TensorPtr>> results = run(body, frame);
  if (!results)
    return results.takeError();
  return copy(*results);
}

// A function of the op's operands that returns what it decomposes into.
static OwningOpRef<func::FuncOp> decompositionOf(Decomposable op) {
  OpBuilder builder(op.getContext());
  auto type =
      builder.getFunctionType(op->getOperandTypes(), op->getResultTypes());
  OwningOpRef<func::FuncOp> function(
      func::FuncOp::create(op.getLoc(), "decomposition", type));
  Block *block = function->addEntryBlock();
  builder.setInsertionPointToStart(block);
  IRMapping mapping;
  for (auto [operand, argument] :
       llvm::zip_equal(op->getOpOperands(), block->getArguments()))
    mapping.map(operand.get(), argument);
  Operation *clone = builder.clone(*op, mapping);
  for (auto [i, argument] : llvm::enumerate(block->getArguments()))
    clone->setOperand(i, argument);
  SmallVector<Value> results = cast<Decomposable>(clone).decompose(builder);
  builder.create<func::ReturnOp>(op.getLoc(), results);
  clone->erase();
  return function;
}

llvm::Expected<Tensors>
Interpreter::executeComposite(Decomposable op, ArrayRef<TensorPtr> operands) {
  OwningOpRef<func::FuncOp> &function = decompositions[op];
  if (!function)
    function = decompositionOf(op);
  return call(*function, operands);
}

Tensor Interpreter::executeElementwise(Elementwise op,
                                       ArrayRef<TensorPtr> operands) {
  Tensor result(tensorType(op->getResult(0)).getShape());
  SmallVector<double> scalars(operands.size());
  for (int64_t i = 0; i < result.size(); ++i) {
    for (auto [scalar, operand] : llvm::zip_equal(scalars, operands))
      scalar = operand->data[i];
    result.data[i] = op.evaluateScalar(scalars);
  }
  return result;
}

//===--- entry ----------------------------------------------------------===//

static std::string shapeText(ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (auto [i, size] : llvm::enumerate(shape))
    text += (i ? ", " : "") + std::to_string(size);
  return text + "]";
}

static llvm::Error checkInputs(func::FuncOp function, ArrayRef<Tensor> inputs) {
  if (inputs.size() != function.getNumArguments())
    return fail(function, "expects " + llvm::Twine(function.getNumArguments()) +
                              " inputs, got " + llvm::Twine(inputs.size()));
  for (auto [i, input] : llvm::enumerate(inputs)) {
    if (!isInterpretable(function.getArgument(i).getType()))
      return fail(function, "argument " + llvm::Twine(i) +
                                " is not a tensor of static shape, or is too "
                                "large for the interpreter");
    RankedTensorType type = tensorType(function.getArgument(i));
    if (type.getShape() != ArrayRef(input.shape) ||
        type.getNumElements() != input.size())
      return fail(function, "expects input " + llvm::Twine(i) + " of shape " +
                                shapeText(type.getShape()) + ", got " +
                                shapeText(input.shape) + " with " +
                                llvm::Twine(input.size()) + " elements");
  }
  return llvm::Error::success();
}

static llvm::Expected<Tensors> run(ModuleOp module, StringRef function,
                                   ArrayRef<Tensor> inputs,
                                   const Options &options, Device *device) {
  Interpreter interpreter(module, options, device);
  func::FuncOp entry = interpreter.find(function);
  if (!entry)
    return fail(module, "has no function '" + function + "'");
  if (entry.isExternal())
    return fail(entry, "the function has no body");
  if (llvm::Error error = checkInputs(entry, inputs))
    return error;
  return interpreter.call(entry, share(Tensors(inputs.begin(), inputs.end())));
}

llvm::Expected<Tensors>
tessera::interpreter::interpret(ModuleOp module, StringRef function,
                                ArrayRef<Tensor> inputs,
                                const Options &options) {
  return run(module, function, inputs, options, nullptr);
}

llvm::Expected<Tensors>
tessera::interpreter::interpretOn(Device &device, ModuleOp module,
                                  StringRef function, ArrayRef<Tensor> inputs,
                                  const Options &options) {
  return run(module, function, inputs, options, &device);
}
