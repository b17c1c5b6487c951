#include "compiler/Driver.h"
#include "compiler/Compilation.h"
#include "compiler/Files.h"
#include "compiler/Flops.h"
#include "compiler/InitAll.h"
#include "compiler/Phases.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "dialects/graph/FoldedAttrs.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/Timing.h"
#include "mlir/Transforms/Passes.h"
#include "passes/sharding/Sharding.h"
#include "runtime/artifact/AppendedArtifact.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <mutex>

using namespace mlir;
using namespace tessera;

static double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

void Compilation::report(llvm::StringRef what,
                         std::chrono::steady_clock::time_point since) {
  if (request.timing)
    llvm::errs() << llvm::formatv("{0,8:f3} s  {1}\n", secondsSince(since),
                                  what);
}

// Devices are numbered stage by stage.
static void keepStages(std::vector<std::vector<int64_t>> &groups,
                       int64_t stages, ArrayRef<int64_t> kept) {
  int64_t devices = 0;
  for (const std::vector<int64_t> &group : groups)
    devices += static_cast<int64_t>(group.size());
  llvm::erase_if(groups, [&](const std::vector<int64_t> &group) {
    return !llvm::is_contained(kept, group.front() * stages / devices);
  });
}

void Compilation::splitByShare() {
  Branch whole = std::move(branches.front());
  branches.clear();
  auto groups = devicesByProgram(*whole.module);
  if (!request.onlyStages.empty())
    for (auto mesh : whole.module->getOps<dist::MeshOp>())
      if (dist::AxisAttr axis = mesh.getAxis(dist::kPipeAxis))
        keepStages(groups, axis.getSize(), request.onlyStages);
  for (std::vector<int64_t> &devices : groups) {
    bool isLast = &devices == &groups.back();
    OwningOpRef<ModuleOp> module =
        isLast ? std::move(whole.module)
               : OwningOpRef<ModuleOp>(whole.module->clone());
    if (devices.size() > 1 || devices.front() > 0)
      (*module)->setAttr(
          dist::kDevicesAttr,
          DenseI64ArrayAttr::get(context.get(), ArrayRef<int64_t>(devices)));
    branches.push_back(
        {whole.kind, std::move(devices), branches.size(), std::move(module)});
  }
}

void Compilation::splitByKind() {
  std::vector<DeviceKind> kinds = kindsOf(targets);
  std::vector<Branch> shares = std::exchange(branches, {});
  for (Branch &share : shares)
    for (const DeviceKind &kind : kinds) {
      bool isLast = &kind == &kinds.back();
      OwningOpRef<ModuleOp> module =
          isLast ? std::move(share.module)
                 : OwningOpRef<ModuleOp>(share.module->clone());
      branches.push_back({kind, share.devices, share.share, std::move(module)});
    }
}

// Before there is a program for each kind of device, one is that of all
// targets.
PhaseOptions Compilation::optionsFor(const Branch &branch) const {
  const std::vector<std::string> &own = branch.kind.targets;
  return {recipe, own.empty() ? targets : own, mode,
          mesh,   branch.devices.front(),      fold};
}

llvm::Error Compilation::runPhase(size_t i) {
  if (phases(mode)[i].forEachShare && !phases(mode)[i - 1].forEachShare)
    splitByShare();
  if (phases(mode)[i].forEachKind && !phases(mode)[i - 1].forEachKind)
    splitByKind();
  if (llvm::Error error = agree(i))
    return error;
  for (Branch &branch : branches)
    if (llvm::Error error = runPhaseOn(i, branch))
      return error;
  return llvm::Error::success();
}

// Decides what must be the same in the programs of all groups of devices. With
// one group the phase's own passes decide.
llvm::Error Compilation::agree(size_t i) {
  if (!phases(mode)[i].agree || branches.size() == 1)
    return llvm::Error::success();
  SmallVector<ModuleOp> shares;
  for (Branch &branch : branches)
    shares.push_back(*branch.module);
  FirstError error(context.get());
  if (failed(phases(mode)[i].agree(shares)))
    return makeError("phase '" + phases(mode)[i].name +
                     "': devices do not agree: " + error.text);
  return llvm::Error::success();
}

