#include "tools/tessera/OpenedModel.h"
#include "compiler/cache/UserCache.h"
#include "compiler/target/cuda/Cubin.h"
#include "models/HfConfig.h"
#include "runtime/serve/ModelChat.h"
#include "runtime/support/CacheFolder.h"
#include "tools/tessera/EncoderProgram.h"
#include <filesystem>
#include <fmt/format.h>

using namespace tessera;

static Status statusOf(llvm::Error error) {
  if (!error)
    return Status::success();
  return Status::error("{}", llvm::toString(std::move(error)));
}

static std::string lastName(const std::string &path) {
  auto folder = std::filesystem::absolute(path).lexically_normal();
  return folder.has_filename() ? folder.filename().string()
                               : folder.parent_path().filename().string();
}

std::string tessera::nameOfModel(const std::string &place,
                                 const std::string &directory) {
  return directory == place ? lastName(directory) : place;
}

//===--- what is read before anything is compiled -------------------------===//

Status OpenedModel::read(const ModelChoice &given) {
  choice = given;
  auto directory = findModelDirectory(choice.place);
  isRun = !directory;
  if (isRun)
    return readRun();
  folder = source = *directory;
  name = nameOfModel(choice.place, folder);
  return readDirectory();
}

Status OpenedModel::readRun() {
  StatusOr<RunPath> place = resolveRun(choice.place);
  if (!place.ok())
    return place.status();
  run = place.take();
  if (!std::filesystem::exists(run.program()))
    return Status::error("'{}' is neither a run, it has no {}, nor a model's "
                         "directory, it has no config.json",
                         run.run, kProgramFile);
  folder = run.run;
  name = lastName(folder);
  if (!choice.recipe.empty() || !choice.set.empty())
    return Status::error("--recipe, --set, --quant, --kv and --max-context "
                         "are for model directories; a run has its recipe");
  TESSERA_RETURN_IF_ERROR(checkGenerate(run, options()));
  auto read = tokenizer::Tokenizer::load(folder + "/" + kTokenizerFile);
  if (read.ok())
    tokenizer = read.take();
  return read.status();
}

Status OpenedModel::readDirectory() {
  StatusOr<GenerationConfig> settings = loadGenerationConfig(folder);
  if (!settings.ok())
    return settings.status();
  config = settings.take();
  TESSERA_RETURN_IF_ERROR(hal::checkDeviceName(choice.decoder.device));
  StatusOr<models::LoadedConfig> loaded = models::loadHfConfig(folder);
  if (!loaded.ok())
    return loaded.status();
  spec = loaded->spec;
  if (spec.isEncoder())
    return encoderGeneratesNothing(spec);
  auto ending = endTokensOf(folder, config);
  if (!ending.ok())
    return ending.status();
  endTokens = ending.take();
  auto read = tokenizer::Tokenizer::load(folder + "/" + kTokenizerFile);
  if (read.ok())
    tokenizer = read.take();
  return read.status();
}

Status OpenedModel::readChat(std::string &note) {
  if (isRun)
    return Status::success();
  auto loaded = serve::loadModelChat(folder, *tokenizer, note);
  if (loaded.ok())
    ownChat = loaded.take();
  return loaded.status();
}

std::vector<int32_t> OpenedModel::ends() const {
  if (auto end = tokenizer->documentEnd(); end && endTokens.empty())
    return {int32_t(*end)};
  return endTokens;
}

//===--- programs and weights ---------------------------------------------===//

GenerateOptions OpenedModel::options() const {
  GenerateOptions options;
  options.program = decodes ? program.name() : "";
  options.device = choice.decoder.device;
  options.threads = choice.threads;
  options.phases = choice.phases;
  return options;
}

static void endPhase(StartPhases *phases, const char *name) {
  if (phases)
    phases->end(name);
}

Status OpenedModel::open(bool mayScore, const TextSink &note) {
  TESSERA_RETURN_IF_ERROR(statusOf(program.create()));
  return isRun ? openRun(mayScore, note) : openDirectory(note);
}

Status OpenedModel::openRun(bool mayScore, const TextSink &note) {
  Status compiled =
      statusOf(compileDecoder(run, choice.decoder, program.name()));
  bool lacksCompiler =
      choice.decoder.device.starts_with("cuda") && cuda::findNvcc().empty();
  if (!compiled.ok()) {
    if (!mayScore || !lacksCompiler)
      return compiled;
    note(fmt::format("{}; without a program that decodes, every token computes "
                     "its whole context",
                     compiled.message()));
    decodes = false;
  }
  endPhase(choice.phases, "programs");
  auto opened = tessera::openRun(run, options(), note);
  if (!opened.ok())
    return opened.status();
  model = std::move(opened->model);
  source = opened->checkpoint;
  return Status::success();
}

Status OpenedModel::openDirectory(const TextSink &note) {
  DecoderSettings settings = choice.decoder;
  settings.strips = true;
  TESSERA_RETURN_IF_ERROR(statusOf(compileModelDecoder(
      folder, spec, settings, choice.recipe, choice.set, program.name())));
  endPhase(choice.phases, "programs");
  const auto mode = parseCacheMode(choice.decoder.cache);
  weights.folder = userCacheFolder();
  weights.reads = mode && readsCache(*mode) && choice.keepsWeights;
  weights.writes = mode && writesCache(*mode) && choice.keepsWeights;
  weights.note = note;
  GenerateOptions kept = options();
  kept.weights = &weights;
  auto opened = openModelDirectory(folder, kept);
  if (opened.ok())
    model = opened.take();
  return opened.status();
}
