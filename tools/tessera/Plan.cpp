// tessera plan: how to parallelize training on a cluster, and what it costs.
#include "compiler/Files.h"
#include "compiler/api/PlanPrograms.h"
#include "compiler/api/PlanQuestion.h"
#include "compiler/api/PlanTrials.h"
#include "compiler/report/Page.h"
#include "compiler/report/PlanReport.h"
#include "hardware/Quantity.h"
#include "parallelism/pipeline/Timeline.h"
#include "parallelism/planner/Replay.h"
#include "parallelism/planner/Report.h"
#include "runtime/support/Text.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/Note.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

using namespace tessera;
using namespace tessera::planner;

namespace {

struct PlanOptions : QuestionOptions {
  std::string fix, timeline, html, output;
  std::optional<size_t> prove;
  double spread = 0;
  std::vector<std::string> stragglers;
  bool compare = false, why = false, simulate = false, json = false;
};

} // namespace

// Plans that --compare prints, and that --prove compiles at most.
static constexpr size_t kMostPlans = 10;
// Plans that a search keeps where compiled programs decide which ones fit, and
// how much more than the memory the memory model may say of them.
static constexpr size_t kRankedPlans = 60;
static constexpr double kSlack = 1.15;
// Plans for -o, should the program of the first not be as shallow ones say.
static constexpr size_t kSpare = 2;
// The reference for plans with fewer GPUs.
static constexpr int64_t kManyGpus = 1024;

static StatusOr<Answer> answer(const PlanOptions &options,
                               const Question &question) {
  Answer result;
  if (!options.fix.empty()) {
    auto plan = parsePlan(options.fix, question.cluster.gpus());
    if (!plan.ok())
      return plan.status();
    auto chosen =
        evaluate(question.model, question.cluster, question.workload, *plan);
    if (!chosen.ok())
      return Status::error("--fix: {}", chosen.message());
    result.chosen = chosen.take();
    result.given = true;
    result.fits =
        result.chosen.memory.total() <= usableMemory(question.cluster.gpu);
  }
  // Compiled programs decide, unless a plan was given.
  const bool ranks =
      options.fix.empty() && whyNotTried(options.spec, question).empty();
  if (options.fix.empty() || options.compare || options.why ||
      !options.html.empty())
    result.search = search(question.model, question.cluster, question.workload,
                           ranks ? kRankedPlans : kMostPlans, question.scope,
                           ranks ? kSlack : 1);
  if (options.fix.empty()) {
    if (!result.search->chosen)
      return Status::error(
          "no plan of {} fits {} GPUs of {}; use more GPUs (--gpus) or another "
          "--global-batch; --why prints the reasons",
          question.modelName, question.cluster.gpus(), question.cluster.name);
    result.chosen = *result.search->chosen;
  }
  return result;
}

/// "3=1.2": pipeline rank 3 takes 1.2 times as long.
static Status readStraggler(std::string_view text, std::vector<double> &ranks) {
  constexpr size_t most = 1 << 16;
  size_t rank = 0;
  double factor = 0;
  const char *end = text.data() + text.size();
  auto first = std::from_chars(text.data(), end, rank);
  bool good = first.ec == std::errc() && first.ptr != end &&
              *first.ptr == '=' && rank < most;
  if (good) {
    auto second = std::from_chars(first.ptr + 1, end, factor);
    good = second.ec == std::errc() && second.ptr == end && factor > 0 &&
           factor <= 1000;
  }
  if (!good)
    return Status::error("--straggler {}: expected RANK=FACTOR, for example "
                         "3=1.2",
                         quote(text));
  if (ranks.size() <= rank)
    ranks.resize(rank + 1, 1.0);
  ranks[rank] = factor;
  return Status::success();
}

// Checked before the search.
static Status checkTimeline(const std::string &path) {
  if (path.empty() || path.ends_with(".json") || path.ends_with(".svg") ||
      path.ends_with(".html"))
    return Status::success();
  return Status::error("--timeline {}: expected a name ending in .json (Chrome "
                       "trace), .svg or .html",
                       quote(path));
}