// With the blocks that only the erased programs call.
static LogicalResult keepStep(ModuleOp module) {
  for (auto function :
       llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
    auto program =
        function->getAttrOfType<graph::ProgramAttr>(graph::kProgramAttr);
    if (program && program.getValue() != graph::Program::train_step &&
        program.getValue() != graph::Program::init)
      function.erase();
  }
  PassManager pipeline(module.getContext(), ModuleOp::getOperationName());
  pipeline.addPass(createSymbolDCEPass());
  return pipeline.run(module);
}

llvm::Error Compilation::runPhaseOn(size_t i, Branch &branch) {
  ModuleOp module = *branch.module;
  auto start = std::chrono::steady_clock::now();
  const Phase &phase = phases(mode)[i];
  PassManager pipeline(context.get(), ModuleOp::getOperationName());
  if (failed(mlir::applyPassManagerCLOptions(pipeline)))
    return makeError("--mlir: the options contradict each other");
  mlir::applyDefaultTimingPassManagerCLOptions(pipeline);
  if (request.dumpPasses)
    pipeline.enableIRPrinting([](Pass *, Operation *) { return false; },
                              [](Pass *, Operation *) { return true; },
                              /*printModuleScope=*/true,
                              /*printAfterOnlyOnChange=*/true,
                              /*printAfterOnlyOnFailure=*/false, llvm::errs());
  // At the end of the phase: after each pass the verifier would take longer
  // than most passes.
  const bool looksAtPasses = request.dumpPasses || !request.mlirOptions.empty();
  pipeline.enableVerifier(looksAtPasses);
  phase.build(pipeline, optionsFor(branch));
  FirstError error(context.get());
  if (failed(pipeline.run(module)) ||
      (!looksAtPasses && !request.isTrial && failed(mlir::verify(module))))
    return makeError(
        "phase '" + phase.name + "' failed: " +
        (error.text.empty() ? "no diagnostic was given" : error.text) +
        "; --dump-ir=DIR writes its input");
  annotateProgramFlops(module); // has an effect once, after autodiff
  // Not before: all programs have a say in the shardings of parameters.
  if (request.onlyStep && phase.name == "shard" && failed(keepStep(module)))
    return makeError("cannot erase programs other than @train_step");
  module->setAttr(kPhaseAttr, StringAttr::get(context.get(), phase.name));
  report(phase.name.str() + suffixOf(branch), start);
  return dump(i, branch);
}

// The part of a dump's name that tells groups of devices and device kinds
// apart: empty for the first group and for CPUs.
std::string Compilation::suffixOf(const Branch &branch) const {
  std::string suffix;
  if (branch.share > 0)
    suffix = ".device-" + std::to_string(branch.devices.front());
  auto ofThisShare = [&](const Branch &other) {
    return other.share == branch.share;
  };
  if (llvm::count_if(branches, ofThisShare) == 1 || branch.kind.isCpu())
    return suffix;
  suffix += "." + branch.kind.name;
  std::replace(suffix.begin(), suffix.end(), ':', '-');
  return suffix;
}

llvm::Error Compilation::dump(size_t phase, Branch &branch) {
  if (request.dumpDir.empty() && !request.embedSources)
    return llvm::Error::success();
  std::string text;
  llvm::raw_string_ostream out(text);
  branch.module->print(
      out, OpPrintingFlags().enableDebugInfo(true, /*prettyForm=*/false));
  if (request.embedSources)
    sources.emplace_back(dumpName(mode, phase, suffixOf(branch)), text);
  if (request.dumpDir.empty())
    return llvm::Error::success();
  if (std::error_code error =
          llvm::sys::fs::create_directories(request.dumpDir))
    return makeError(
        request.dumpDir +
        ": cannot create the directory for dumps: " + error.message());
  llvm::SmallString<128> path(request.dumpDir);
  llvm::sys::path::append(path, dumpName(mode, phase, suffixOf(branch)));
  return writeFile(path, {text});
}

llvm::Expected<DevicePart> Compilation::compileBranch(Branch &branch,
                                                      KernelCache *cache) {
  CompileDeviceOptions options;
  options.cache = cache;
  options.emulate = request.emulate;
  options.note = [](llvm::StringRef line) {
    llvm::errs() << "tessera: " << line << "\n";
  };
  options.progress = [&](llvm::StringRef what, llvm::StringRef target,
                         double seconds, bool cached) {
    if (request.timing)
      llvm::errs() << llvm::formatv("{0,8:f3} s    {1} {2}{3}\n", seconds,
                                    target, what, cached ? " (cached)" : "");
  };
  return compileDevice(*branch.module, branch.kind, options);
}

