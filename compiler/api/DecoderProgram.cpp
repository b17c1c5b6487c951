#include "compiler/api/DecoderProgram.h"
#include "compiler/api/LocalTargets.h"
#include "compiler/api/Shell.h"
#include "runtime/recipe/Recipe.h"
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace tessera;

static constexpr int64_t kMostConfigBytes = 1 << 20;

llvm::Error TemporaryFile::create() {
  descriptor = ::memfd_create("tessera-program", MFD_CLOEXEC);
  if (descriptor < 0)
    return llvm::createStringError(llvm::errnoAsErrorCode(),
                                   "cannot create a file in memory");
  return llvm::Error::success();
}

std::string TemporaryFile::name() const {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

TemporaryFile::~TemporaryFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

static CompileRequest requestOf(const DecoderSettings &settings,
                                const std::string &place,
                                const std::string &output) {
  CompileRequest request;
  request.targets = localTargets(settings.device);
  request.emulate = llvm::StringRef(settings.device).starts_with("cuda-emu");
  request.infer = true;
  request.calibrate = settings.calibrates;
  request.executable = false;
  request.output = output;
  request.cache = settings.cache;
  request.cacheBytes = settings.cacheBytes;
  request.note = request.warning = settings.note;
  request.mesh = settings.mesh;
  request.rebuildCommand =
      "tessera " + settings.command + " " + shellQuoted(place);
  if (!settings.mesh.empty())
    request.rebuildCommand += " --mesh " + shellQuoted(settings.mesh);
  return request;
}

llvm::Error tessera::compileDecoder(const RunPath &place,
                                    const DecoderSettings &settings,
                                    const std::string &output) {
  StatusOr<ArtifactReader> trained = ArtifactReader::open(place.program());
  if (!trained.ok())
    return llvm::createStringError(trained.message());
  auto recipe = recipe::parseRecipe(trained->root().recipe()->string_view(),
                                    place.program());
  if (!recipe.ok())
    return llvm::createStringError(recipe.message());
  if (recipe->task == recipe::Task::Reward)
    return llvm::createStringError(
        "'" + place.run +
        "' trained a reward model, which gives scores and generates no text; "
        "export it: tessera export " +
        place.run + " -o DIR");
  // The run's recipe may override the recipe that its program was compiled
  // with.
  auto told = recipe::loadRecipe(place.run + "/" + kRecipeFile);
  if (!told.ok())
    return llvm::createStringError(told.message());
  const recipe::Recipe::Inference &inference = told->inference;
  if (inference.quant != recipe::Quant::None)
    return llvm::createStringError(place.run + "/" + kRecipeFile +
                                   ": inference.quant: weights of a run are "
                                   "not quantized; set it to none");
  // Positions after the trained ones are undefined for the model.
  int64_t context = std::min(inference.context, recipe->batch.sequence);
  if (context < inference.context && settings.note &&
      inference.context != recipe::Recipe::Inference().context)
    settings.note(fmt::format("inference.context: {} tokens exceed the {} that "
                              "the model was trained with; using {}",
                              inference.context, context, context));
  // Inference programs do not support fp64; weights are rounded when loaded.
  recipe::Precision compute = recipe->compute == recipe::Precision::Fp64
                                  ? recipe::Precision::Fp32
                                  : recipe->compute;
  // A prompt whose tokens see each other is one chunk.
  const bool isWhole =
      recipe->attention.prompts == recipe::Prompts::Bidirectional;
  const int64_t chunk = isWhole ? context : inference.chunk;
  CompileRequest request = requestOf(settings, place.run, output);
  request.spec = place.program();
  request.configText = trained->root().model_config()->str();
  request.set = {
      fmt::format("precision.compute={}", name(compute)),
      fmt::format("inference.context={}", context),
      fmt::format("attention.prompts={}", name(recipe->attention.prompts)),
      fmt::format("inference.chunk={}", chunk),
      fmt::format("inference.page={}", inference.page),
      fmt::format("inference.kv={}", name(inference.kv)),
      fmt::format("inference.batch={}",
                  settings.batch.value_or(inference.batch)),
      fmt::format("inference.pages={}",
                  settings.pages.value_or(inference.pages))};
  return compile(request).takeError();
}

std::vector<std::string> tessera::modelDefaults(const models::ModelSpec &spec,
                                                bool precision, bool packed) {
  std::vector<std::string> set;
  if (precision)
    set.push_back(spec.checkpointDtype == "bfloat16"
                      ? "precision.compute=bf16"
                      : "precision.compute=fp32");
  if (packed)
    set.emplace_back("inference.layout=packed");
  return set;
}

llvm::Error tessera::setModel(CompileRequest &request,
                              const ModelFiles &files) {
  request.spec = files.place();
  if (files.names().empty())
    return llvm::Error::success();
  auto config = files.read("config.json", kMostConfigBytes);
  if (!config.ok())
    return llvm::createStringError(config.message());
  request.configText = config.take();
  return llvm::Error::success();
}

llvm::Error tessera::compileModelDecoder(const ModelFiles &files,
                                         const models::ModelSpec &spec,
                                         const DecoderSettings &settings,
                                         const std::string &recipe,
                                         const std::vector<std::string> &set,
                                         const std::string &output) {
  CompileRequest request = requestOf(settings, files.place(), output);
  if (llvm::Error error = setModel(request, files))
    return error;
  request.recipe = recipe;
  const bool onCpu = llvm::StringRef(settings.device).starts_with("cpu");
  request.set = modelDefaults(spec, recipe.empty(), settings.packed && onCpu);
  if (settings.batch)
    request.set.push_back(fmt::format("inference.batch={}", *settings.batch));
  if (settings.pages)
    request.set.push_back(fmt::format("inference.pages={}", *settings.pages));
  request.set.insert(request.set.end(), set.begin(), set.end());
  return compile(request).takeError();
}
