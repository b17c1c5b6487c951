#include "runtime/train/Train.h"
#include "runtime/data/TrainingData.h"
#include "runtime/recipe/RecipeChanges.h"
#include "runtime/support/StopSignals.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/DatasetBatches.h"
#include "runtime/train/HeldOutData.h"
#include "runtime/train/RunDirectory.h"
#include "runtime/train/RunGates.h"
#include "runtime/train/RunMemory.h"
#include "runtime/train/RunRecipe.h"
#include "runtime/train/WallClock.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/ImportWeights.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include <unistd.h>

namespace tessera {
namespace {

/// One run from its options to its last checkpoint. The members are set in the
/// order of prepare().
class Trainer {
public:
  Trainer(TrainModel &model, const TrainOptions &options, FileOperations &files)
      : model(model), facts(model.facts()), options(options), files(files) {}
  StatusOr<TrainSummary> run();

private:
  Status prepare();
  Status readRecipe();
  Status openData();
  Status openEvalData(const DataLayout &layout, const DataNeeds &needs);
  Status checkOrigin(const std::string &checkpoint) const;
  Status startOrResume();
  Status resume(const ResumedCheckpoint &from);
  Status writeHyper();
  Status copyIntoRun();
  Status announce();
  Status evaluateFirst();
  Status conclude();
  /// Nothing changes if `stop` becomes true before the batch is there.
  Status trainOneStep(const std::function<bool()> &stop);
  Status evaluateInto(MetricsRecord &record);
  Status save();
  Status applyGates(const MetricsRecord &record);
  Status promote();
  Status rollBack();
  void report(const MetricsRecord &record);
  bool due(int64_t every) const {
    return every > 0 && position.step % uint64_t(every) == 0;
  }

  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args &&...args) {
    if (options.quiet)
      return;
    progress->finish();
    fmt::print(stderr, "{}\n",
               fmt::format(format, std::forward<Args>(args)...));
  }

  TrainModel &model;
  const ModelFacts &facts;
  const TrainOptions &options;
  FileOperations &files;

