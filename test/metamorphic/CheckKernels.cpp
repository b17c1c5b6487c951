#include "test/metamorphic/CheckKernels.h"
#include "compiler/InitAll.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "dialects/tile/TileOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "passes/kernels/Passes.h"
#include "passes/precision/Precision.h"
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
      {compute ? recipe::Precision::Bf16 : recipe::Precision::Fp32}));
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

// What differs between two ways to run the same code, empty if nothing does.
static std::string compareBits(ArrayRef<Tensor> whole,
                               llvm::Expected<Tensors> other) {
  if (!other)
    return llvm::toString(other.takeError());
  for (size_t i = 0; i < whole.size(); ++i)
    if (!equalBits(whole[i], (*other)[i]))
      return llvm::formatv("result {0} has other bits than when run whole", i);
  return "";
}

namespace {

// Everything that may run a batch's functions.
struct Programs {
  testing::KernelProgram &kernels;
  PlannedRun *planned; ///< null if there are no kernels
};

// How a function was run, and what was wrong then: empty if nothing was.
struct Difference {
  std::string way, message;
};

} // namespace

static Difference runCase(const Programs &programs, const std::string &name,
                          ArrayRef<Tensor> inputs, ArrayRef<Bounded> expected,
                          Counts &counts) {
  ++counts.runs;
  llvm::Expected<Tensors> whole = programs.kernels.run(name, inputs);
  if (!whole)
    return {"whole", llvm::toString(whole.takeError())};
  std::string message = compareBounded(expected, *whole, counts);
  if (!message.empty())
    return {"whole", message};
  for (bool inPlace : {false, true}) {
    ++counts.runs;
    message = compareBits(
        *whole, programs.kernels.run(name, inputs,
                                     {.blocksAtOnce = 1, .inPlace = inPlace}));
    if (!message.empty())
      return {inPlace ? "block by block, in place" : "block by block", message};
  }
  for (unsigned threads : {1, 2}) {
    if (!programs.planned)
      break;
    ++counts.runs;
    message = compareBits(*whole, programs.planned->run(name, inputs, threads));
    if (!message.empty())
      return {"planned, threads: " + std::to_string(threads), message};
  }
  return {};
}

//===--- batches ----------------------------------------------------------===//

// Nothing if the module as a whole fails; `error` then says where and why.
std::optional<std::vector<std::optional<Failure>>>
KernelBatch::runTogether(ArrayRef<Case *> together, StringRef target,
                         Counts &counts, Failure &error) {
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
  buildSelectionPipeline(tiling, {target.str()});
  buildKernelsPipeline(tiling, {target.str()});
  if (failed(tiling.run(*module))) {
    error = {"tiling for " + target.str(), diagnostics.text};
    return std::nullopt;
  }
  module->walk([&](tile::KernelOp) { ++counts.kernels; });
  module->walk([&](tile::LaunchOp) { ++counts.launches; });
  auto program = testing::KernelProgram::compile(*module, target);
  if (!program) {
    error = {"compiling for " + target.str(),
             llvm::toString(program.takeError()) + diagnostics.text};
    return std::nullopt;
  }
  // Functions of views alone have no kernels, and devices want code.
  std::unique_ptr<PlannedRun> planned;
  bool isCpu = target.starts_with("cpu:");
  if (isCpu && !(*program)->object().elf.empty()) {
    auto built = PlannedRun::build(*module, **program, target,
                                   llvm::xxh3_64bits(together[0]->text));
    if (!built) {
      error = {"planning for " + target.str(),
               llvm::toString(built.takeError())};
      return std::nullopt;
    }
    planned = std::move(*built);
  }
  std::vector<std::optional<Failure>> failures;
  for (auto [i, each] : llvm::enumerate(together)) {
    Difference difference =
        runCase({**program, planned.get()}, "f" + std::to_string(i),
                each->inputs, each->expected, counts);
    ++counts.functions;
    failures.emplace_back();
    if (!difference.message.empty())
      failures.back() =
          Failure{("kernels of " + target + ", " + difference.way).str(),
                  difference.message, each->text, printed(*each->fused)};
  }
  return failures;
}

std::vector<std::optional<Failure>> KernelBatch::run(StringRef target,
                                                     Counts &counts) {
  SmallVector<Case *> all;
  for (Case &each : cases)
    all.push_back(&each);
  Failure error;
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
      failures.push_back(Failure{error.stage, error.message, each->text,
                                 printed(*each->fused)});
  }
  return failures;
}

} // namespace tessera::metamorphic
