// What a compilation starts from: phases and targets asked for, spec and
// recipe, or a dump to go on from.
#include "compiler/Compilation.h"
#include "compiler/Flops.h"
#include "compiler/Phases.h"
#include "dialects/dist/Cluster.h"
#include "dialects/graph/FoldedAttrs.h"
#include "hardware/Cluster.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "models/Build.h"
#include "models/RewardHead.h"
#include "models/SentenceModel.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <functional>

using namespace mlir;
using namespace tessera;

static std::string phaseNames(models::Mode mode) {
  return llvm::join(
      llvm::map_range(phases(mode),
                      [](const Phase &phase) { return phase.name.str(); }),
      ", ");
}

// Both modes have as many phases; the mode of a dump is known once it is read.
static std::optional<size_t> positionInAnyMode(llvm::StringRef name) {
  std::optional<size_t> position = findPhase(models::Mode::Train, name);
  return position ? position : findPhase(models::Mode::Infer, name);
}

// Which phases run: all after `first`, up to `last`.
llvm::Error Compilation::resolvePhases() {
  mode = request.infer ? models::Mode::Infer : models::Mode::Train;
  for (const std::string *name : {&request.from, &request.to})
    if (!name->empty() && !positionInAnyMode(*name))
      return makeError("unknown phase '" + *name + "'; phases are " +
                       phaseNames(mode));
  if (request.from.empty())
    if (llvm::Error error = checkPhaseOfMode(request.to))
      return error;
  first = request.from.empty() ? 0 : *positionInAnyMode(request.from);
  last = request.to.empty() ? phases(mode).size() - 1
                            : *positionInAnyMode(request.to);
  if (last < first)
    return makeError("--to " + request.to + " comes before --from " +
                     request.from + ": nothing would run");
  return llvm::Error::success();
}

llvm::Error Compilation::checkPhaseOfMode(llvm::StringRef name) const {
  if (name.empty() || findPhase(mode, name))
    return llvm::Error::success();
  return makeError(
      "--mode " +
      llvm::StringRef(mode == models::Mode::Train ? "train" : "infer") +
      " has no phase '" + name + "'; its phases are " + phaseNames(mode));
}

// What was decided before the dump was written cannot be changed after it.
llvm::Error Compilation::checkContinuation() {
  if (!request.mesh.empty() && first >= *findPhase(mode, "shard"))
    return makeError("--mesh has no effect after phase 'shard': " +
                     request.input + " is sharded already");
  if (!request.recipe.empty())
    return makeError("--recipe has no effect with --from: " + request.input +
                     " carries its recipe; --set changes what later phases and "
                     "the run read");
  for (const std::string &override : request.set)
    for (size_t i = 0; i <= first; ++i)
      for (llvm::StringRef key : phases(mode)[i].recipeKeys)
        if (llvm::StringRef(override).starts_with(key))
          return makeError("--set " + override + ": phase '" +
                           phases(mode)[i].name + "' has compiled it into " +
                           request.input +
                           "; compile from the spec to change it");
  return llvm::Error::success();
}

llvm::Error Compilation::readInputs() {
  StatusOr<models::LoadedConfig> loaded =
      request.configText.empty()
          ? models::loadHfConfig(request.spec)
          : models::loadedConfig(request.configText, request.spec);
  if (!loaded.ok())
    return makeError(loaded.message());
  config = loaded.take();
  StatusOr<models::Recipe> parsed =
      models::loadRecipe(request.recipe, request.set);
  if (!parsed.ok())
    return makeError(parsed.message());
  if (mode == models::Mode::Infer)
    parsed = models::withSentenceModel(
        parsed.take(), config.spec,
        llvm::sys::path::parent_path(config.file).str());
  if (!parsed.ok())
    return makeError(parsed.message());
  recipe = parsed.take();
  if (Status status = models::checkRecipe(recipe, config.spec, mode);
      !status.ok())
    return makeError(status.message());
  // What training writes says what it is.
  if (recipe.task == recipe::Task::Reward) {
    StatusOr<std::string> text =
        models::withScoreHead(config.text, config.spec);
    if (!text.ok())
      return makeError(text.message());
    config.text = text.take();
  }
  if (llvm::Error error = takeStoredWeights())
    return error;
  if (llvm::Error error = checkPrecision())
    return error;
  warnOfFewSequences();
  // The runtime reads it from the artifact's recipe.
  if (mode == models::Mode::Infer)
    limitContext();
  return llvm::Error::success();
}