  RunRecipe recipe;
  std::string recipeText; // what the checkpoints and recipe.yaml say
  uint64_t lastStep = 0;
  std::unique_ptr<DatasetBatches> dataset;
  BatchSource *source = nullptr;        ///< that one, or the caller's
  std::unique_ptr<HeldOutData> heldOut; ///< null: nothing is evaluated
  std::unique_ptr<RunDirectory> directory;
  TrainPosition position;
  std::optional<uint64_t> savedStep;
  std::string promoted; ///< name of the checkpoint; empty: none yet
  int64_t rollbacks = 0;
  std::unique_ptr<MetricsLog> log;
  std::unique_ptr<Progress> progress;
  bool diverged = false; ///< the loss or gradient norm is not finite
  TrainSummary summary;
  RunMemory memory;
  WallClock clock;
};

Status Trainer::readRecipe() {
  StatusOr<RunRecipe> parsed = parseRunRecipe(facts.recipe);
  if (!parsed.ok())
    return parsed.status();
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
  lastStep = options.steps.value_or(uint64_t(recipe.values.schedule.total));
  return recipe::checkTogether(recipe.values);
}

static DataNeeds needsOf(const ModelFacts &facts,
                         const recipe::Recipe &recipe) {
  DataNeeds needs{facts.vocabSize, facts.sequence, facts.documents};
  if (recipe::hasPairs(recipe.task)) {
    needs.objective = PackedObjective::Preference;
    needs.mostDocuments = 2 * recipe.preference.pairs;
  } else if (recipe.task == recipe::Task::Kto) {
    needs.objective = PackedObjective::Label;
    needs.mostDocuments = recipe.kto.documents;
  }
  needs.teacherTemperature = recipe.distill.temperature;
  needs.prompts = recipe.attention.prompts == recipe::Prompts::Bidirectional;
  return needs;
}

Status Trainer::openData() {
  if ((source = options.source))
    return Status::success();
  if (recipe.values.task == recipe::Task::Policy)
    return Status::error("this program learns from answers that are sampled "
                         "while it trains; run it with `tessera rl`");
  const std::optional<std::string> &folder = recipe.values.data.train;
  if (!folder)
    return Status::error("no training data: give --data DIR, a directory that "
                         "tessera data tokenize or tessera data chat made");
  StatusOr<DataLayout> layout =
      findData(*folder, recipe.values.data.eval.value_or(""));
  if (!layout.ok())
    return layout.status();
  const DataNeeds needs = needsOf(facts, recipe.values);
  auto opened = DatasetBatches::open(*layout, facts, needs);
  if (!opened.ok())
    return opened.status();
  dataset = opened.take();
  source = dataset.get();
  return openEvalData(*layout, needs);
}

Status Trainer::openEvalData(const DataLayout &layout, const DataNeeds &needs) {
  const bool isWanted = model.canEvaluate() && recipe.values.eval.every > 0;
  if (!recipe.values.gates.require.empty() &&
      (!isWanted || layout.eval.empty()))
    return Status::error("gates.require needs held-out data, and '{}' has no "
                         "eval/; name a directory with --eval-data",
                         recipe.values.data.train.value_or(""));
  if (isWanted && layout.eval.empty())
    say("no held-out data: '{}' has no eval/ (--eval-data names another "
        "directory), so nothing is evaluated",
        recipe.values.data.train.value_or(""));
  if (!isWanted || layout.eval.empty())
    return Status::success();
  auto opened = HeldOutData::open(layout.eval, needs, model);
  if (!opened.ok())
    return opened.status();
  heldOut = opened.take();
  if (heldOut->tokenizerHash() != dataset->tokenizerHash())
    return Status::error("'{}' and '{}' were made with different tokenizers",
                         layout.train, layout.eval);
  return Status::success();
}

/// Takes over position, seed and, unless this is another program with a recipe
/// of its own, the hyperparameters that the run was trained with.
Status Trainer::resume(const ResumedCheckpoint &from) {
  position = from.manifest.position;
  savedStep = position.step;
  StatusOr<std::string> passed = promotedCheckpoint(options.out);
  if (!passed.ok())
    return passed.status();
  promoted = passed.take();
  if (options.seed && *options.seed != position.seed)
    return Status::error("'{}' was trained with seed {}, --seed says {}; leave "
                         "--seed out to resume",
                         from.name, position.seed, *options.seed);
  StatusOr<RunRecipe> before = parseRunRecipe(from.manifest.recipe);
  if (!before.ok())
    return before.status();
  if (before->values.task != recipe.values.task)
    return Status::error("'{}' was trained with task: {}, and this program has "
                         "task: {}; start a new run with --init-from",
                         from.name, recipe::name(before->values.task),
                         recipe::name(recipe.values.task));
  const recipe::Recipe::Adapter &adapter = recipe.values.adapter;
  TESSERA_RETURN_IF_ERROR(
      checkSameAdapter(from.name, before->values.adapter, adapter));
  TESSERA_RETURN_IF_ERROR(
      checkSameBase(from.name, before->values, recipe.values));
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
      lastStep = uint64_t(recipe.values.schedule.total);
    TESSERA_RETURN_IF_ERROR(recipe::checkTogether(recipe.values));
  }
  for (const std::string &each : options.sets)
    if (each.starts_with("seed=") && recipe.values.seed != position.seed)
      return Status::error("'{}' was trained with seed {}, not {}; leave --set "
                           "seed out to resume",
                           from.name, position.seed, recipe.values.seed);
  recipe.values.seed = position.seed;
  for (const std::string &change :
       recipe::listChanges(before->values, recipe.values))
    say("the recipe has changed: {}", change);
  say("resuming from {}/{}: step {}, {} tokens", options.out, from.name,
      position.step, shortNumber(double(position.tokens)));
  return Status::success();
}