llvm::Expected<std::string> Compilation::buildArtifact() {
  auto start = std::chrono::steady_clock::now();
  std::unique_ptr<KernelCache> cache = openUserKernelCache(cacheMode);
  std::vector<SharePart> shares;
  for (Branch &branch : branches) {
    if (branch.share == shares.size())
      shares.push_back({branch.devices, {}});
    if (llvm::Error error =
            compileBranch(branch, cache.get())
                .moveInto(shares[branch.share].devices.emplace_back()))
      return std::move(error);
  }
  report("kernels", start);
  // Evicts here too, since not every compilation stores an artifact.
  if (writesCache(cacheMode))
    ArtifactCache(cacheMode).trim(request.cacheBytes);
  start = std::chrono::steady_clock::now();
  ArtifactInfo info;
  info.compilerVersion = TESSERA_VERSION;
  info.programHash = programHash;
  info.modelConfig = config.text;
  info.recipe = models::printRecipe(recipe);
  info.rebuildCommand = request.rebuildCommand;
  info.sources = std::move(sources);
  llvm::Expected<std::string> artifact = writeArtifact(shares, info);
  report("artifact", start);
  return artifact;
}

llvm::Error Compilation::write(llvm::StringRef artifact) {
  std::string prefix;
  if (request.executable) {
    auto runtime = llvm::MemoryBuffer::getFile(request.runtime);
    if (!runtime)
      return makeError(
          request.runtime +
          ": cannot read the runtime that becomes the executable: " +
          runtime.getError().message() + "; build the target tessera-run");
    prefix = (*runtime)->getBuffer().str();
  }
  return writeFile(request.output,
                   {prefix, artifact::appendedBytes(prefix.size(), artifact)},
                   request.executable);
}

// The cache is used only if the artifact is the compilation's sole output.
llvm::Expected<bool> Compilation::serveFromCache(const ArtifactCache &cache) {
  if (!request.dumpDir.empty() || request.dumpPasses ||
      !request.mlirOptions.empty())
    return false;
  std::optional<std::string> artifact = cache.load(cacheKey);
  if (!artifact)
    return false;
  if (request.accept)
    if (llvm::Error error = request.accept(memoryOf(*artifact)))
      return std::move(error);
  if (llvm::Error error =
          request.onlyPlan ? llvm::Error::success() : write(*artifact))
    return std::move(error);
  summary.fromCache = true;
  summary.artifactBytes = artifact->size();
  return true;
}

llvm::Error Compilation::writeIr() {
  std::string text;
  llvm::raw_string_ostream out(text);
  branches.front().module->print(
      out, OpPrintingFlags().enableDebugInfo(true, /*prettyForm=*/false));
  out << "\n";
  return writeFile(request.output.empty() ? "-" : request.output, {text});
}

llvm::Error Compilation::runPhases() {
  registerAllDialects(registry);
  cpu::registerCpuTarget(registry);
  context = std::make_unique<MLIRContext>(registry);
  context->loadAllAvailableDialects();
  // Notes are part of an error's line (FirstError).
  context->printOpOnDiagnostic(false);
  // Whole modules are printed between passes, so passes must not run in
  // parallel.
  if (request.dumpPasses || !request.mlirOptions.empty() || request.isTrial)
    context->disableMultithreading();
  llvm::Error error = tryPhases();
  auto isFolded = [](const Branch &branch) {
    return branch.module && (*branch.module)->hasAttr(graph::kFoldedAttr);
  };
  if (!error || isFoldedInput || !llvm::any_of(branches, isFolded))
    return error;
  // Equal layers may differ once they are sharded, and then cannot be restored.
  // Without deduplication compilation takes longer and reports any other error
  // at its own layer.
  std::string reason = llvm::toString(std::move(error));
  fold = false;
  branches.clear();
  sources.clear();
  error = tryPhases();
  if (!error && request.warning && !request.isTrial)
    request.warning("compiled twice, the second time without folding equal "
                    "layers, which takes longer but changes nothing: " +
                    reason);
  if (error && request.timing)
    llvm::errs() << "tessera: failed with folded layers, too: " << reason
                 << "\n";
  return error;
}