static Status writeTimeline(const std::string &path, const Replay &replay) {
  const auto &schedule = replay.schedule;
  const auto &run = replay.simulation;
  std::string text;
  if (path.ends_with(".json"))
    text = pipeline::timelineTrace(schedule, run);
  else if (path.ends_with(".svg"))
    text = pipeline::timelineSvg(schedule, run);
  else
    text = pipeline::timelineHtml(schedule, run);
  if (llvm::Error error = writeFile(path, {llvm::StringRef(text)}))
    return Status::error("{}", llvm::toString(std::move(error)));
  return Status::success();
}

static Status simulatePlan(const PlanOptions &options, const Question &question,
                           const Candidate &chosen) {
  Disturbance disturbance;
  disturbance.microbatchSpread = options.spread;
  for (const std::string &each : options.stragglers)
    TESSERA_RETURN_IF_ERROR(readStraggler(each, disturbance.rankFactor));
  auto result = replay(question.model, question.cluster, question.workload,
                       chosen, disturbance);
  if (!result.ok())
    return result.status();
  const pipeline::Simulation &run = result->simulation;
  fmt::print("\nsimulated: {} for all microbatches, ranks idle {:.1f} %; the "
             "cost model predicts {} without disturbances\n{}",
             formatSeconds(run.makespan), 100 * run.bubbleFraction,
             formatSeconds(result->modelled),
             pipeline::timelineText(result->schedule, run));
  if (!options.timeline.empty())
    return writeTimeline(options.timeline, *result);
  return Status::success();
}

static Status writePage(const std::string &path, const Question &question,
                        const Answer &answer) {
  auto schedule = replay(question.model, question.cluster, question.workload,
                         answer.chosen);
  const report::Json json = report::planReport(
      question, answer, schedule.ok() ? &*schedule : nullptr);
  const std::string page = report::page(json["title"].get<std::string>(), json);
  if (llvm::Error error = writeFile(path, {llvm::StringRef(page)}))
    return Status::error("{}", llvm::toString(std::move(error)));
  return Status::success();
}

// Compiles what is printed: the chosen plan, or the best ones.
static Status compileBest(const PlanOptions &options, const Question &question,
                          Answer &answer) {
  TrialOptions trials{options.spec, options.recipe, options.set};
  if (options.compare || options.json || !options.html.empty())
    trials.count = kMostPlans;
  if (!options.output.empty())
    trials.count = std::max(trials.count, kSpare);
  if (options.prove) {
    trials.count = std::max(trials.count, *options.prove);
    trials.seconds = std::numeric_limits<double>::infinity();
  }
  return tryPlans(trials, question, answer);
}

static Status plan(const PlanOptions &options) {
  TESSERA_RETURN_IF_ERROR(checkTimeline(options.timeline));
  auto question = readQuestion(options);
  if (!question.ok())
    return question.status();
  auto found = answer(options, *question);
  if (!found.ok()) {
    if (options.why && options.fix.empty())
      fmt::print("{}", printReasons(*question,
                                    search(question->model, question->cluster,
                                           question->workload, kMostPlans,
                                           question->scope)));
    return found.status();
  }
  PlanProgramOptions programs{options.spec,
                              options.recipe,
                              options.set,
                              options.output,
                              options.prove.value_or(0),
                              note};
  if (!options.output.empty() && !options.prove)
    programs.count = 1;
  TESSERA_RETURN_IF_ERROR(compileBest(options, *question, *found));
  StatusOr<std::string> compiled = compilePlans(programs, *question, *found);
  if (!compiled.ok())
    return compiled.status();
  found->scaleOut = scaleOut(*question, found->chosen, kManyGpus);
  if (!options.html.empty())
    TESSERA_RETURN_IF_ERROR(writePage(options.html, *question, *found));
  if (options.json) {
    fmt::print("{}", answerJson(*question, *found));
    return Status::success();
  }
  fmt::print("{}", printAnswer(*question, *found));
  if (!compiled->empty())
    fmt::print("\n{}", *compiled);
  if (options.compare)
    fmt::print("\n{}", printComparison(*found->search));
  if (options.why)
    fmt::print("\n{}{}", printTrials(*question, found->trials),
               printReasons(*question, *found->search));
  if (options.simulate)
    return simulatePlan(options, *question, found->chosen);
  return Status::success();
}

