#include "compiler/Driver.h"
#include "compiler/Files.h"
#include "compiler/Flops.h"
#include "compiler/InitAll.h"
#include "compiler/Phases.h"
#include "compiler/artifact/ArtifactWriter.h"
#include "compiler/cache/ArtifactCache.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "models/Build.h"
#include "models/HfConfig.h"
#include "models/Recipe.h"
#include "passes/tiling/Tiling.h"
#include "runtime/artifact/AppendedArtifact.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>

using namespace mlir;
using namespace tessera;

namespace {

constexpr llvm::StringLiteral kConfigAttr =
    "tessera.config"; // config.json as given
constexpr llvm::StringLiteral kRecipeAttr =
    "tessera.recipe"; // resolved, as YAML
constexpr llvm::StringLiteral kPhaseAttr =
    "tessera.phase"; // the last one that has run

llvm::Error complain(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// Collects diagnostics; a phase that fails is reported by its first error.
class FirstError {
public:
  explicit FirstError(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() != DiagnosticSeverity::Error ||
              !text.empty())
            return success();
          llvm::raw_string_ostream out(text);
          diagnostic.getLocation()->print(out);
          out << ": " << diagnostic.str();
          return success();
        }) {}
  std::string text;

private:
  ScopedDiagnosticHandler handler;
};

class Compilation {
public:
  explicit Compilation(const CompileRequest &request) : request(request) {}

  llvm::Expected<CompileSummary> run();

private:
  llvm::Error compile();
  llvm::Error resolvePhases();
  llvm::Error resolveTargets();
  llvm::Error readInputs();
  llvm::Error checkContinuation();
  void nameProgram(llvm::StringRef source);
  llvm::Expected<bool> serveFromCache(const ArtifactCache &cache);
  llvm::Error runPhases();
  llvm::Error importModel();
  llvm::Error parseInput();
  llvm::Error verifyInput();
  llvm::Error runPhase(size_t i);
  llvm::Error dump(size_t phase);
  llvm::Expected<std::vector<CodeObject>> compileKernels();
  llvm::Expected<std::string> buildArtifact();
  llvm::Error write(llvm::StringRef artifact);
  llvm::Error writeIr();
  void report(llvm::StringRef what,
              std::chrono::steady_clock::time_point since);

  const CompileRequest &request;
  models::LoadedConfig config;
  models::Recipe recipe;
  std::vector<std::string> targets;
  DialectRegistry registry;
  std::unique_ptr<MLIRContext> context;
  OwningOpRef<ModuleOp> module;
  std::vector<std::pair<std::string, std::string>> sources;
  size_t first = 0, last = 0; ///< phases: after which, up to which
  CacheMode cacheMode = CacheMode::on;
  std::string programHash; ///< of what the program computes
  std::string cacheKey;    ///< of all that stands in the artifact
  CompileSummary summary;
};

void Compilation::report(llvm::StringRef what,
                         std::chrono::steady_clock::time_point since) {
  if (request.timing)
    llvm::errs() << llvm::formatv("{0,8:f3} s  {1}\n", secondsSince(since),
                                  what);
}

llvm::Error Compilation::readInputs() {
  StatusOr<models::LoadedConfig> loaded = models::loadHfConfig(request.spec);
  if (!loaded.ok())
    return complain(loaded.message());
  config = loaded.take();
  StatusOr<models::Recipe> parsed =
      models::loadRecipe(request.recipe, request.set);
  if (!parsed.ok())
    return complain(parsed.message());
  recipe = parsed.take();
  if (Status status = models::checkRecipe(recipe, config.spec); !status.ok())
    return complain(status.message());
  return llvm::Error::success();
}

llvm::Error Compilation::resolveTargets() {
  for (const std::string &name : request.targets) {
    if (name == "cpu") {
      for (const TileTarget &target : cpuTileTargets())
        targets.push_back(target.name);
    } else if (lookupTileTarget(name)) {
      targets.push_back(name);
    } else {
      std::string known;
      for (const TileTarget &target : cpuTileTargets())
        known += ", " + target.name;
      return complain("unknown target '" + name +
                      "'; known are cpu (all CPU variants)" + known);
    }
  }
  return llvm::Error::success();
}

