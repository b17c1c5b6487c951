#include "runtime/train/RunStart.h"
#include "runtime/recipe/RecipeChanges.h"
#include "runtime/train/RunDirectory.h"
#include "runtime/train/RunGates.h"
#include "runtime/weights/ImportWeights.h"

#include <filesystem>

namespace tessera {
namespace {

/// The beginning of one run; sets `state` and the model's weights.
class RunStarter {
public:
  RunStarter(RunState &state, TrainModel &model, const TrainOptions &options,
             FileOperations &files, const SayLine &sayLine)
      : state(state), recipe(state.recipe), position(state.position),
        model(model), facts(model.facts()), options(options), files(files),
        sayLine(sayLine) {}
  Status startOrResume();

private:
  Status checkOrigin(const std::string &checkpoint) const;
  Status checkSeed(const std::string &checkpoint) const;
  Status checkSameModel(const std::string &checkpoint,
                        const recipe::Recipe &before) const;
  Status resume(const ResumedCheckpoint &from);
  Status start();

  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args &&...args) {
    sayLine(fmt::format(format, std::forward<Args>(args)...));
  }

  RunState &state;
  RunRecipe &recipe;
  TrainPosition &position;
  TrainModel &model;
  const ModelFacts &facts;
  const TrainOptions &options;
  FileOperations &files;
  const SayLine &sayLine;
};

/// An error if --seed or --set has another seed than the checkpoint.
Status RunStarter::checkSeed(const std::string &checkpoint) const {
  if (options.seed && *options.seed != position.seed)
    return Status::error("'{}' was trained with seed {}, --seed says {}; leave "
                         "--seed out to resume",
                         checkpoint, position.seed, *options.seed);
  for (const std::string &each : options.sets)
    if (each.starts_with("seed=") && recipe.values.seed != position.seed)
      return Status::error("'{}' was trained with seed {}, not {}; leave --set "
                           "seed out to resume",
                           checkpoint, position.seed, recipe.values.seed);
  return Status::success();
}

/// An error if what the checkpoint has would be left out, or mean something
/// else, in this program.
Status RunStarter::checkSameModel(const std::string &checkpoint,
                                  const recipe::Recipe &before) const {
  if (before.task != recipe.values.task)
    return Status::error("'{}' was trained with task: {}, and this program has "
                         "task: {}; start a new run with --init-from",
                         checkpoint, recipe::name(before.task),
                         recipe::name(recipe.values.task));
  TESSERA_RETURN_IF_ERROR(
      checkSameAdapter(checkpoint, before.adapter, recipe.values.adapter));
  return checkSameBase(checkpoint, before, recipe.values);
}

/// Takes over position, seed and, unless this is another program with a recipe
/// of its own, the hyperparameters that the run was trained with.
Status RunStarter::resume(const ResumedCheckpoint &from) {
  position = from.manifest.position;
  state.savedStep = position.step;
  StatusOr<std::string> passed = promotedCheckpoint(options.out);
  if (!passed.ok())
    return passed.status();
  state.promoted = passed.take();
  StatusOr<RunRecipe> before = parseRunRecipe(from.manifest.recipe);
  if (!before.ok())
    return before.status();
  TESSERA_RETURN_IF_ERROR(checkSameModel(from.name, before->values));
  if (from.manifest.programHash != facts.programHash) {
    say("{} was written by another build of this model: the last bits may "
        "differ, and hyperparameters come from this program's recipe",
        from.name);
  } else {
    recipe.values.optimizer = before->values.optimizer;
    recipe.values.schedule = before->values.schedule;
    for (const std::string &each : options.sets)
      TESSERA_RETURN_IF_ERROR(setRecipeKey(recipe, each, facts.rebuildCommand));
    if (!options.steps)
      state.lastStep = uint64_t(recipe.values.schedule.total);
    TESSERA_RETURN_IF_ERROR(recipe::checkTogether(recipe.values));
  }
  TESSERA_RETURN_IF_ERROR(checkSeed(from.name));
  recipe.values.seed = position.seed;
  for (const std::string &change :
       recipe::listChanges(before->values, recipe.values))
    say("the recipe has changed: {}", change);
  say("resuming from {}/{}: step {}, {} tokens", options.out, from.name,
      position.step, shortNumber(double(position.tokens)));
  return Status::success();
}

/// --init-from as it is recorded.
std::string originOf(const std::string &path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

/// A run that began from weights must not begin again without them, nor one
/// that has a checkpoint from any.
Status RunStarter::checkOrigin(const std::string &checkpoint) const {
  StatusOr<std::string> origin = readOrigin(options.out);
  if (!origin.ok())
    return origin.status();
  if (checkpoint.empty() && options.initFrom.empty() && !origin->empty())
    return Status::error("'{}' has no checkpoint yet, and began from the "
                         "weights of '{}'; name them with --init-from",
                         options.out, *origin);
  if (checkpoint.empty() || options.initFrom.empty() ||
      *origin == originOf(options.initFrom))
    return Status::success();
  return Status::error("'{}' has {} and did not begin from the weights of "
                       "'{}'; leave one of --resume and --init-from out",
                       options.out, checkpoint, options.initFrom);
}

Status RunStarter::startOrResume() {
  if (options.resume) {
    StatusOr<std::optional<ResumedCheckpoint>> found =
        resumeNewest(options.out, model);
    if (!found.ok())
      return found.status();
    if (std::optional<ResumedCheckpoint> from = found.take()) {
      TESSERA_RETURN_IF_ERROR(checkOrigin(from->name));
      for (const std::string &line : from->skipped)
        say("{}", line);
      return resume(*from);
    }
    TESSERA_RETURN_IF_ERROR(checkOrigin(""));
    say("no checkpoint in '{}' yet, starting a new run", options.out);
  } else {
    StatusOr<std::vector<std::string>> present = listCheckpoints(options.out);
    if (!present.ok())
      return present.status();
    if (!present->empty())
      return Status::error("'{}' already holds {}; continue it with --resume "
                           "or choose another --out",
                           options.out, present->front());
  }
  return start();
}

/// With new weights, or those of --init-from.
Status RunStarter::start() {
  position.seed = recipe.values.seed;
  if (options.initFrom.empty() &&
      recipe.values.adapter.kind != recipe::AdapterKind::None)
    return Status::error("an adapter is trained for weights that are there; "
                         "name their directory with --init-from");
  TESSERA_RETURN_IF_ERROR(model.initialize(position.seed));
  if (options.initFrom.empty())
    return files.removeTree(options.out + "/" + kOriginFile);
  StatusOr<ImportReport> imported = importWeights(options.initFrom, model);
  if (!imported.ok())
    return imported.status();
  say("loaded {} tensors from '{}'", imported->loaded, options.initFrom);
  for (const std::string &name : imported->initial)
    say("'{}' is not there and begins at random", name);
  if (!imported->unexpected.empty())
    say("{} tensors there are not of this model, such as '{}'",
        imported->unexpected.size(), imported->unexpected.front());
  return replaceFile(files, options.out, kOriginFile,
                     originOf(options.initFrom));
}

} // namespace

StatusOr<RunState> initialState(const ModelFacts &facts,
                                const TrainOptions &options) {
  StatusOr<RunRecipe> parsed = parseRunRecipe(facts.recipe);
  if (!parsed.ok())
    return parsed.status();
  RunState state;
  RunRecipe &recipe = state.recipe;
  recipe = parsed.take();
  for (const std::string &each : options.sets)
    TESSERA_RETURN_IF_ERROR(setRecipeKey(recipe, each, facts.rebuildCommand));
  if (!options.data.empty())
    recipe.values.data.train = options.data;
  if (!options.evalData.empty())
    recipe.values.data.eval = options.evalData;
  if (options.seed)
    recipe.values.seed = *options.seed;
  if (options.evalEvery)
    recipe.values.eval.every = int64_t(*options.evalEvery);
  if (options.checkpointEvery)
    recipe.values.checkpoint.every = int64_t(*options.checkpointEvery);
  state.lastStep =
      options.steps.value_or(uint64_t(recipe.values.schedule.total));
  TESSERA_RETURN_IF_ERROR(recipe::checkTogether(recipe.values));
  return state;
}

Status startOrResume(RunState &state, TrainModel &model,
                     const TrainOptions &options, FileOperations &files,
                     const SayLine &say) {
  TESSERA_RETURN_IF_ERROR(
      RunStarter(state, model, options, files, say).startOrResume());
  state.recipeText = state.recipe.print();
  return Status::success();
}

Status copyIntoRun(const RunState &state, const BatchSource &source,
                   const TrainOptions &options, FileOperations &files) {
  TESSERA_RETURN_IF_ERROR(
      replaceFile(files, options.out, kRecipeFile, state.recipeText));
  if (const std::string path = source.tokenizerFile(); !path.empty()) {
    constexpr std::size_t kMaxTokenizerBytes = 1u << 30;
    StatusOr<std::string> json = readFile(path, kMaxTokenizerBytes);
    if (!json.ok())
      return json.status();
    StatusOr<std::string> own =
        readFile(options.out + "/" + kTokenizerFile, kMaxTokenizerBytes);
    if (state.savedStep && own.ok() && *own != *json)
      return Status::error("'{}' was trained with another tokenizer than "
                           "'{}'; use data of the run's tokenizer",
                           options.out, path);
    TESSERA_RETURN_IF_ERROR(
        replaceFile(files, options.out, kTokenizerFile, *json));
  }
  if (const std::string path =
          source.templateFolder() + "/" + kChatTemplateFile;
      std::filesystem::exists(path)) {
    constexpr std::size_t kMaxTemplateBytes = 1u << 20;
    StatusOr<std::string> text = readFile(path, kMaxTemplateBytes);
    if (!text.ok())
      return text.status();
    TESSERA_RETURN_IF_ERROR(
        replaceFile(files, options.out, kChatTemplateFile, *text));
  }
  if (options.program.empty())
    return Status::success();
  StatusOr<std::string> program = programFileOf(options.program);
  if (!program.ok())
    return program.status();
  return replaceFile(files, options.out, kProgramFile, *program);
}

} // namespace tessera