// Ranks without a sequence of their own repeat the work of others.
void Compilation::warnOfFewSequences() const {
  int64_t ranks = 1;
  SmallVector<llvm::StringRef> axes;
  llvm::StringRef(mesh.axes).split(axes, ',');
  for (llvm::StringRef axis : axes) {
    auto [name, number] = axis.split('=');
    int64_t size = 1;
    if ((name == "replicate" || name == "data" || name == "expert") &&
        !number.getAsInteger(10, size))
      ranks *= size;
  }
  const int64_t sequences = recipe.batch.micro;
  if (request.warning && sequences < ranks)
    request.warning(llvm::formatv("batch.micro: {0} sequences for {1} ranks of "
                                  "replicate, data and expert, some of which "
                                  "repeat the work of others; give at least "
                                  "{1}, or fewer ranks",
                                  sequences, ranks)
                        .str());
}

// Whether a --set, or a flag that is one, gives this key.
bool Compilation::isGiven(llvm::StringRef key) const {
  return llvm::any_of(request.set, [&](llvm::StringRef assignment) {
    return assignment.split('=').first.trim() == key;
  });
}

// What a recipe leaves at its default is for any model.
void Compilation::limitContext() {
  const models::Recipe::Inference defaults;
  const int64_t asked = recipe.inference.context,
                most = models::inferenceContext(config.spec, recipe);
  if (most < asked && request.warning &&
      (asked != defaults.context || isGiven("inference.context")))
    request.warning(llvm::formatv("inference.context: {0} tokens are more than "
                                  "the {1} of the model; the context is {1}",
                                  asked, most)
                        .str());
  recipe.inference.context = most;
}

// What there are kernels of for CPUs alone.
llvm::Error Compilation::checkPrecision() {
  if (llvm::Error error = checkBase())
    return error;
  if (mode == models::Mode::Train &&
      recipe.inference.quant != models::Quant::None)
    return makeError("inference.quant: training programs are not quantized; "
                     "add --mode infer, or set it to none");
  if (recipe.inference.quant == models::Quant::Fp8 &&
      recipe.inference.zeros != recipe::ZeroPoints::None)
    return makeError("inference.zeros: fp8 has no zero points; omit "
                     "--quant-zeros, or choose int8 or int4");
  for (const DeviceKind &kind : kindsOf(targets))
    if (mode == models::Mode::Infer && !kind.isCpu() &&
        recipe.inference.layout == recipe::WeightLayout::Packed)
      return makeError("inference.layout: no kernel reads packed weights on " +
                       kind.name + "; set it to rows, or omit the target");
    else if (mode == models::Mode::Infer && !kind.isCpu() &&
             recipe.inference.activations == recipe::Activations::Int8)
      return makeError("inference.activations: int8 is not supported on " +
                       kind.name + "; leave it out, or omit the target");
  if (llvm::Error error = checkInferenceMesh())
    return error;
  if (recipe.compute != models::Precision::Fp64)
    return llvm::Error::success();
  if (mode == models::Mode::Infer)
    return makeError("precision.compute: inference programs support fp32 and "
                     "bf16; choose one of them");
  for (const DeviceKind &kind : kindsOf(targets))
    if (!kind.isCpu())
      return makeError(
          "precision.compute: " + kind.name +
          " supports fp32 and bf16; choose one of them, or omit the target");
  return llvm::Error::success();
}

