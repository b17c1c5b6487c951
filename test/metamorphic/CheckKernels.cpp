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
#include "test/metamorphic/PlannedRun.h"
#include "test/support/RunKernels.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"
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

static std::string compareBits(ArrayRef<Tensor> whole,
                               llvm::Expected<Tensors> other,
                               const llvm::Twine &way) {
  if (!other)
    return (way + ": " + llvm::toString(other.takeError())).str();
  for (size_t i = 0; i < whole.size(); ++i)
    if (!equalBits(whole[i], (*other)[i]))
      return llvm::formatv("result {0} is another {1}", i, way);
  return "";
}

namespace {

// Everything that may run a batch's functions.
struct Programs {
  testing::KernelProgram &kernels;
  PlannedRun &planned;
};

} // namespace

// The message of what differs, empty if nothing does.
static std::string runCase(const Programs &programs, const std::string &name,
                           ArrayRef<Tensor> inputs, ArrayRef<Bounded> expected,
                           Counts &counts) {
  ++counts.runs;
  llvm::Expected<Tensors> whole = programs.kernels.run(name, inputs);
  if (!whole)
    return llvm::toString(whole.takeError());
  std::string difference = compareBounded(expected, *whole, counts);
  if (!difference.empty())
    return difference;
  for (bool inPlace : {false, true}) {
    ++counts.runs;
    difference =
        compareBits(*whole,
                    programs.kernels.run(
                        name, inputs, {.blocksAtOnce = 1, .inPlace = inPlace}),
                    inPlace ? "block by block, in place" : "block by block");
    if (!difference.empty())
      return difference;
  }
  for (unsigned threads : {1, 2}) {
    ++counts.runs;
    difference =
        compareBits(*whole, programs.planned.run(name, inputs, threads),
                    "planned, on " + llvm::Twine(threads) + " threads");
    if (!difference.empty())
      return difference;
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
  auto planned = PlannedRun::build(*module, **program, target,
                                   llvm::xxh3_64bits(together[0]->text));
  if (!planned) {
    error = llvm::toString(planned.takeError());
    return std::nullopt;
  }
  std::vector<std::optional<Failure>> failures;
  for (auto [i, each] : llvm::enumerate(together)) {
    std::string message =
        runCase({**program, **planned}, "f" + std::to_string(i), each->inputs,
                each->expected, counts);
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