static void addParameters(CLI::App &command, PlanOptions &options) {
  command
      .add_option("--tokens", options.tokens,
                  "tokens of the whole training, such as 1e12, to estimate "
                  "days and cost")
      ->type_name("COUNT");
  command
      .add_option("--internode-per-gpu", options.perGpu,
                  "bandwidth of one GPU between nodes, such as 25GB/s")
      ->type_name("RATE");
  command
      .add_option("--internode-per-node", options.perNode,
                  "bandwidth of a node, all its GPUs together, to other nodes")
      ->type_name("RATE");
  command
      .add_option("--gpus", options.gpus,
                  "number of GPUs (default: the cluster's)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command
      .add_option("--global-batch", options.globalBatch,
                  "sequences per step (default: the recipe's, or 4 Mi tokens)")
      ->check(CLI::Range(1, 1 << 24))
      ->type_name("N");
  command
      .add_option(
          "--sequence", options.sequence,
          "tokens per sequence (default: the recipe's, or 4096 at most)")
      ->check(CLI::Range(1, 1 << 24))
      ->type_name("N");
  command
      .add_option("--imbalance", options.imbalance,
                  "tokens of the most loaded expert relative to the mean "
                  "(default: 1.3)")
      ->check(CLI::Range(1.0, 64.0))
      ->type_name("X");
  command
      .add_option("--recipe", options.recipe,
                  "recipe.yaml, for batch, optimizer, dropout and experts "
                  "(default: AdamW, 4 Mi tokens per step)")
      ->type_name("FILE.yaml");
  command
      .add_option("--set", options.set,
                  "change a key of the recipe; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      .add_option(
          "-o,--output", options.output,
          "write the plan for tessera compile --plan: of the best plans "
          "the first whose compiled program fits")
      ->type_name("FILE.yaml");
  command
      .add_option(
          "--prove", options.prove,
          "compile the best N plans as far as their memory is known, and "
          "print it (default: 1 with -o)")
      ->check(CLI::Range(0, int(kMostPlans)))
      ->type_name("N");
  command.add_option("--precision", options.precision, "bf16 or fp8")
      ->check(CLI::IsMember({"bf16", "fp8"}))
      ->type_name("TYPE");
  command
      .add_option("--overlap", options.overlap,
                  "communication that overlaps with computation: all, none, or "
                  "a comma-separated list of tensor, expert, data, pipe "
                  "(default: what programs of tessera compile overlap, all but "
                  "expert)")
      ->type_name("KINDS");
}

void tessera::addPlanCommand(CLI::App &app, Invocation &invocation) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App *command = app.add_subcommand(
      "plan", "Plan training on many GPUs: parallelism, memory, time, cost");
  command
      ->add_option("SPEC", options->spec,
                   "model spec: config.json, or its directory")
      ->type_name("")
      ->required();
  command
      ->add_option(
          "--cluster", options->cluster,
          "description of the machines; examples are in hardware/clusters")
      ->type_name("FILE")
      ->required();
  addParameters(*command, *options);
  command
      ->add_option("--fix", options->fix,
                   "evaluate this plan: pipe=8,interleave=5,expert=8,...")
      ->type_name("PLAN");
  command->add_flag("--compare", options->compare,
                    "print the ten fastest plans");
  command->add_flag(
      "--why", options->why,
      "print why plans were rejected, and what other degrees would cost");
  CLI::Option *simulate =
      command->add_flag("--simulate", options->simulate,
                        "simulate the pipeline schedule and draw its timeline");
  command
      ->add_option("--straggler", options->stragglers,
                   "a slow rank of the pipeline: RANK=FACTOR; repeatable")
      ->needs(simulate)
      ->type_name("RANK=X");
  command
      ->add_option("--spread", options->spread,
                   "random slowdown: microbatches take 1-X to 1+X times their "
                   "usual time")
      ->needs(simulate)
      ->check(CLI::Range(0.0, 0.99))
      ->type_name("X");
  command
      ->add_option("--timeline", options->timeline,
                   "write the timeline: .json (Chrome trace), .svg or .html")
      ->needs(simulate)
      ->type_name("FILE");
  command
      ->add_option("--html", options->html,
                   "write a page that compares plans and shows what ruled out "
                   "others")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "print JSON")->excludes(simulate);
  command->callback([=, &invocation] {
    if (Status status = plan(*options); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
