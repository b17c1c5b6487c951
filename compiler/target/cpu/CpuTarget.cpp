#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cpu/CodeGen.h"
#include "compiler/target/cpu/Linker.h"
#include "compiler/target/cpu/Lowering.h"
#include "compiler/target/cpu/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "runtime/support/CpuFeatures.h"
#include "runtime/support/PeakFlops.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/Endian.h"
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

using namespace mlir;

namespace tessera::cpu {

void registerCpuTarget(DialectRegistry &registry) {
  registry
      .insert<tile::TileDialect, arith::ArithDialect, cf::ControlFlowDialect,
              func::FuncDialect, LLVM::LLVMDialect, math::MathDialect,
              memref::MemRefDialect, scf::SCFDialect, vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

std::vector<std::string> requiredFeatures(llvm::StringRef target) {
  std::optional<TileTarget> found = lookupTileTarget(target);
  return found ? found->features : std::vector<std::string>();
}

std::string missingFeatures(llvm::StringRef target) {
  CpuFeatures machine = CpuFeatures::detect();
  std::string missing;
  for (const std::string &feature : requiredFeatures(target))
    if (!machine.has(feature))
      missing += " " + feature;
  return missing;
}

// Where the bf16 dot-product instruction is slow, code that upcasts is faster;
// for f32 both are the same code.
std::string nativeTarget() {
  if (const char *set = std::getenv("TESSERA_CPU"); set && *set) {
    StringRef name(set);
    return (name.starts_with("cpu:") ? name : "cpu:" + name).str();
  }
  for (const TileTarget &target : cpuTileTargets()) {
    bool isSlow = target.bf16Dot && !target.matrixTiles && !bf16DotPays();
    if (!isSlow && missingFeatures(target.name).empty())
      return target.name;
  }
  return {};
}

namespace {

/// One kernel to be compiled.
struct Job {
  tile::KernelOp kernel;
  const TileTarget *target;
  size_t module, size; // index of the code object; ops, an estimate of the cost
  std::string object;
  uint64_t scratchBytes = 0;
};

// Everything that determines an object; the compiler's own executable
// represents its code.
std::string cacheKey(const Job &job) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  job.kernel->print(stream, OpPrintingFlags().useLocalScope());
  text += job.target->name + codeGenVersion(*job.target) +
          std::to_string(hashOfThisProgram());
  return llvm::toHex(llvm::BLAKE3::hash<20>(llvm::arrayRefFromStringRef(text)),
                     /*LowerCase=*/true);
}

llvm::Error compile(Job &job) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(job.kernel.getLoc());
  if (llvm::Error error = lowerKernel(job.kernel, *job.target, *module))
    return error;
  std::string name = job.kernel.getSymName().str();
  auto entry = module->lookupSymbol<func::FuncOp>(name);
  job.scratchBytes =
      cast<IntegerAttr>(entry->getAttr(kScratchAttr)).getValue().getZExtValue();
  entry->removeAttr(kScratchAttr);
  auto failure = [&](const llvm::Twine &what) {
    return llvm::createStringError("kernel @" + name + ": " + what +
                                   "; see the diagnostics above");
  };
  if (failed(convertToLlvmDialect(*module)))
    return failure("cannot be converted to the LLVM dialect");
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(*module, context, name);
  if (!code)
    return failure("cannot be translated to LLVM IR");
  return emitObject(*code, *job.target).moveInto(job.object);
}

// In the cache, the scratch size precedes the object.
llvm::Error compileOrFind(Job &job, KernelCache *cache, bool &found) {
  using namespace llvm::support;
  std::string key = cache ? cacheKey(job) : std::string();
  found = false;
  if (cache)
    if (std::optional<std::string> bytes = cache->find(key);
        bytes && bytes->size() > 8) {
      job.scratchBytes = endian::read64le(bytes->data());
      job.object = bytes->substr(8);
      found = true;
      return llvm::Error::success();
    }
  if (llvm::Error error = compile(job))
    return error;
  if (cache) {
    char size[8];
    endian::write64le(size, job.scratchBytes);
    cache->insert(key, std::string(size, 8) + job.object);
  }
  return llvm::Error::success();
}

llvm::Error runJobs(std::vector<Job> &jobs, const CompileOptions &options,
                    unsigned threads) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  llvm::Error errors = llvm::Error::success();
  auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      auto start = std::chrono::steady_clock::now();
      bool found;
      llvm::Error error = compileOrFind(jobs[i], options.cache, found);
      std::chrono::duration<double> spent =
          std::chrono::steady_clock::now() - start;
      std::lock_guard lock(mutex);
      if (error)
        errors = llvm::joinErrors(std::move(errors), std::move(error));
      else if (options.progress)
        options.progress(jobs[i].kernel.getSymName(), jobs[i].target->name,
                         spent.count(), found);
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < std::min<size_t>(threads, jobs.size()); ++i)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
  return errors;
}