llvm::Error Compilation::tryPhases() {
  if (llvm::Error error = request.from.empty() ? importModel() : parseInput())
    return error;
  for (size_t i = first + 1; i <= last; ++i)
    if (llvm::Error error = runPhase(i))
      return error;
  return llvm::Error::success();
}

// Options of MLIR's pass manager, which are global in LLVM.
static llvm::Error parseMlirOptions(const std::vector<std::string> &options) {
  static std::once_flag registered;
  std::call_once(registered, [] {
    registerAllPasses(); // whose names some options take
    mlir::registerPassManagerCLOptions();
    mlir::registerAsmPrinterCLOptions();
    mlir::registerDefaultTimingManagerCLOptions();
  });
  std::vector<const char *> arguments = {"tessera compile --mlir"};
  for (const std::string &option : options)
    arguments.push_back(option.c_str());
  std::string problem;
  llvm::raw_string_ostream out(problem);
  if (options.empty() || llvm::cl::ParseCommandLineOptions(
                             int(arguments.size()), arguments.data(), "", &out))
    return llvm::Error::success();
  // "PROGRAM: what is wrong.  Try: 'PROGRAM --help'"
  llvm::StringRef line = llvm::StringRef(problem).trim().split('\n').first;
  line.consume_front(std::string(arguments.front()) + ": ");
  if (line.empty()) // LLVM printed it
    return makeError("--mlir: an option has an invalid value");
  return makeError("--mlir: " + line.split(".  Try").first);
}

llvm::Error Compilation::askToAccept() const {
  if (!request.accept || last + 1 < phases(mode).size())
    return llvm::Error::success();
  std::vector<RankMemory> all;
  for (const Branch &branch : branches)
    all.push_back(
        memoryOf(*branch.module, branch.devices.front(), branch.kind.name));
  return request.accept(all);
}

// From spec and recipe, or a dump, to the artifact, or to the IR after phase
// `to`.
llvm::Error Compilation::compile() {
  std::optional<CacheMode> cached = parseCacheMode(request.cache);
  if (!cached)
    return makeError("unknown cache mode '" + request.cache +
                     "'; modes are on, off, redo, readonly");
  cacheMode = request.cacheBytes > 0 ? *cached : CacheMode::off;
  if (llvm::Error error = parseMlirOptions(request.mlirOptions))
    return error;
  if (llvm::Error error = resolvePhases())
    return error;
  if (!request.output.empty())
    if (llvm::Error error = checkWritable(request.output))
      return error;
  if (llvm::Error error = chooseTargets())
    return error;
  if (llvm::Error error =
          request.from.empty() ? readInputs() : checkContinuation())
    return error;
  ArtifactCache cache(cacheMode);
  bool whole = request.from.empty() && request.to.empty();
  if (whole) {
    nameProgram(config.text);
    llvm::Expected<bool> served = serveFromCache(cache);
    if (!served || *served)
      return served.takeError();
  }
  if (request.note)
    request.note("compiling …");
  if (llvm::Error error = runPhases())
    return error;
  if (request.planned)
    for (Branch &branch : branches)
      request.planned(*branch.module, branch.devices.front());
  if (llvm::Error error = askToAccept())
    return error;
  if (request.onlyPlan)
    return llvm::Error::success();
  if (!request.to.empty())
    return writeIr();
  llvm::Expected<std::string> artifact = buildArtifact();
  if (!artifact)
    return artifact.takeError();
  if (whole) {
    std::string problem = cache.store(cacheKey, *artifact, request.cacheBytes);
    if (request.note && !problem.empty())
      request.note("compiled programs are not kept: " + problem +
                   "; the next start compiles again");
  }
  summary.artifactBytes = artifact->size();
  return write(*artifact);
}

llvm::Expected<CompileSummary> Compilation::run() {
  auto start = std::chrono::steady_clock::now();
  if (llvm::Error error = compile())
    return std::move(error);
  summary.seconds = secondsSince(start);
  return summary;
}

llvm::Expected<CompileSummary> tessera::compile(const CompileRequest &request) {
  return Compilation(request).run();
}