llvm::Error Compilation::importModel() {
  auto start = std::chrono::steady_clock::now();
  llvm::Expected<OwningOpRef<ModuleOp>> built =
      models::buildModel(*context, config.spec, recipe);
  if (!built)
    return built.takeError();
  module = std::move(*built);
  Builder builder(context.get());
  (*module)->setAttr(kConfigAttr, builder.getStringAttr(config.text));
  (*module)->setAttr(kRecipeAttr,
                     builder.getStringAttr(models::printRecipe(recipe)));
  (*module)->setAttr(kPhaseAttr, builder.getStringAttr(phases()[0].name));
  annotateForwardFlops(*module);
  FirstError error(context.get());
  if (failed(verify(*module)))
    return complain("phase 'import' made an invalid module: " + error.text);
  report("import", start);
  return dump(0);
}

// Any dump can go on from where it was made: it carries its spec and recipe.
llvm::Error Compilation::parseInput() {
  FirstError error(context.get());
  auto text = llvm::MemoryBuffer::getFile(request.input);
  if (!text)
    return complain(request.input +
                    ": cannot be read: " + text.getError().message());
  module = parseSourceString<ModuleOp>((*text)->getBuffer(), context.get(),
                                       request.input);
  if (!module)
    return complain(
        request.input + ": " +
        (error.text.empty() ? "cannot be read as MLIR" : error.text));
  auto configText = (*module)->getAttrOfType<StringAttr>(kConfigAttr);
  auto recipeText = (*module)->getAttrOfType<StringAttr>(kRecipeAttr);
  if (!configText || !recipeText)
    return complain(request.input + ": the module has no " + kConfigAttr +
                    " and " + kRecipeAttr +
                    "; continue from a file that --dump-ir wrote");
  config.text = configText.getValue().str();
  config.file = request.input;
  StatusOr<models::Recipe> parsed =
      models::parseRecipe(recipeText.getValue(), request.input, request.set);
  if (!parsed.ok())
    return complain(parsed.message());
  recipe = parsed.take();
  (*module)->setAttr(
      kRecipeAttr,
      Builder(context.get()).getStringAttr(models::printRecipe(recipe)));
  nameProgram((*text)->getBuffer());
  return verifyInput();
}

// What people edited is proven as what the phase itself makes is.
llvm::Error Compilation::verifyInput() {
  auto written = (*module)->getAttrOfType<StringAttr>(kPhaseAttr);
  if (!written || written.getValue() != request.from)
    return complain(
        request.input + " was written after phase '" +
        (written ? written.getValue() : "unknown") + "', not '" + request.from +
        "'; use --from=" + (written ? written.getValue() : "PHASE"));
  if (!phases()[first].verify)
    return llvm::Error::success();
  PassManager verifier(context.get(), ModuleOp::getOperationName());
  phases()[first].verify(verifier, PhaseOptions{recipe, targets});
  FirstError error(context.get());
  if (failed(verifier.run(*module)))
    return complain(request.input + " is not what phase '" + request.from +
                    "' may leave behind: " + error.text);
  return llvm::Error::success();
}

// `source` is what the recipe is applied to: config.json, or the IR that a
// compilation goes on from. Checkpoints are known by this name.
void Compilation::nameProgram(llvm::StringRef source) {
  std::string resolved = models::printRecipe(recipe),
              all = llvm::join(targets, ",");
  programHash = ArtifactCache::key({source, resolved, all});
  cacheKey = ArtifactCache::key({programHash, request.rebuildCommand,
                                 request.embedSources ? "sources" : ""});
}