/// --init-from as it is recorded.
static std::string originOf(const std::string &path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

/// A run that began from weights must not begin again without them, nor one
/// that has a checkpoint from any.
Status Trainer::checkOrigin(const std::string &checkpoint) const {
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

Status Trainer::startOrResume() {
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

Status Trainer::writeHyper() {
  const StateTensor *tensor = model.find(kHyperTensor);
  const std::array<float, kHyperSlots> hyper = recipe.hyper();
  auto bytes = std::as_bytes(std::span(hyper));
  if (!tensor || tensor->size != bytes.size())
    return Status::error("this program has no state tensor '{}' of {} bytes; "
                         "it was compiled by another version, run: {}",
                         kHyperTensor, bytes.size(), facts.rebuildCommand);
  return model.writeState(*tensor, 0, bytes);
}

Status Trainer::copyIntoRun() {
  recipeText = recipe.print();
  TESSERA_RETURN_IF_ERROR(
      replaceFile(files, options.out, kRecipeFile, recipeText));
  if (const std::string path = source->tokenizerFile(); !path.empty()) {
    constexpr std::size_t kMaxTokenizerBytes = 1u << 30;
    StatusOr<std::string> json = readFile(path, kMaxTokenizerBytes);
    if (!json.ok())
      return json.status();
    StatusOr<std::string> own =
        readFile(options.out + "/" + kTokenizerFile, kMaxTokenizerBytes);
    if (savedStep && own.ok() && *own != *json)
      return Status::error("'{}' was trained with another tokenizer than "
                           "'{}'; use data of the run's tokenizer",
                           options.out, path);
    TESSERA_RETURN_IF_ERROR(
        replaceFile(files, options.out, kTokenizerFile, *json));
  }
  if (const std::string path =
          source->templateFolder() + "/" + kChatTemplateFile;
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

Status Trainer::prepare() {
  bool live = !options.json && !options.dumpMetrics && ::isatty(STDERR_FILENO);
  TESSERA_RETURN_IF_ERROR(readRecipe());
  progress =
      std::make_unique<Progress>(options.quiet ? Progress::Style::none
                                 : live        ? Progress::Style::live
                                               : Progress::Style::plain,
                                 std::max<uint64_t>(options.logEvery, 1));
  TESSERA_RETURN_IF_ERROR(openData());
  if (options.writesRun) {
    StatusOr<RunDirectory> locked = RunDirectory::open(options.out);
    if (!locked.ok())
      return locked.status();
    directory = std::make_unique<RunDirectory>(locked.take());
  }
  TESSERA_RETURN_IF_ERROR(startOrResume());
  TESSERA_RETURN_IF_ERROR(writeHyper());
  TESSERA_RETURN_IF_ERROR(copyIntoRun());
  if (options.writesRun) {
    StatusOr<MetricsLog> opened = MetricsLog::open(options.out, position.step);
    if (!opened.ok())
      return opened.status();
    log = std::make_unique<MetricsLog>(opened.take());
  }
  summary.firstStep = position.step;
  TESSERA_RETURN_IF_ERROR(source->begin(model, position));
  TESSERA_RETURN_IF_ERROR(fillMessageBuffers(model));
  StatusOr<RunMemory> measured =
      measureRunMemory(model, options.others, options.baseBytes);
  if (!measured.ok())
    return measured.status();
  memory = *measured;
  return announce();
}

/// Numbers of the model that the tensor has; scales of quantized ones are none.
static uint64_t parametersOf(const StateTensor &tensor) {
  if (tensor.role != StateRole::parameter)
    return 0;
  if (const auto &part = tensor.quantized)
    return part->isScales ? 0
                          : uint64_t(part->layout.rows * part->layout.columns);
  return tensor.size * 8 / safetensorsBits(tensor.type);
}

Status Trainer::announce() {
  uint64_t parameters = 0, adapted = 0;
  for (const StateTensor &tensor : model.state()) {
    parameters += parametersOf(tensor);
    if (isOfAdapter(tensor.name) || tensor.name == kScoreHead ||
        isValueHead(tensor.name) || recipe.values.adapter.saves(tensor.name))
      adapted += parametersOf(tensor);
  }
  const bool hasAdapter =
      std::ranges::any_of(model.state(), isAdapterFactor, &StateTensor::name);
  say("model: {} parameters{}, {} vocabulary, {} compute",
      shortNumber(double(parameters)),
      hasAdapter
          ? fmt::format(" ({} of them trained)", shortNumber(double(adapted)))
          : std::string(),
      facts.vocabSize, name(recipe.values.compute));
  for (const std::string &line : source->describe())
    say("{}", line);
  say("{}", memory.describe());
  StatusOr<std::vector<MeasuredMemory>> ranks = gatherMemory(model, memory);
  if (!ranks.ok())
    return ranks.status();
  if (ranks->size() > 1)
    say("{}", describeRanks(*ranks, /*isOver=*/false));
  return Status::success();
}

Status Trainer::evaluateInto(MetricsRecord &record) {
  auto begin = Clock::now();
  StatusOr<double> loss = heldOut->loss(uint64_t(recipe.values.eval.batches));
  clock.evaluating += secondsSince(begin);
  if (!loss.ok())
    return loss.status();
  record.evalLoss = *loss;
  (position.step == 0 ? summary.evalLossBefore : summary.evalLossAfter) = *loss;
  return Status::success();
}

Status Trainer::save() {
  if (savedStep == position.step)
    return Status::success();
  auto begin = Clock::now();
  TESSERA_RETURN_IF_ERROR(
      saveCheckpoint(files, options.out, model, position, recipeText,
                     uint64_t(recipe.values.checkpoint.keep), promoted));
  clock.saving += secondsSince(begin);
  savedStep = position.step;
  return Status::success();
}

Status Trainer::promote() {
  TESSERA_RETURN_IF_ERROR(save());
  promoted = checkpointName(position.step);
  TESSERA_RETURN_IF_ERROR(writePromoted(files, options.out, promoted));
  say("{} passes the gates", promoted);
  return Status::success();
}

/// To the promoted checkpoint, and on with the data that follows what has been
/// read. Later checkpoints go: resuming must not find them.
Status Trainer::rollBack() {
  const std::string directory = options.out + "/" + promoted;
  StatusOr<CheckpointManifest> manifest = verifyCheckpoint(directory);
  if (!manifest.ok())
    return manifest.status();
  TESSERA_RETURN_IF_ERROR(loadCheckpoint(directory, *manifest, model));
  const uint64_t cursor = position.dataCursor;
  position = manifest->position;
  position.dataCursor = cursor;
  savedStep = position.step;
  ++rollbacks;
  TESSERA_RETURN_IF_ERROR(writeHyper());
  TESSERA_RETURN_IF_ERROR(
      removeNewerCheckpoints(files, options.out, position.step));
  if (log) {
    StatusOr<MetricsLog> opened = MetricsLog::open(options.out, position.step);
    if (!opened.ok())
      return opened.status();
    log = std::make_unique<MetricsLog>(opened.take());
  }
  return source->begin(model, position);
}

/// After an evaluation. Rank 0 decides for all.
Status Trainer::applyGates(const MetricsRecord &record) {
  const recipe::Recipe::Gates &gates = recipe.values.gates;
  if (gates.require.empty() ||
      (!due(recipe.values.eval.every) && position.step != lastStep))
    return Status::success();
  const GateVerdict verdict = judge(record, gates.require);
  const std::array<uint64_t, 2> own = {verdict.isMeasured,
                                       !verdict.missed.empty()};
  StatusOr<std::vector<uint64_t>> all = model.fromEveryRank(own);
  if (!all.ok())
    return all.status();
  if (!all->at(0)) // stopped while it was measured
    return Status::success();
  if (!all->at(1))
    return promote();
  const std::string missed =
      fmt::format("gate missed at step {}: {}", position.step, verdict.missed);
  const bool goesBack = gates.onMiss == recipe::OnMiss::RollBack;
  if (gates.onMiss == recipe::OnMiss::Note || (goesBack && promoted.empty())) {
    say("{}{}", missed,
        goesBack ? "; no checkpoint has passed yet, so the run goes on" : "");
    return Status::success();
  }
  if (goesBack && rollbacks < gates.rollbacks) {
    TESSERA_RETURN_IF_ERROR(rollBack());
    say("{}; back to {}, {} of {} times", missed, promoted, rollbacks,
        gates.rollbacks);
    return Status::success();
  }
  TESSERA_RETURN_IF_ERROR(save());
  summary.failure = fmt::format(
      "{}{}; {} is saved", missed,
      goesBack ? fmt::format(", after going back {} times", rollbacks)
               : std::string(),
      checkpointName(position.step));
  return Status::success();
}

void Trainer::report(const MetricsRecord &record) {
  if (options.json)
    fmt::print("{}\n", printMetrics(record));
  if (options.dumpMetrics && record.loss)
    fmt::print("{}\n", printExactMetrics(record));
  if (options.json || options.dumpMetrics)
    std::fflush(stdout);
  progress->step(record, lastStep);
}

Status Trainer::trainOneStep(const std::function<bool()> &stop) {
  auto asked = Clock::now();
  StatusOr<std::optional<TokenBatch>> next = source->next(stop);
  double waited = secondsSince(asked);
  if (!next.ok())
    return next.status();
  if (!*next)
    return Status::success();
  const TokenBatch &batch = **next;
  auto begin = Clock::now();
  StatusOr<StepMetrics> metrics = model.trainStep(batch, position.seed);
  double seconds = std::max(secondsSince(begin), 1e-9);
  if (!metrics.ok())
    return metrics.status();
  uint64_t step = position.step + 1;
  for (auto [name, value] : {std::pair("loss", metrics->loss),
                             std::pair("gradient norm", metrics->gradNorm)})
    if (!std::isfinite(value)) {
      diverged = true;
      summary.failure = fmt::format(
          "{} is {} at step {}; {}", name, value, step,
          savedStep ? fmt::format("the newest checkpoint is {}, resume with a "
                                  "lower rate, e.g. --resume --set "
                                  "optimizer.lr={}",
                                  checkpointName(*savedStep),
                                  recipe.values.optimizer.lr / 2)
                    : fmt::format("nothing was saved, start again with a lower "
                                  "rate, e.g. --set optimizer.lr={}",
                                  recipe.values.optimizer.lr / 2));
      return Status::success();
    }

  position.step = step;
  position.dataCursor += source->samples();
  position.tokens += uint64_t(metrics->tokens);
  summary.loss = metrics->loss;
  MetricsRecord record;
  record.step = step;
  record.loss = metrics->loss;
  record.gradNorm = metrics->gradNorm;
  record.lr = metrics->lr;
  record.router.assign(metrics->router.begin(), metrics->router.end());
  record.preference.assign(metrics->preference.begin(),
                           metrics->preference.end());
  record.policy.assign(metrics->policy.begin(), metrics->policy.end());
  record.kto.assign(metrics->kto.begin(), metrics->kto.end());
  record.distill.assign(metrics->distill.begin(), metrics->distill.end());
  record.tokens = position.tokens;
  record.stepSeconds = seconds;
  record.waitSeconds = waited;
  record.tokensPerSecond = double(metrics->tokens) / seconds;
  TESSERA_RETURN_IF_ERROR(source->stepped(step, record));
  clock.steps += seconds;
  clock.reading += waited;
  clock.tokens += uint64_t(metrics->tokens);
  if (options.peakFlops > 0 && facts.stepFlops > 0)
    record.mfu = double(facts.stepFlops) / seconds / options.peakFlops;
  if (options.peakFlops > 0 && facts.kernelFlops > 0)
    record.hfu =
        double(facts.kernelFlops) * options.ranks / seconds / options.peakFlops;
  if (heldOut && (due(recipe.values.eval.every) || step == lastStep))
    TESSERA_RETURN_IF_ERROR(evaluateInto(record));
  record.goodput = clock.goodput();
  record.peakBytes = peakResidentBytes();
  if (log)
    TESSERA_RETURN_IF_ERROR(log->append(record));
  report(record);
  return applyGates(record);
}

/// The held-out loss that training starts from.
Status Trainer::evaluateFirst() {
  if (!heldOut || position.step != 0 || lastStep == 0)
    return Status::success();
  MetricsRecord record;
  TESSERA_RETURN_IF_ERROR(evaluateInto(record));
  record.peakBytes = peakResidentBytes();
  say("held-out loss {:.4f} before the first step",
      record.evalLoss.value_or(0));
  return log ? log->append(record) : Status::success();
}

Status Trainer::conclude() {
  summary.lastStep = position.step;
  summary.stopped = position.step < lastStep;
  progress->finish();
  if (summary.stopped)
    say("stopped after step {}; continue with --resume", position.step);
  else if (summary.firstStep >= lastStep)
    say("nothing to do: the run is at step {} of {}; raise --steps",
        position.step, lastStep);
  if (lastStep > uint64_t(recipe.values.schedule.total) &&
      recipe.values.schedule.name != recipe::ScheduleKind::Constant)
    say("from step {} on the rate stayed at its minimum; --set "
        "schedule.total={} stretches the schedule",
        recipe.values.schedule.total, lastStep);
  if (summary.evalLossBefore && summary.evalLossAfter)
    say("held-out loss {:.4f} -> {:.4f}", *summary.evalLossBefore,
        *summary.evalLossAfter);
  if (clock.tokens > 0)
    say("{}", clock.describe());
  say("peak memory: {} resident; {} were planned and {} are outside of the "
      "plan",
      byteText(peakResidentBytes()), byteText(memory.planned),
      byteText(memory.outside()));
  StatusOr<std::vector<MeasuredMemory>> ranks = gatherMemory(model, memory);
  if (!ranks.ok())
    return ranks.status();
  if (ranks->size() > 1)
    say("{}", describeRanks(*ranks, /*isOver=*/true));
  return replaceFile(files, options.out, kMemoryFile, printMemory(*ranks));
}

StatusOr<TrainSummary> Trainer::run() {
  TESSERA_RETURN_IF_ERROR(prepare());
  TESSERA_RETURN_IF_ERROR(evaluateFirst());
  clock = {.begin = Clock::now()};
  const std::function<bool()> stop = [&] {
    return options.stop ? options.stop() : stopRequested();
  };
  while (position.step < lastStep && summary.failure.empty() && !stop()) {
    TESSERA_RETURN_IF_ERROR(trainOneStep(stop));
    if (diverged) // the weights, too, are not finite
      return summary;
    if (position.step > summary.firstStep &&
        due(recipe.values.checkpoint.every))
      TESSERA_RETURN_IF_ERROR(save());
  }
  if (position.step > summary.firstStep)
    TESSERA_RETURN_IF_ERROR(save());
  TESSERA_RETURN_IF_ERROR(conclude());
  return summary;
}

} // namespace

Status outcomeOf(const StatusOr<TrainSummary> &run) {
  if (!run.ok())
    return run.status();
  return run->failure.empty() ? Status::success()
                              : Status::error("{}", run->failure);
}

StatusOr<TrainSummary> runTraining(TrainModel &model,
                                   const TrainOptions &options,
                                   FileOperations &files) {
  return Trainer(model, options, files).run();
}

} // namespace tessera
