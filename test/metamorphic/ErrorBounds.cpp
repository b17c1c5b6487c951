// The walk over a function, and the rules for all but elementwise ops.
#include "test/metamorphic/ErrorBounds.h"
#include "compiler/interpreter/Evaluators.h"
#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <algorithm>
#include <cmath>
#include <memory>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::interpreter;

namespace tessera::metamorphic {

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

double storageError(Type element, double value, const Arithmetic &arithmetic) {
  if (!isa<FloatType>(element) || !arithmetic.narrow)
    return 0;
  value = std::abs(value);
  if (element.isBF16())
    return 0x1p-8 * value + 0x1p-130;
  if (element.isF16())
    return 0x1p-11 * value + 0x1p-25;
  return element.isF32() ? arithmetic.unit * value + 0x1p-130 : 0;
}

namespace {

using BoundedPtr = std::shared_ptr<const Bounded>;
using Frame = llvm::DenseMap<Value, BoundedPtr>;

class Analysis {
public:
  Analysis(ModuleOp module, const Arithmetic &arithmetic)
      : symbols(module), arithmetic(arithmetic) {
    addShapeEvaluators(evaluators);
    addMatmulEvaluators(evaluators);
  }

  llvm::Expected<std::vector<BoundedPtr>> call(func::FuncOp function,
                                               std::vector<BoundedPtr> inputs);

private:
  using Operands = ArrayRef<const Bounded *>;

  llvm::Expected<std::vector<BoundedPtr>> run(Block &block, Frame &frame);
  llvm::Expected<std::vector<BoundedPtr>>
  execute(Operation &op, ArrayRef<BoundedPtr> operands, Frame &frame);
  llvm::Expected<Bounded> primitive(Operation *op, Operands in);
  llvm::Error einsum(EinsumOp op, Operands in, Bounded &result);
  llvm::Error reduce(ReduceOp op, Operands in, Bounded &result);
  llvm::Error scatter(ScatterAddOp op, Operands in, Bounded &result);
  llvm::Expected<Tensor> evaluate(Operation *op,
                                  ArrayRef<const Tensor *> operands) {
    return (*evaluators.find(op))(op, operands);
  }
  double unitOf(Type element) const {
    return element.isF64() ? 0x1p-53 : arithmetic.unit;
  }
  // Of a sum of `terms` numbers in any order: the worst is terms - 1 units,
  // and more than a few times the root of that does not happen.
  double sumError(Type element, double terms) const {
    return unitOf(element) * std::min(terms + 2, 8 * std::sqrt(terms) + 8);
  }