llvm::Error Compilation::runPhase(size_t i) {
  auto start = std::chrono::steady_clock::now();
  const Phase &phase = phases()[i];
  PassManager pipeline(context.get(), ModuleOp::getOperationName());
  if (request.dumpPasses)
    pipeline.enableIRPrinting([](Pass *, Operation *) { return false; },
                              [](Pass *, Operation *) { return true; },
                              /*printModuleScope=*/true,
                              /*printAfterOnlyOnChange=*/true,
                              /*printAfterOnlyOnFailure=*/false, llvm::errs());
  phase.build(pipeline, PhaseOptions{recipe, targets});
  FirstError error(context.get());
  if (failed(pipeline.run(*module)))
    return complain(
        "phase '" + phase.name + "' failed: " +
        (error.text.empty() ? "no diagnostic was given" : error.text) +
        "; --dump-ir=DIR shows what it was given");
  annotateProgramFlops(*module); // nothing to do but once, after autodiff
  (*module)->setAttr(kPhaseAttr, StringAttr::get(context.get(), phase.name));
  report(phase.name, start);
  return dump(i);
}

llvm::Error Compilation::dump(size_t phase) {
  if (request.dumpDir.empty() && !request.embedSources)
    return llvm::Error::success();
  std::string text;
  llvm::raw_string_ostream out(text);
  module->print(out,
                OpPrintingFlags().enableDebugInfo(true, /*prettyForm=*/false));
  if (request.embedSources)
    sources.emplace_back(dumpName(phase), text);
  if (request.dumpDir.empty())
    return llvm::Error::success();
  if (std::error_code error =
          llvm::sys::fs::create_directories(request.dumpDir))
    return complain(
        request.dumpDir +
        ": cannot create the directory for dumps: " + error.message());
  llvm::SmallString<128> path(request.dumpDir);
  llvm::sys::path::append(path, dumpName(phase));
  return writeFile(path, {text});
}

// Machine code for every target, best first, as the runtime will choose.
llvm::Expected<std::vector<CodeObject>> Compilation::compileKernels() {
  std::vector<cpu::KernelModule> kernels;
  for (auto nested : module->getOps<ModuleOp>())
    if (auto name = nested->getAttrOfType<StringAttr>(kTargetAttr))
      if (std::optional<TileTarget> target = lookupTileTarget(name.getValue()))
        kernels.push_back({nested, *target});
  if (kernels.empty())
    return complain("the module has kernels for no known target");
  std::unique_ptr<cpu::KernelCache> cache = cpu::openUserKernelCache(cacheMode);
  cpu::CompileOptions options;
  options.cache = cache.get();
  options.progress = [&](llvm::StringRef kernel, llvm::StringRef target,
                         double seconds, bool cached) {
    ++summary.kernels;
    if (request.timing)
      llvm::errs() << llvm::formatv("{0,8:f3} s    {1} {2}{3}\n", seconds,
                                    target, kernel, cached ? " (cached)" : "");
  };
  llvm::Expected<std::vector<cpu::CodeObject>> compiled =
      cpu::compileKernels(kernels, options);
  if (!compiled)
    return compiled.takeError();
  std::vector<CodeObject> code;
  for (auto [from, object] : llvm::zip(kernels, *compiled)) {
    CodeObject &entry = code.emplace_back();
    entry.target = from.target.name;
    entry.features = cpu::requiredFeatures(from.target.name);
    entry.elf = std::move(object.elf);
    for (auto &[name, bytes] : object.scratchBytes)
      entry.scratch[name] = static_cast<int64_t>(bytes);
  }
  return code;
}

llvm::Expected<std::string> Compilation::buildArtifact() {
  auto start = std::chrono::steady_clock::now();
  llvm::Expected<std::vector<CodeObject>> code = compileKernels();
  if (!code)
    return code.takeError();
  report("kernels", start);
  start = std::chrono::steady_clock::now();
  ArtifactInfo info;
  info.compilerVersion = TESSERA_VERSION;
  info.programHash = programHash;
  info.modelConfig = config.text;
  info.recipe = models::printRecipe(recipe);
  info.rebuildCommand = request.rebuildCommand;
  info.sources = std::move(sources);
  DevicePart part{"cpu", *module, std::move(*code), {}};
  llvm::Expected<std::string> artifact = writeArtifact(part, info);
  report("artifact", start);
  return artifact;
}

