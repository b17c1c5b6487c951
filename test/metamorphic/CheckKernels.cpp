#include "test/metamorphic/CheckKernels.h"
#include "compiler/InitAll.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "dialects/tile/TileOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "passes/precision/Precision.h"
#include "passes/tiling/Passes.h"
#include "runtime/support/CpuFeatures.h"
#include "test/metamorphic/Generate.h"
#include "test/support/RunKernels.h"
#include "llvm/Support/FormatVariadic.h"
#include <cstring>

using namespace mlir;
using namespace tessera::interpreter;

namespace tessera::metamorphic {

void registerKernelDialects(DialectRegistry &registry) {
  registerAllDialects(registry);
  cpu::registerCpuTarget(registry);
}

std::string missingFeatures(StringRef target) {
  CpuFeatures machine = CpuFeatures::detect();
  std::string missing;
  for (const std::string &feature : cpu::requiredFeatures(target))
    if (!machine.has(feature))
      missing += " " + feature;
  return missing;
}

namespace {

// Diagnostics of one pipeline, joined.
class Diagnostics {
public:
  explicit Diagnostics(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) {
          text += (text.empty() ? "" : "; ") + diagnostic.str();
          return success();
        }) {}
  std::string text;

private:
  ScopedDiagnosticHandler handler;
};

} // namespace

std::optional<Failure> KernelBatch::add(ModuleOp module) {
  Case added;
  added.text = printed(module);
  added.inputs = makeInputs(module);
  Diagnostics diagnostics(module.getContext());
  // Rounding to bf16 is part of what the graph says from here on.
  added.fused = OwningOpRef<ModuleOp>(module.clone());
  PassManager precision(module.getContext());
  auto compute = module->getAttrOfType<StringAttr>(kComputeAttr);
  precision.addPass(createApplyPrecision(
      {compute ? ComputePrecision::bf16 : ComputePrecision::fp32}));
  if (failed(precision.run(*added.fused)))
    return Failure{"apply-precision", diagnostics.text, added.text, ""};
  auto expected = boundErrors(*added.fused, added.inputs, kKernelArithmetic);
  if (!expected)
    return Failure{"bounds", llvm::toString(expected.takeError()), added.text,
                   ""};
  added.expected = std::move(*expected);
  added.fused = OwningOpRef<ModuleOp>(module.clone());
  PassManager front(module.getContext());
  buildFrontPipeline(front, *added.fused);
  if (failed(front.run(*added.fused)))
    return Failure{"front pipeline", diagnostics.text, added.text,
                   printed(*added.fused)};
  cases.push_back(std::move(added));
  return std::nullopt;
}

//===--- comparison -------------------------------------------------------===//

static bool equalBits(const Tensor &x, const Tensor &y) {
  return x.size() == y.size() &&
         std::memcmp(x.data.data(), y.data.data(),
                     x.data.size() * sizeof(double)) == 0;
}

// The message of what differs, empty if nothing does.
static std::string runCase(testing::KernelProgram &program,
                           const std::string &function, ArrayRef<Tensor> inputs,
                           ArrayRef<Bounded> expected, Counts &counts) {
  ++counts.runs;
  llvm::Expected<Tensors> whole = program.run(function, inputs);
  if (!whole)
    return llvm::toString(whole.takeError());
  std::string difference = compareBounded(expected, *whole, counts);
  if (!difference.empty())
    return difference;
  for (bool inPlace : {false, true}) {
    ++counts.runs;
    llvm::Expected<Tensors> cut =
        program.run(function, inputs, {.blocksAtOnce = 1, .inPlace = inPlace});
    if (!cut)
      return llvm::toString(cut.takeError());
    for (size_t i = 0; i < whole->size(); ++i)
      if (!equalBits((*whole)[i], (*cut)[i]))
        return llvm::formatv("result {0} depends on how blocks are cut{1}", i,
                             inPlace ? " or on working in place" : "");
  }
  return "";
}

//===--- batches ----------------------------------------------------------===//

// Nothing if the module as a whole fails; `error` then says why.
std::optional<std::vector<std::optional<Failure>>>
KernelBatch::runTogether(ArrayRef<Case *> together, StringRef target,
                         Counts &counts, std::string &error) {
  MLIRContext *context = together[0]->fused->getContext();
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(context));
  for (auto [i, each] : llvm::enumerate(together)) {
    auto copy = cast<func::FuncOp>(
        each->fused->lookupSymbol<func::FuncOp>("f")->clone());
    copy.setName("f" + std::to_string(i));
    module->push_back(copy);
  }
  Diagnostics diagnostics(context);
  PassManager tiling(context);
  buildTilingPipeline(tiling, {target.str()});
  if (failed(tiling.run(*module))) {
    error = diagnostics.text;
    return std::nullopt;
  }
  module->walk([&](tile::KernelOp) { ++counts.kernels; });
  module->walk([&](tile::LaunchOp) { ++counts.launches; });
  auto program = testing::KernelProgram::compile(*module, target);
  if (!program) {
    error = llvm::toString(program.takeError()) + diagnostics.text;
    return std::nullopt;
  }
  std::vector<std::optional<Failure>> failures;
  for (auto [i, each] : llvm::enumerate(together)) {
    std::string message = runCase(**program, "f" + std::to_string(i),
                                  each->inputs, each->expected, counts);
    failures.emplace_back();
    if (!message.empty())
      failures.back() = Failure{("kernels of " + target).str(), message,
                                each->text, printed(*each->fused)};
  }
  return failures;
}

std::vector<std::optional<Failure>> KernelBatch::run(StringRef target,
                                                     Counts &counts) {
  SmallVector<Case *> all;
  for (Case &each : cases)
    all.push_back(&each);
  std::string error;
  if (all.empty())
    return {};
  if (auto failures = runTogether(all, target, counts, error))
    return std::move(*failures);
  // One of them does not compile: which?
  std::vector<std::optional<Failure>> failures;
  for (Case *each : all) {
    auto alone = runTogether({each}, target, counts, error);
    if (alone)
      failures.push_back(std::move(alone->front()));
    else
      failures.push_back(Failure{("tiling or compiling for " + target).str(),
                                 error, each->text, printed(*each->fused)});
  }
  return failures;
}

} // namespace tessera::metamorphic