llvm::Error Compilation::chooseTargets() {
  if (llvm::Error error =
          parseMeshRequest(request.mesh, request.world).moveInto(mesh))
    return error;
  if (llvm::Error error =
          resolveTargets(request.chosenTargets()).moveInto(targets))
    return error;
  // CPU ranks have no links that work by themselves: nothing would be hidden.
  if (mesh.collectiveMatmul == CollectiveMatmulMode::Auto &&
      llvm::any_of(kindsOf(targets), std::mem_fn(&DeviceKind::isCpu)))
    mesh.collectiveMatmul = CollectiveMatmulMode::Off;
  std::string kinds;
  for (const DeviceKind &kind : kindsOf(targets))
    kinds += (kinds.empty() ? "" : " or ") + kind.name;
  if (!request.to.empty() && phases(mode)[last].forEachKind &&
      !phases(mode)[first].forEachKind && kindsOf(targets).size() > 1)
    return makeError(
        "--to " + request.to +
        " prints the module of one kind of device; choose one: --target " +
        kinds);
  return llvm::Error::success();
}

llvm::Error Compilation::importModel() {
  auto start = std::chrono::steady_clock::now();
  llvm::Expected<OwningOpRef<ModuleOp>> built =
      models::buildModel(*context, config.spec, recipe,
                         request.calibrate ? models::Mode::Calibrate : mode);
  if (!built)
    return built.takeError();
  Branch &branch = branches.emplace_back();
  branch.module = std::move(*built);
  ModuleOp module = *branch.module;
  Builder builder(context.get());
  module->setAttr(kConfigAttr, builder.getStringAttr(config.text));
  module->setAttr(kRecipeAttr,
                  builder.getStringAttr(models::printRecipe(recipe)));
  module->setAttr(kModeAttr,
                  builder.getStringAttr(request.infer ? "infer" : "train"));
  module->setAttr(kPhaseAttr, builder.getStringAttr(phases(mode)[0].name));
  if (request.cluster)
    module->setAttr(dist::kClusterAttr,
                    dist::toAttr(context.get(), *request.cluster));
  markLayouts(module);
  annotateForwardFlops(module);
  FirstError error(context.get());
  if (failed(verify(module)))
    return makeError("phase 'import' made an invalid module: " + error.text);
  report("import", start);
  return dump(0, branch);
}

// A module stays what it was made for.
llvm::Error Compilation::checkMode() const {
  bool infers = mode == models::Mode::Infer;
  if (infers && request.executable && request.to.empty())
    return makeError(request.input +
                     ": it has inference programs; use --mode infer");
  if (!infers && request.infer)
    return makeError(request.input + ": it has training programs; omit --mode "
                                     "infer, or compile from the spec");
  return llvm::Error::success();
}

// Any dump can go on from where it was made: it carries its spec and recipe.
llvm::Error Compilation::parseInput() {
  FirstError error(context.get());
  auto text = llvm::MemoryBuffer::getFile(request.input);
  if (!text)
    return makeError(request.input +
                     ": cannot be read: " + text.getError().message());
  Branch &branch = branches.emplace_back();
  branch.module = parseSourceString<ModuleOp>((*text)->getBuffer(),
                                              context.get(), request.input);
  if (!branch.module)
    return makeError(
        request.input + ": " +
        (error.text.empty() ? "cannot be read as MLIR" : error.text));
  ModuleOp module = *branch.module;
  auto configText = module->getAttrOfType<StringAttr>(kConfigAttr);
  auto recipeText = module->getAttrOfType<StringAttr>(kRecipeAttr);
  if (!configText || !recipeText)
    return makeError(request.input + ": the module has no " + kConfigAttr +
                     " and " + kRecipeAttr +
                     "; continue from a file that --dump-ir wrote");
  auto modeText = module->getAttrOfType<StringAttr>(kModeAttr);
  mode = modeText && modeText.getValue() == "infer" ? models::Mode::Infer
                                                    : models::Mode::Train;
  if (llvm::Error error = checkMode())
    return error;
  for (const std::string *name : {&request.from, &request.to})
    if (llvm::Error error = checkPhaseOfMode(*name))
      return error;
  config.text = configText.getValue().str();
  config.file = request.input;
  StatusOr<models::Recipe> parsed =
      models::parseRecipe(recipeText.getValue(), request.input, request.set);
  if (!parsed.ok())
    return makeError(parsed.message());
  recipe = parsed.take();
  module->setAttr(
      kRecipeAttr,
      Builder(context.get()).getStringAttr(models::printRecipe(recipe)));
  if (llvm::Error error = adoptDevices())
    return error;
  if (llvm::Error error = adoptTargets())
    return error;
  if (llvm::Error error = checkPrecision())
    return error;
  nameProgram((*text)->getBuffer());
  return verifyInput();
}