llvm::Error Compilation::write(llvm::StringRef artifact) {
  std::string prefix;
  if (request.executable) {
    auto runtime = llvm::MemoryBuffer::getFile(request.runtime);
    if (!runtime)
      return complain(
          request.runtime +
          ": cannot read the runtime that becomes the executable: " +
          runtime.getError().message() + "; build the target tessera-run");
    prefix = (*runtime)->getBuffer().str();
  }
  return writeFile(request.output,
                   {prefix, artifact::appendedBytes(prefix.size(), artifact)},
                   request.executable);
}

// Which phases run: all after `first`, up to `last`.
llvm::Error Compilation::resolvePhases() {
  for (const std::string *name : {&request.from, &request.to})
    if (!name->empty() && !findPhase(*name)) {
      std::string known;
      for (const Phase &phase : phases())
        known += (known.empty() ? "" : ", ") + phase.name.str();
      return complain("unknown phase '" + *name + "'; phases are " + known);
    }
  first = request.from.empty() ? 0 : *findPhase(request.from);
  last = request.to.empty() ? phases().size() - 1 : *findPhase(request.to);
  if (last < first)
    return complain("--to " + request.to + " comes before --from " +
                    request.from + ": nothing would run");
  return llvm::Error::success();
}

// What was decided before the dump was written cannot be changed after it.
llvm::Error Compilation::checkContinuation() {
  if (!request.recipe.empty())
    return complain("--recipe has no effect with --from: " + request.input +
                    " carries its recipe; --set changes what later phases and "
                    "the run read");
  for (const std::string &override : request.set)
    for (size_t i = 0; i <= first; ++i)
      for (llvm::StringRef key : phases()[i].recipeKeys)
        if (llvm::StringRef(override).starts_with(key))
          return complain("--set " + override + ": phase '" + phases()[i].name +
                          "' has compiled it into " + request.input +
                          "; compile from the spec to change it");
  return llvm::Error::success();
}

// The cache serves whole compilations that leave nothing behind but the
// artifact.
llvm::Expected<bool> Compilation::serveFromCache(const ArtifactCache &cache) {
  if (!request.dumpDir.empty() || request.dumpPasses)
    return false;
  std::optional<std::string> artifact = cache.load(cacheKey);
  if (!artifact)
    return false;
  if (llvm::Error error = write(*artifact))
    return std::move(error);
  summary.fromCache = true;
  summary.artifactBytes = artifact->size();
  return true;
}

llvm::Error Compilation::writeIr() {
  std::string text;
  llvm::raw_string_ostream out(text);
  module->print(out,
                OpPrintingFlags().enableDebugInfo(true, /*prettyForm=*/false));
  out << "\n";
  return writeFile(request.output.empty() ? "-" : request.output, {text});
}

llvm::Error Compilation::runPhases() {
  registerAllDialects(registry);
  cpu::registerCpuTarget(registry);
  context = std::make_unique<MLIRContext>(registry);
  context->loadAllAvailableDialects();
  if (llvm::Error error = request.from.empty() ? importModel() : parseInput())
    return error;
  for (size_t i = first + 1; i <= last; ++i)
    if (llvm::Error error = runPhase(i))
      return error;
  return llvm::Error::success();
}

// Spec and recipe to artifact, or only as far as `to`.
llvm::Error Compilation::compile() {
  std::optional<CacheMode> mode = parseCacheMode(request.cache);
  if (!mode)
    return complain("unknown cache mode '" + request.cache +
                    "'; modes are on, off, redo, readonly");
  cacheMode = *mode;
  if (llvm::Error error = resolvePhases())
    return error;
  if (llvm::Error error = resolveTargets())
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
  if (llvm::Error error = runPhases())
    return error;
  if (!request.to.empty())
    return writeIr();
  llvm::Expected<std::string> artifact = buildArtifact();
  if (!artifact)
    return artifact.takeError();
  if (whole)
    cache.store(cacheKey, *artifact);
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

} // namespace

llvm::Expected<CompileSummary> tessera::compile(const CompileRequest &request) {
  return Compilation(request).run();
}
