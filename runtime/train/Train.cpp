#include "runtime/train/Train.h"
#include "runtime/data/TrainingData.h"
#include "runtime/support/StopSignals.h"
#include "runtime/train/DatasetBatches.h"
#include "runtime/train/HeldOutData.h"
#include "runtime/train/RunDirectory.h"
#include "runtime/train/RunGates.h"
#include "runtime/train/RunMemory.h"
#include "runtime/train/RunStart.h"
#include "runtime/train/WallClock.h"
#include "runtime/weights/AdapterNames.h"

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
  Status openData();
  Status openEvalData(const DataLayout &layout, const DataNeeds &needs);
  Status writeHyper();
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

  RunState state;
  RunRecipe &recipe = state.recipe;
  TrainPosition &position = state.position;
  std::unique_ptr<DatasetBatches> dataset;
  BatchSource *source = nullptr;        ///< that one, or the caller's
  std::unique_ptr<HeldOutData> heldOut; ///< null: nothing is evaluated
  std::unique_ptr<RunDirectory> directory;
  int64_t rollbacks = 0;
  std::unique_ptr<MetricsLog> log;
  std::unique_ptr<Progress> progress;
  bool diverged = false; ///< the loss or gradient norm is not finite
  TrainSummary summary;
  RunMemory memory;
  WallClock clock;
};

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

Status Trainer::prepare() {
  bool live = !options.json && !options.dumpMetrics && ::isatty(STDERR_FILENO);
  StatusOr<RunState> start = initialState(facts, options);
  if (!start.ok())
    return start.status();
  state = start.take();
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
  TESSERA_RETURN_IF_ERROR(
      startOrResume(state, model, options, files,
                    [&](const std::string &line) { say("{}", line); }));
  TESSERA_RETURN_IF_ERROR(writeHyper());
  TESSERA_RETURN_IF_ERROR(copyIntoRun(state, *source, options, files));
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
  if (state.savedStep == position.step)
    return Status::success();
  auto begin = Clock::now();
  TESSERA_RETURN_IF_ERROR(
      saveCheckpoint(files, options.out, model, position, state.recipeText,
                     uint64_t(recipe.values.checkpoint.keep), state.promoted));
  clock.saving += secondsSince(begin);
  state.savedStep = position.step;
  return Status::success();
}

Status Trainer::promote() {
  TESSERA_RETURN_IF_ERROR(save());
  state.promoted = checkpointName(position.step);
  TESSERA_RETURN_IF_ERROR(writePromoted(files, options.out, state.promoted));
  say("{} passes the gates", state.promoted);
  return Status::success();
}

/// To the promoted checkpoint, and on with the data that follows what has been
/// read. Later checkpoints go: resuming must not find them.
Status Trainer::rollBack() {
  const std::string directory = options.out + "/" + state.promoted;
  StatusOr<CheckpointManifest> manifest = verifyCheckpoint(directory);
  if (!manifest.ok())
    return manifest.status();
  TESSERA_RETURN_IF_ERROR(loadCheckpoint(directory, *manifest, model));
  const uint64_t cursor = position.dataCursor;
  position = manifest->position;
  position.dataCursor = cursor;
  state.savedStep = position.step;
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
      (!due(recipe.values.eval.every) && position.step != state.lastStep))
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
  if (gates.onMiss == recipe::OnMiss::Note ||
      (goesBack && state.promoted.empty())) {
    say("{}{}", missed,
        goesBack ? "; no checkpoint has passed yet, so the run goes on" : "");
    return Status::success();
  }
  if (goesBack && rollbacks < gates.rollbacks) {
    TESSERA_RETURN_IF_ERROR(rollBack());
    say("{}; back to {}, {} of {} times", missed, state.promoted, rollbacks,
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
  progress->step(record, state.lastStep);
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
          state.savedStep
              ? fmt::format("the newest checkpoint is {}, resume with a "
                            "lower rate, e.g. --resume --set "
                            "optimizer.lr={}",
                            checkpointName(*state.savedStep),
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
  if (heldOut && (due(recipe.values.eval.every) || step == state.lastStep))
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
  if (!heldOut || position.step != 0 || state.lastStep == 0)
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
  summary.stopped = position.step < state.lastStep;
  progress->finish();
  if (summary.stopped)
    say("stopped after step {}; continue with --resume", position.step);
  else if (summary.firstStep >= state.lastStep)
    say("nothing to do: the run is at step {} of {}; raise --steps",
        position.step, state.lastStep);
  if (state.lastStep > uint64_t(recipe.values.schedule.total) &&
      recipe.values.schedule.name != recipe::ScheduleKind::Constant)
    say("from step {} on the rate stayed at its minimum; --set "
        "schedule.total={} stretches the schedule",
        recipe.values.schedule.total, state.lastStep);
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
  while (position.step < state.lastStep && summary.failure.empty() && !stop()) {
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
