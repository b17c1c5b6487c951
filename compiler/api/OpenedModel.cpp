#include "compiler/api/OpenedModel.h"
#include "compiler/api/EncoderProgram.h"
#include "compiler/cache/UserCache.h"
#include "compiler/target/cuda/Cubin.h"
#include "runtime/infer/DecodePrograms.h"
#include "runtime/recipe/Recipe.h"
#include "runtime/serve/ModelChat.h"
#include "runtime/support/CacheFolder.h"
#include <filesystem>
#include <fmt/format.h>

using namespace tessera;

static Status statusOf(llvm::Error error) {
  if (!error)
    return Status::success();
  return Status::error("{}", llvm::toString(std::move(error)));
}

//===--- checks before compilation --------------------------------------===//

Status OpenedModel::read(const ModelChoice &given) {
  auto model = findModel(given.place);
  return model.ok() ? read(given, model.take()) : model.status();
}

// What is sharded over ranks is compiled and read for them here.
Status tessera::checkSharded(const std::string &place,
                             const std::optional<ModelSource> &model) {
  if (!model)
    if (auto run = resolveRun(place); !run.ok())
      return run.status();
  if (model && !model->spec.generates())
    return Status::error("only models that generate text are sharded, which "
                         "'{}' does not; omit --mesh",
                         place);
  if (model && !model->packaged)
    return Status::success();
  return Status::error("'{}' is {}, and only model directories are sharded; {}",
                       place, model ? "compiled for one process" : "a run",
                       model ? "give the directory that it was made of, or "
                               "omit --mesh"
                             : "export it (tessera export), or omit --mesh");
}

Status OpenedModel::read(const ModelChoice &given,
                         std::optional<ModelSource> model) {
  choice = given;
  known = std::move(model);
  if (choice.ranks)
    TESSERA_RETURN_IF_ERROR(checkSharded(choice.place, known));
  isRun = !known;
  return isRun ? readRun() : readModel();
}

Status OpenedModel::readRun() {
  StatusOr<RunPath> place = resolveRun(choice.place);
  if (!place.ok())
    return place.status();
  run = place.take();
  if (!std::filesystem::exists(run.program()))
    return Status::error("'{}' is neither a run directory (no {}) nor a model "
                         "directory (no config.json)",
                         run.run, kProgramFile);
  folder = run.run;
  name = lastNameOf(folder);
  if (!choice.recipe.empty() || !choice.set.empty())
    return Status::error(
        "--recipe, --set, --quant, --kv and --max-context apply only to model "
        "directories; a run has its own recipe");
  TESSERA_RETURN_IF_ERROR(checkGenerate(run, options()));
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(choice.decoder.device));
  auto read = tokenizer::Tokenizer::load(folder + "/" + kTokenizerFile);
  if (read.ok())
    tokenizer = read.take();
  return read.status();
}

Status OpenedModel::readModel() {
  const ModelFiles &files = known->files;
  folder = source = files.place();
  name = known->name;
  TESSERA_RETURN_IF_ERROR(checkProgramOptions(*known, choice));
  StatusOr<GenerationConfig> settings = loadGenerationConfig(files);
  if (!settings.ok())
    return settings.status();
  config = settings.take();
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(choice.decoder.device));
  if (!known->spec.generates())
    return generatesNothing(known->spec);
  auto ending = endTokensOf(files, config);
  if (!ending.ok())
    return ending.status();
  endTokens = ending.take();
  if (auto bos = known->spec.bosToken; bos && *bos < known->spec.vocab)
    startToken = int32_t(*bos);
  auto read = tokenizer::Tokenizer::of(files);
  if (read.ok())
    tokenizer = read.take();
  return read.status();
}

Status OpenedModel::readChat(std::string &note) {
  if (isRun)
    return Status::success();
  auto loaded = serve::loadModelChat(known->files, *tokenizer, note);
  if (loaded.ok())
    ownChat = loaded.take();
  return loaded.status();
}

std::vector<int32_t> OpenedModel::ends() const {
  if (auto end = tokenizer->documentEnd(); end && endTokens.empty())
    return {int32_t(*end)};
  return endTokens;
}

//===--- programs and weights -------------------------------------------===//

GenerateOptions OpenedModel::options() const {
  GenerateOptions options;
  options.program = decodes ? program.name() : "";
  options.device = choice.decoder.device;
  options.threads = choice.threads;
  options.pool = choice.pool;
  options.phases = choice.phases;
  options.ranks = choice.ranks;
  return options;
}

Status OpenedModel::open(bool mayScore, const TextSink &note) {
  TESSERA_RETURN_IF_ERROR(statusOf(program.create()));
  return isRun ? openRun(mayScore, note) : openModel(note);
}

Status OpenedModel::follow() {
  auto programs = DecodePrograms::create(model->get());
  return programs.ok() ? choice.ranks->follow(**programs) : programs.status();
}

/// Whether the run's prompts are bidirectional, which @logits is not.
static bool hasWholePrompts(const RunPath &run) {
  auto trained = ArtifactReader::open(run.program());
  if (!trained.ok())
    return false;
  auto recipe = recipe::parseRecipe(trained->root().recipe()->string_view(),
                                    run.program());
  return recipe.ok() &&
         recipe->attention.prompts == recipe::Prompts::Bidirectional;
}

Status OpenedModel::openRun(bool mayScore, const TextSink &note) {
  Status compiled =
      statusOf(compileDecoder(run, choice.decoder, program.name()));
  bool lacksCompiler =
      choice.decoder.device.starts_with("cuda") && cuda::findNvcc().empty();
  if (!compiled.ok()) {
    if (!mayScore || !lacksCompiler || hasWholePrompts(run))
      return compiled;
    note(fmt::format("{}; without a decode program, every token recomputes its "
                     "whole context",
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

Status OpenedModel::openModel(const TextSink &note) {
  ProgramOptions programs = choice;
  programs.decoder.packed = true;
  const auto mode = parseCacheMode(choice.decoder.cache);
  weights.folder = userCacheFolder();
  weights.reads =
      mode && readsCache(*mode) && choice.keepsWeights && !known->isGguf();
  weights.writes =
      mode && writesCache(*mode) && choice.keepsWeights && !known->isGguf();
  weights.note = note;
  GenerateOptions kept = options();
  kept.weights = &weights;
  auto opened = tessera::openModel(*known, programs, kept);
  if (opened.ok())
    model = opened.take();
  return opened.status();
}