  SymbolTable symbols;
  Arithmetic arithmetic;
  EvaluatorTable evaluators;
};

} // namespace

static Tensor mapped(const Bounded &x,
                     llvm::function_ref<double(double, double)> f) {
  Tensor result(x.value.shape);
  for (int64_t i = 0; i < result.size(); ++i)
    result.data[i] = f(x.value.data[i], x.radius.data[i]);
  return result;
}

static Tensor magnitudes(const Bounded &x) {
  return mapped(x, [](double value, double) { return std::abs(value); });
}
static Tensor largest(const Bounded &x) {
  return mapped(
      x, [](double value, double radius) { return std::abs(value) + radius; });
}
static Tensor highEnd(const Bounded &x) {
  return mapped(x, std::plus<double>());
}
static Tensor lowEnd(const Bounded &x) {
  return mapped(x, std::minus<double>());
}

static bool isExact(const Bounded &x) {
  return llvm::all_of(x.radius.data, [](double radius) { return radius == 0; });
}

//===--- sums of products -------------------------------------------------===//

llvm::Error Analysis::einsum(EinsumOp op, Operands in, Bounded &result) {
  Einsum equation = llvm::cantFail(Einsum::parse(op.getEquation()));
  double terms = 1;
  for (char letter : equation.summed())
    terms *= static_cast<double>(
        Einsum::sizeOf(letter, equation.lhs, in[0]->value.shape));
  Tensor lhs = magnitudes(*in[0]), rhs = magnitudes(*in[1]),
         lhsMost = largest(*in[0]), rhsMost = largest(*in[1]);
  llvm::Expected<Tensor> sum = evaluate(op, {&lhs, &rhs});
  if (!sum)
    return sum.takeError();
  llvm::Expected<Tensor> most = evaluate(op, {&lhsMost, &rhsMost});
  if (!most)
    return most.takeError();
  double error = sumError(tensorType(op.getLhs()).getElementType().isF64()
                              ? tensorType(op.getLhs()).getElementType()
                              : tensorType(op.getResult()).getElementType(),
                          terms);
  for (int64_t i = 0; i < result.value.size(); ++i)
    result.radius.data[i] =
        most->data[i] - sum->data[i] + error * most->data[i] + 0x1p-120;
  return llvm::Error::success();
}

llvm::Error Analysis::reduce(ReduceOp op, Operands in, Bounded &result) {
  if (op.getKind() != ReduceKind::sum) {
    Tensor low = lowEnd(*in[0]), high = highEnd(*in[0]);
    llvm::Expected<Tensor> least = evaluate(op, {&low}),
                           most = evaluate(op, {&high});
    for (auto *end : {&least, &most})
      if (!*end)
        return end->takeError();
    for (int64_t i = 0; i < result.value.size(); ++i) {
      double value = result.value.data[i];
      result.radius.data[i] =
          value == most->data[i] && value == least->data[i]
              ? 0
              : std::max(most->data[i] - value, value - least->data[i]);
    }
    return llvm::Error::success();
  }
  Type element = tensorType(op.getInput()).getElementType();
  Tensor most = largest(*in[0]);
  llvm::Expected<Tensor> radius = evaluate(op, {&in[0]->radius}),
                         sum = evaluate(op, {&most});
  for (auto *part : {&radius, &sum})
    if (!*part)
      return part->takeError();
  double error =
      isa<FloatType>(element)
          ? sumError(element, static_cast<double>(in[0]->value.size()) /
                                  std::max<double>(result.value.size(), 1))
          : 0;
  for (int64_t i = 0; i < result.value.size(); ++i)
    result.radius.data[i] = radius->data[i] + error * sum->data[i];
  return llvm::Error::success();
}

llvm::Error Analysis::scatter(ScatterAddOp op, Operands in, Bounded &result) {
  Tensor base = largest(*in[0]), updates = largest(*in[2]);
  llvm::Expected<Tensor> radius = evaluate(op, {&in[0]->radius, &in[1]->value,
                                                &in[2]->radius}),
                         sum = evaluate(op, {&base, &in[1]->value, &updates});
  for (auto *part : {&radius, &sum})
    if (!*part)
      return part->takeError();
  Type element = tensorType(op.getResult()).getElementType();
  double error =
      sumError(element, static_cast<double>(in[1]->value.size()) + 1);
  for (int64_t i = 0; i < result.value.size(); ++i)
    result.radius.data[i] = radius->data[i] + error * sum->data[i];
  return llvm::Error::success();
}

//===--- one op -----------------------------------------------------------===//

llvm::Expected<Bounded> Analysis::primitive(Operation *op, Operands in) {
  SmallVector<const Tensor *> values, radii;
  for (const Bounded *operand : in) {
    values.push_back(&operand->value);
    radii.push_back(&operand->radius);
  }
  llvm::Expected<Tensor> value = evaluate(op, values);
  if (!value)
    return value.takeError();
  Bounded result{std::move(*value), {}};
  result.radius = Tensor(result.value.shape);
  llvm::Error error = llvm::Error::success();
  // What picks by index is unknown where the index is.
  unsigned index =
      isa<EmbeddingOp, DynamicSliceOp, ScatterAddOp, ScatterRowsOp>(op) ? 1
      : isa<DynamicUpdateOp>(op)                                        ? 2
                                                                        : 0;
  if (index && !isExact(*in[index])) {
    std::ranges::fill(result.radius.data, kInfinity);
  } else if (auto contraction = dyn_cast<EinsumOp>(op)) {
    error = einsum(contraction, in, result);
  } else if (auto reduction = dyn_cast<ReduceOp>(op)) {
    error = reduce(reduction, in, result);
  } else if (auto scatterAdd = dyn_cast<ScatterAddOp>(op)) {
    error = scatter(scatterAdd, in, result);
  } else if (auto random = dyn_cast<RandomOp>(op)) {
    // sqrt(-2 ln u) and the cosine of up to 2π, in f32: absolute, because an
    // angle near π/2 loses all relative accuracy.
    if (random.getKind() == RandomKind::normal)
      std::ranges::fill(result.radius.data, 64 * arithmetic.unit);
  } else if (!isa<ConstantOp, IotaOp>(op)) {
    // Re-indexing moves radii as it moves values; an index stays itself.
    if (index)
      radii[index] = values[index];
    llvm::Expected<Tensor> radius = evaluate(op, radii);
    if (!radius)
      return radius.takeError();
    result.radius = std::move(*radius);
    return result;
  }
  if (error)
    return std::move(error);
  Type element = tensorType(op->getResult(0)).getElementType();
  for (int64_t i = 0; i < result.value.size(); ++i)
    if (isa<EinsumOp, ReduceOp, ScatterAddOp>(op))
      result.radius.data[i] +=
          storageError(element, result.value.data[i], arithmetic);
  return result;
}

llvm::Expected<std::vector<BoundedPtr>>
Analysis::execute(Operation &op, ArrayRef<BoundedPtr> operands, Frame &frame) {
  if (auto loop = dyn_cast<LoopOp>(op)) {
    std::vector<BoundedPtr> carried(operands.begin(), operands.end());
    for (int64_t i = 0; i < static_cast<int64_t>(loop.getTrip()); ++i) {
      Tensor index({}, static_cast<double>(i)), zero({}, 0.0);
      frame[loop.getInduction()] =
          std::make_shared<Bounded>(Bounded{index, zero});
      for (auto [argument, value] : llvm::zip_equal(loop.getCarried(), carried))
        frame[argument] = value;
      auto next = run(loop.getBody().front(), frame);
      if (!next)
        return next.takeError();
      carried = std::move(*next);
    }
    return carried;
  }
  if (auto call = dyn_cast<func::CallOp>(op))
    return this->call(symbols.lookup<func::FuncOp>(call.getCallee()), operands);
  SmallVector<const Bounded *> in;
  for (const BoundedPtr &operand : operands)
    in.push_back(operand.get());
  if (isa<Elementwise>(op))
    return std::vector<BoundedPtr>{
        std::make_shared<Bounded>(boundElementwise(&op, in, arithmetic))};
  if (!evaluators.find(&op))
    return fail(&op, "has no error bound");
  llvm::Expected<Bounded> result = primitive(&op, in);
  if (!result)
    return result.takeError();
  return std::vector<BoundedPtr>{std::make_shared<Bounded>(std::move(*result))};
}

//===--- functions --------------------------------------------------------===//

llvm::Expected<std::vector<BoundedPtr>> Analysis::run(Block &block,
                                                      Frame &frame) {
  for (Operation &op : block) {
    std::vector<BoundedPtr> operands;
    for (Value operand : op.getOperands())
      operands.push_back(frame.at(operand));
    if (op.hasTrait<OpTrait::IsTerminator>())
      return operands;
    auto results = execute(op, operands, frame);
    if (!results)
      return results.takeError();
    for (auto [value, result] : llvm::zip_equal(op.getResults(), *results))
      frame[value] = result;
  }
  return fail(block.getParentOp(), "the body has no terminator");
}

llvm::Expected<std::vector<BoundedPtr>>
Analysis::call(func::FuncOp function, std::vector<BoundedPtr> inputs) {
  Frame frame;
  for (auto [argument, input] :
       llvm::zip_equal(function.getArguments(), inputs))
    frame[argument] = input;
  return run(function.front(), frame);
}

// Every composite in its own primitives.
static void decomposeAll(ModuleOp module) {
  SmallVector<Decomposable> composites;
  do {
    composites.clear();
    module.walk([&](Decomposable op) { composites.push_back(op); });
    for (Decomposable op : composites) {
      OpBuilder builder(op);
      op->replaceAllUsesWith(op.decompose(builder));
      op->erase();
    }
  } while (!composites.empty());
}

llvm::Expected<std::vector<Bounded>> boundErrors(ModuleOp module,
                                                 ArrayRef<Tensor> inputs,
                                                 const Arithmetic &arithmetic) {
  OwningOpRef<ModuleOp> primitives(module.clone());
  decomposeAll(*primitives);
  std::vector<BoundedPtr> arguments;
  for (const Tensor &input : inputs)
    arguments.push_back(
        std::make_shared<Bounded>(Bounded{input, Tensor(input.shape)}));
  Analysis analysis(*primitives, arithmetic);
  auto results = analysis.call(primitives->lookupSymbol<func::FuncOp>("f"),
                               std::move(arguments));
  if (!results)
    return results.takeError();
  std::vector<Bounded> bounded;
  for (const BoundedPtr &result : *results)
    bounded.push_back(*result);
  return bounded;
}

} // namespace tessera::metamorphic
