#include "parallelism/planner/Report.h"

#include <algorithm>

#include "hardware/Quantity.h"

namespace tessera::planner {
namespace {

constexpr double gigabyte = 1e9;

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string memoryTable(const Candidate &candidate, const Gpu &gpu) {
  const Memory &memory = candidate.memory;
  std::string text =
      fmt::format("memory of the fullest rank: {:.1f} of {:.1f} "
                  "GB",
                  candidate.bytes() / gigabyte, gpu.memory / gigabyte);
  if (const std::optional<ProgramCost> &program = candidate.program)
    text +=
        fmt::format(", {}\n"
                    "  state {:.2f}, arena {:.2f} GB, and libraries\n"
                    "the same by formulas: {:.1f} GB\n",
                    program->whole ? "of its compiled program"
                                   : "from compiled programs of fewer layers",
                    program->state / gigabyte, program->arena / gigabyte,
                    memory.total() / gigabyte);
  else
    text += ", by formulas\n";
  const std::pair<const char *, double> rows[] = {
      {"weights", memory.weights},     {"gradients", memory.gradients},
      {"optimizer", memory.optimizer}, {"activations", memory.activations},
      {"buffers", memory.buffers},     {"workspace", memory.workspace}};
  for (auto [label, bytes] : rows)
    text += fmt::format("  {:<22}{:>8.2f} GB\n", label, bytes / gigabyte);
  return text;
}

std::string timeTable(const Candidate &candidate) {
  const StepCost &cost = candidate.cost;
  std::string text;
  if (candidate.seconds() != cost.total)
    text = fmt::format("step: {}, replayed from compiled programs; by formulas "
                       "{}, {} microbatches\n",
                       formatSeconds(candidate.seconds()),
                       formatSeconds(cost.total), cost.microbatches);
  else
    text = fmt::format("step: {} by formulas, {} microbatches\n",
                       formatSeconds(cost.total), cost.microbatches);
  const std::pair<const char *, double> rows[] = {
      {"compute", cost.perRank.compute},
      {"recomputation", cost.perRank.recompute},
      {"exposed tensor", cost.perRank.tensor},
      {"exposed expert", cost.perRank.expert},
      {"exposed context", cost.perRank.context},
      {"exposed data", cost.data},
      {"exposed pipeline sends", cost.send},
      {"slowed by overlap", cost.perRank.tax},
      {"uneven stages", cost.uneven},
      {"pipeline bubble", cost.bubble},
      {"optimizer", cost.optimizer}};
  for (auto [label, seconds] : rows)
    if (seconds > 0)
      text +=
          fmt::format("  {:<22}{:>11}  {:>6}\n", label, formatSeconds(seconds),
                      percent(seconds / cost.total));
  return text;
}

/// The cost with the step's time and what follows from it as replayed; its
/// parts stay those of the formulas.
StepCost replayed(const Candidate &candidate) {
  StepCost cost = candidate.cost;
  cost.tokensPerSecond *= cost.total / candidate.seconds();
  cost.utilization = candidate.utilization();
  cost.total = candidate.seconds();
  return cost;
}

std::string money(const Question &question, const StepCost &cost) {
  Economics result = economics(question, cost);
  std::string text =
      fmt::format("MFU {}, bubble {} of the pipelines' time, {:.4g} tokens/s, "
                  "{:.0f} a GPU\n",
                  percent(cost.utilization), percent(cost.bubbleShare()),
                  cost.tokensPerSecond,
                  cost.tokensPerSecond / double(question.cluster.gpus()));
  if (question.tokens > 0) {
    text += fmt::format("{:.4g} tokens: {:.1f} days, {:.4g} GPU-hours",
                        question.tokens, result.days, result.gpuHours);
    if (result.price > 0)
      text += fmt::format(", {:.4g} at {:.2f} each", result.price,
                          question.cluster.pricePerGpuHour);
    text += "\n";
  }
  if (result.checkpoints)
    text += fmt::format(
        "checkpoint every {} (Young; Daly {}): a failure every {}, {} of the "
        "time lost\n",
        formatSeconds(result.checkpoints->young),
        formatSeconds(result.checkpoints->daly),
        formatSeconds(result.checkpoints->meanTimeBetweenFailures),
        percent(result.checkpoints->lostShare));
  return text;
}

std::string scaleOutTable(const std::vector<ScaleOut> &rows) {
  std::string text;
  for (const ScaleOut &row : rows) {
    text += fmt::format("at {} GPUs, global batch {}:\n", row.gpus,
                        row.globalBatch);
    if (row.same)
      text +=
          fmt::format("  the same plan, {} data ranks: {}, MFU {}, bubble "
                      "{}\n",
                      row.same->plan.data, formatSeconds(row.same->cost.total),
                      percent(row.same->cost.utilization),
                      percent(row.same->cost.bubbleShare()));
    else
      text += "  the same plan does not divide the batch\n";
    if (row.best)
      text += fmt::format("  best: {}: {}, MFU {}, bubble {}\n",
                          describe(row.best->plan),
                          formatSeconds(row.best->cost.total),
                          percent(row.best->cost.utilization),
                          percent(row.best->cost.bubbleShare()));
    else
      text += "  no plan fits\n";
  }
  return text;
}

std::string valueName(const std::string &degree, int64_t value) {
  return degree == "recompute" ? std::string(name(Recompute(value)))
                               : std::to_string(value);
}

int64_t chosenValue(const std::string &degree, const ParallelPlan &plan) {
  for (const Degree &each : searchedDegrees)
    if (degree == each.name)
      return each.of(plan);
  return 0;
}

/// "pipe 4  +3.1 %  PP4 ..." or what ruled the value out.
std::string choiceLine(const std::string &degree, int64_t value,
                       const Choice &choice, const Candidate &best) {
  std::string label =
      fmt::format("  {:<11}{:>9}  ", degree, valueName(degree, value));
  if (value == chosenValue(degree, best.plan))
    return label + "chosen\n";
  if (choice.best)
    return label +
           fmt::format("{:+.1f} %  {}\n",
                       100 * (choice.best->cost.total / best.cost.total - 1),
                       describe(choice.best->plan));
  size_t most = 0;
  int64_t all = 0;
  for (size_t i = 0; i < choice.killed.size(); ++i) {
    all += choice.killed[i];
    if (choice.killed[i] > choice.killed[most])
      most = i;
  }
  return label + fmt::format("none fits: {} ({} of {} plans)\n",
                             name(Constraint(most)), choice.killed[most], all);
}

} // namespace

Economics economics(const Question &question, const StepCost &cost) {
  Economics result;
  const Cluster &cluster = question.cluster;
  double useful = 1;
  if (cluster.gpuMtbf > 0) {
    result.checkpoints =
        checkpointPolicy(double(cluster.gpus()), cluster.gpuMtbf,
                         cluster.checkpointBlocking, cluster.restart);
    useful = std::max(1e-6, 1 - result.checkpoints->lostShare);
  }
  double seconds = question.tokens / cost.tokensPerSecond / useful;
  result.days = seconds / 86400;
  result.gpuHours = seconds / 3600 * double(cluster.gpus());
  result.price = result.gpuHours * cluster.pricePerGpuHour;
  return result;
}

std::vector<ScaleOut> scaleOut(const Question &question,
                               const Candidate &chosen, int64_t gpus) {
  std::vector<ScaleOut> result;
  Question larger = question;
  if (question.cluster.gpus() >= gpus || !resize(larger.cluster, gpus).ok())
    return result;
  for (int64_t times : {1, 2}) {
    larger.workload.globalBatch = times * question.workload.globalBatch;
    ScaleOut row{gpus, larger.workload.globalBatch, {}, {}};
    ParallelPlan plan = chosen.plan;
    const int64_t shards = plan.data / plan.replicate;
    plan.data = gpus / (plan.pipe * plan.tensor * plan.context);
    if (plan.replicate > 1) // replicas keep their size
      plan.replicate = std::max<int64_t>(1, plan.data / shards);
    auto same = evaluate(larger.model, larger.cluster, larger.workload, plan);
    if (same.ok())
      row.same = same.take();
    SearchResult swept =
        search(larger.model, larger.cluster, larger.workload, 1, larger.scope);
    row.best = swept.chosen;
    result.push_back(std::move(row));
  }
  return result;
}

std::string printAnswer(const Question &question, const Answer &answer) {
  const ModelShape &model = question.model;
  const Cluster &cluster = question.cluster;
  std::string links;
  for (const LinkTier &tier : cluster.links)
    links +=
        fmt::format(", {} {}", tier.name, formatRate(tier.perGpu.value_or(0)));
  std::string text = fmt::format(
      "{}: {:.4g}B parameters, {:.4g}B active, {:.4g} GFLOP a token\n"
      "{}: {} x {}{} a GPU\n"
      "global batch {} x {} tokens\n\nplan: {}\n",
      question.modelName, double(model.parameters()) / 1e9,
      double(model.activeParameters()) / 1e9,
      model.flopsPerToken(question.workload.sequence) / 1e9, cluster.name,
      cluster.gpus(), cluster.gpu.name, links, question.workload.globalBatch,
      question.workload.sequence, describe(answer.chosen.plan));
  const StageLayers &stages = answer.chosen.cost.stages;
  if (answer.chosen.plan.pipe > 1)
    text += fmt::format("  layers of a stage: {}, of the last {}\n",
                        stages.most, stages.last);
  if (answer.search)
    text += fmt::format("  the simplest within {:.0f} % of the fastest, of {} "
                        "that fit and {} considered\n",
                        100 * SearchResult::indifference,
                        answer.search->fitting, answer.search->considered);
  if (!answer.fits)
    text += "  does not fit into memory\n";
  text += "\n" + memoryTable(answer.chosen, cluster.gpu) + "\n" +
          timeTable(answer.chosen) + "\n" +
          money(question, replayed(answer.chosen));
  if (!answer.scaleOut.empty())
    text += "\n" + scaleOutTable(answer.scaleOut);
  return text;
}

std::string printComparison(const SearchResult &result) {
  std::string text = fmt::format("   {:>9}  {:>6}  {:>6}  {:>7}  {:>8}  plan\n",
                                 "step", "MFU", "bubble", "exposed", "GB");
  size_t place = 0;
  bool hasEstimates = false;
  for (const Candidate &each : result.best) {
    const StepCost &cost = each.cost;
    double exposed = cost.perRank.tensor + cost.perRank.expert +
                     cost.perRank.context + cost.data + cost.send;
    hasEstimates |= !each.program;
    text +=
        fmt::format("{:>2} {:>9}  {:>6}  {:>6}  {:>7}  {:>8}  {}\n", ++place,
                    formatSeconds(each.seconds()), percent(each.utilization()),
                    percent(cost.bubbleShare()), percent(exposed / cost.total),
                    fmt::format("{}{:.1f}", each.program ? "" : "~",
                                each.bytes() / gigabyte),
                    describe(each.plan));
  }
  if (hasEstimates)
    text += "~ by formulas; --prove 10 compiles the programs\n";
  return text;
}

/// What became of the plans that were compiled.
std::string printTrials(const Question &question, const Trials &trials) {
  if (trials.compiled + trials.refused == 0)
    return "";
  std::string text = fmt::format(
      "programs compiled: {}; plans whose programs do not fit: {}, and as much "
      "too large by comparison: {}, that the compiler refused: {}, that there "
      "was no time for: {}\n",
      trials.compiled, trials.unfit, trials.alike, trials.refused,
      trials.estimated);
  if (!trials.refusal.empty())
    text += "  " + trials.refusal + "\n";
  if (!trials.programs.empty())
    text += "       GB  by formulas    step  by formulas\n";
  const double limit = usableMemory(question.cluster.gpu);
  for (const Candidate &each : trials.programs)
    text += fmt::format("{:>9.1f}{:>13.1f}{:>8}{:>13}  {}{}\n",
                        each.bytes() / gigabyte, each.memory.total() / gigabyte,
                        formatSeconds(each.seconds()),
                        formatSeconds(each.cost.total), describe(each.plan),
                        each.bytes() <= limit ? "" : ": does not fit");
  return text;
}

std::string printReasons(const Question &question, const SearchResult &result) {
  std::string text = "what ruled plans out:\n";
  for (size_t i = 1; i < result.killed.size(); ++i)
    if (int64_t plans = result.killed[i].plans)
      text += fmt::format("  {:>9}  {}\n", plans, name(Constraint(i)));
  const std::optional<Candidate> &fastest =
      result.killed[size_t(Constraint::Memory)].fastest;
  if (!result.chosen)
    return text;
  const Candidate &best = *result.chosen;
  if (fastest && fastest->cost.total < best.cost.total)
    text += fmt::format("the fastest that memory ruled out would take {} "
                        "({:+.1f} %) and {:.1f} "
                        "of {:.1f} GB:\n  {}\n",
                        formatSeconds(fastest->cost.total),
                        100 * (fastest->cost.total / best.cost.total - 1),
                        fastest->memory.total() / gigabyte,
                        usableMemory(question.cluster.gpu) / gigabyte,
                        describe(fastest->plan));
  text += "each degree's other values, the rest free, by formulas:\n";
  for (const Degree &each : searchedDegrees) {
    const std::string degree(each.name);
    auto found = result.choices.find(degree);
    if (found == result.choices.end() || found->second.size() < 2)
      continue;
    for (const auto &[value, choice] : found->second)
      text += choiceLine(degree, value, choice, best);
  }
  return text;
}

} // namespace tessera::planner