// A program of one device is also that of the others, unless their shares have
// other shapes or they are of other stages: then there is a dump of each, and
// none is enough.
llvm::Error Compilation::adoptDevices() {
  Branch &branch = branches.front();
  auto devices =
      (*branch.module)->getAttrOfType<DenseI64ArrayAttr>(dist::kDevicesAttr);
  if (!devices)
    return llvm::Error::success();
  branch.devices = devices.asArrayRef().vec();
  auto meshes = branch.module->getOps<dist::MeshOp>();
  int64_t all = meshes.empty() ? 1 : (*meshes.begin()).getDeviceCount();
  if (all != devices.size())
    return makeError(request.input + ": the program of " +
                     llvm::Twine(devices.size()) + " of " + llvm::Twine(all) +
                     " devices; the others have other shapes or stages, "
                     "continue from --from=shard");
  return llvm::Error::success();
}

// A tiled module is for the targets that it has kernels for.
llvm::Error Compilation::adoptTargets() {
  if (!phases(mode)[first].forEachKind)
    return llvm::Error::success();
  std::vector<std::string> own = targetsOf(*branches.front().module);
  std::vector<DeviceKind> kinds = kindsOf(own);
  if (kinds.size() != 1)
    return makeError(
        request.input + ": the module has kernels for " +
        (kinds.empty() ? "no known target" : "more than one kind of device"));
  if (!request.targets.empty() && targets != own)
    return makeError("--target has no effect after phase '" + request.from +
                     "': " + request.input + " has kernels for " +
                     llvm::join(own, ", "));
  targets = own;
  branches.front().kind = kinds.front();
  return llvm::Error::success();
}

// An edited dump is verified as the phase's own result is.
llvm::Error Compilation::verifyInput() {
  ModuleOp module = *branches.front().module;
  isFoldedInput = module->hasAttr(graph::kFoldedAttr);
  auto written = module->getAttrOfType<StringAttr>(kPhaseAttr);
  if (!written || written.getValue() != request.from)
    return makeError(
        request.input + " was written after phase '" +
        (written ? written.getValue() : "unknown") + "', not '" + request.from +
        "'; use --from=" + (written ? written.getValue() : "PHASE"));
  if (!phases(mode)[first].verify)
    return llvm::Error::success();
  PassManager verifier(context.get(), ModuleOp::getOperationName());
  phases(mode)[first].verify(verifier, optionsFor(branches.front()));
  FirstError error(context.get());
  if (failed(verifier.run(module)))
    return makeError(request.input + " is not what phase '" + request.from +
                     "' produces: " + error.text);
  return llvm::Error::success();
}

// `source` is config.json, or the IR that compilation continues from. Its hash
// with the recipe identifies the program of a checkpoint.
void Compilation::nameProgram(llvm::StringRef source) {
  std::string resolved = models::printRecipe(recipe),
              all = llvm::join(targets, ",");
  const char *kind = request.calibrate             ? "calibrate"
                     : mode == models::Mode::Infer ? "infer"
                                                   : "train";
  programHash = ArtifactCache::key({source, resolved, all, kind});
  cacheKey = ArtifactCache::key(
      {programHash, request.rebuildCommand,
       request.embedSources ? "sources" : "", request.emulate ? "emulated" : "",
       mesh.axes, std::to_string(mesh.zero), mesh.schedule,
       std::to_string(mesh.chunks),
       std::to_string(static_cast<int>(mesh.collectiveMatmul)),
       std::to_string(mesh.expertTensor), std::to_string(mesh.expertContext),
       request.cluster ? planner::printRates(*request.cluster) : ""});
}
