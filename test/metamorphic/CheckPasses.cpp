#include "test/metamorphic/CheckPasses.h"
#include "compiler/interpreter/Interpreter.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "passes/fusion/Fusion.h"
#include "passes/precision/Precision.h"
#include "test/metamorphic/Generate.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace tessera::interpreter;

namespace tessera::metamorphic {

void buildFrontPipeline(OpPassManager &pipeline, ModuleOp module) {
  auto compute = module->getAttrOfType<StringAttr>(kComputeAttr);
  bool bf16 = compute && compute.getValue() == "bf16";
  pipeline.addPass(createApplyPrecision(
      {bf16 ? recipe::Precision::Bf16 : recipe::Precision::Fp32}));
  if (auto bytes = module->getAttrOfType<IntegerAttr>(kChunkBytesAttr))
    pipeline.addNestedPass<func::FuncOp>(
        createExpandLinearCrossEntropy({bytes.getInt()}));
  buildFusionPipeline(pipeline);
  pipeline.addPass(createVerifyFused());
}

std::string printed(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  return text;
}

//===--- comparison -------------------------------------------------------===//

static std::string where(size_t result, const Tensor &tensor, int64_t element) {
  std::string index;
  SmallVector<int64_t> strides = stridesOf(tensor.shape);
  for (auto [size, stride] : llvm::zip_equal(tensor.shape, strides))
    index +=
        (index.empty() ? "" : ", ") + std::to_string(element / stride % size);
  return llvm::formatv("result {0} at [{1}]", result, index);
}

// Equal numbers; +0 and -0 are, NaNs are.
static bool same(double x, double y) {
  return x == y || (std::isnan(x) && std::isnan(y));
}

static std::string compareExact(ArrayRef<Tensor> expected,
                                ArrayRef<Tensor> got) {
  for (auto [i, pair] : llvm::enumerate(llvm::zip_equal(expected, got))) {
    auto &[x, y] = pair;
    for (int64_t j = 0; j < x.size(); ++j)
      if (!same(x.data[j], y.data[j]))
        return llvm::formatv("{0} was {1} and is {2}, error {3}",
                             where(i, x, j), llvm::format("%.17g", x.data[j]),
                             llvm::format("%.17g", y.data[j]),
                             llvm::format("%.3g", y.data[j] - x.data[j]));
  }
  return "";
}

std::string compareBounded(ArrayRef<Bounded> expected, ArrayRef<Tensor> got,
                           Counts &counts) {
  std::string text;
  double worst = 0;
  for (auto [i, pair] : llvm::enumerate(llvm::zip_equal(expected, got))) {
    auto &[bounded, tensor] = pair;
    for (int64_t j = 0; j < tensor.size(); ++j) {
      double value = bounded.value.data[j], bound = 4 * bounded.radius.data[j];
      ++counts.elements;
      // A bound as large as what it bounds tells nothing.
      counts.unknown += !(bound < 0.25 * (1 + std::abs(value)));
      // Nor does none: of a query that sees no key, infinity times zero.
      if (!std::isfinite(bound) || !std::isfinite(value))
        continue;
      double error = std::abs(tensor.data[j] - value);
      if (error <= bound || error <= 0x1p-120)
        continue;
      double excess = error / std::max(bound, 1e-300);
      if (!text.empty() && !(excess > worst))
        continue;
      worst = excess;
      text = llvm::formatv(
          "{0} is {1}, expected {2}, error {3}, bound {4}", where(i, tensor, j),
          llvm::format("%.9g", tensor.data[j]), llvm::format("%.9g", value),
          llvm::format("%.3g", error), llvm::format("%.3g", bound));
    }
  }
  return text;
}

//===--- passes -----------------------------------------------------------===//

namespace {

// Interprets after every pass that changed something.
class Observer : public PassInstrumentation {
public:
  Observer(ModuleOp module, ArrayRef<Tensor> inputs, Counts &counts,
           std::optional<Failure> &failure)
      : module(module), inputs(inputs), counts(counts), failure(failure),
        original(module.clone()), print(module) {
    results = interpretNow("generate");
    before = printed(module);
  }

  void runAfterPass(Pass *pass, Operation *) override {
    if (failure)
      return;
    OperationFingerPrint now(module);
    if (now == print)
      return;
    print = now;
    StringRef name = pass->getArgument();
    Tensors next = interpretNow(name);
    if (failure)
      return;
    std::string difference;
    // These change the order of additions.
    if (name == "normalize-reductions" ||
        name == "expand-linear-cross-entropy" || name == "sink-accumulators")
      difference = compareToOriginal(next);
    else
      difference = compareExact(results, next);
    if (!difference.empty())
      failure = Failure{name.str(), difference, before, printed(module)};
    results = std::move(next);
    before = printed(module);
  }

  void runAfterPassFailed(Pass *pass, Operation *) override {
    if (!failure)
      failure = Failure{pass->getArgument().str(), "", before, printed(module)};
  }

private:
  Tensors interpretNow(StringRef stage) {
    ++counts.states;
    llvm::Expected<Tensors> results = interpret(module, "f", inputs);
    if (results)
      return std::move(*results);
    failure = Failure{stage.str(), llvm::toString(results.takeError()), before,
                      printed(module)};
    return {};
  }

  std::string compareToOriginal(ArrayRef<Tensor> next) {
    if (!expected) {
      auto bounded = boundErrors(*original, inputs, kDoubleArithmetic);
      if (!bounded)
        return llvm::toString(bounded.takeError());
      expected = std::move(*bounded);
    }
    return compareBounded(*expected, next, counts);
  }

  ModuleOp module;
  ArrayRef<Tensor> inputs;
  Counts &counts;
  std::optional<Failure> &failure;
  OwningOpRef<ModuleOp> original;
  OperationFingerPrint print;
  Tensors results;
  std::optional<std::vector<Bounded>> expected;
  std::string before;
};

} // namespace

std::optional<Failure> checkPasses(ModuleOp module, ArrayRef<Tensor> inputs,
                                   Counts &counts) {
  std::string diagnostics;
  ScopedDiagnosticHandler handler(
      module.getContext(), [&](Diagnostic &diagnostic) {
        diagnostics += (diagnostics.empty() ? "" : "; ") + diagnostic.str();
        return success();
      });
  ++counts.graphs;
  if (failed(verify(module)))
    return Failure{"generate", "does not verify: " + diagnostics,
                   printed(module), ""};
  std::optional<Failure> failure;
  PassManager passes(module.getContext());
  buildFrontPipeline(passes, module);
  passes.addInstrumentation(
      std::make_unique<Observer>(module, inputs, counts, failure));
  if (failed(passes.run(module)) && failure && failure->message.empty())
    failure->message = diagnostics;
  return failure;
}

} // namespace tessera::metamorphic