/// A kernel without matrix registers, of a target that has them: reuses the
/// code of the same kernel of another target.
struct Copy {
  tile::KernelOp kernel, original;
  size_t module;
};

// The same kernel for a target with the same vectors and no matrix registers.
tile::KernelOp originalOf(tile::KernelOp kernel, const TileTarget &target,
                          llvm::ArrayRef<KernelModule> modules) {
  if (!target.matrixTiles)
    return {};
  for (const KernelModule &other : modules) {
    if (other.target.lanes != target.lanes || other.target.matrixTiles ||
        other.target.bf16Dot)
      continue;
    auto found = ModuleOp(other.module)
                     .lookupSymbol<tile::KernelOp>(kernel.getSymName());
    if (found && OperationEquivalence::isEquivalentTo(
                     kernel, found, OperationEquivalence::IgnoreLocations))
      return found;
  }
  return {};
}

} // namespace

llvm::Expected<std::vector<CodeObject>>
compileKernels(llvm::ArrayRef<KernelModule> modules,
               const CompileOptions &options) {
  std::vector<Job> jobs;
  std::vector<Copy> copies;
  for (auto [i, entry] : llvm::enumerate(modules))
    for (auto kernel : ModuleOp(entry.module).getOps<tile::KernelOp>()) {
      if (tile::KernelOp original = originalOf(kernel, entry.target, modules)) {
        copies.push_back({kernel, original, i});
        continue;
      }
      size_t size = 0;
      kernel->walk([&](Operation *) { ++size; });
      jobs.push_back({kernel, &entry.target, i, size, {}, 0});
    }
  // The largest first, so that no thread finishes late on one of them.
  llvm::sort(jobs, [](Job &x, Job &y) { return x.size > y.size; });
  unsigned threads =
      options.threads ? options.threads : std::thread::hardware_concurrency();
  if (!modules.empty()) {
    MLIRContext *context = ModuleOp(modules.front().module).getContext();
    context->loadAllAvailableDialects();
    if (!context->isMultithreadingEnabled())
      threads = 1;
  }
  if (llvm::Error error = runJobs(jobs, options, threads))
    return std::move(error);
  llvm::DenseMap<Operation *, size_t> slots;
  for (auto [i, job] : llvm::enumerate(jobs))
    slots[job.kernel] = i;
  for (const Copy &copy : copies) {
    Job job = jobs[slots.at(copy.original)];
    job.kernel = copy.kernel;
    job.module = copy.module;
    jobs.push_back(std::move(job));
  }
  // Objects in a fixed order, independent of the threads.
  llvm::sort(jobs, [](Job &x, Job &y) {
    return x.kernel.getSymName() < y.kernel.getSymName();
  });
  std::vector<CodeObject> objects(modules.size());
  for (size_t i = 0; i < modules.size(); ++i) {
    std::vector<llvm::StringRef> parts;
    for (Job &job : jobs)
      if (job.module == i) {
        parts.push_back(job.object);
        objects[i].scratchBytes[job.kernel.getSymName()] = job.scratchBytes;
      }
    if (llvm::Error error = linkSharedObject(parts).moveInto(objects[i].elf))
      return std::move(error);
  }
  return objects;
}

} // namespace tessera::cpu
