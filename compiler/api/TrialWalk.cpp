#include "compiler/api/TrialWalk.h"
#include "parallelism/planner/MemoryModel.h"
#include <algorithm>
#include <fmt/format.h>
#include <future>
#include <ranges>
#include <utility>

using namespace tessera;
using namespace tessera::planner;

// Plans that are compiled at once, a thread for each of their programs: a
// constant, so that all machines compile the same plans.
static constexpr size_t kProgramsAtOnce = 2;

// Plans with equal keys have equal programs: gradients that are reduced once a
// step are sharded with the optimizer state.
static std::string keyOf(MeshPlan plan) {
  if (plan.zero == 2 && plan.accumulate == 1)
    plan.zero = 1;
  std::string key = meshText(plan);
  for (const std::string &each : recipeKeys(plan))
    key += " " + each;
  return key;
}

// Formulas are about as wrong for plans with the same pipeline, recomputation,
// ZeRO and kinds of axes; the number of chunks hardly matters.
static std::string kindOf(const ParallelPlan &plan) {
  return fmt::format("{} {} {} {} {} {}", plan.pipe, name(plan.schedule),
                     name(plan.recompute), plan.zero, plan.tensor > 1,
                     plan.expert > 1);
}

TrialWalk::TrialWalk(FindProgram find, const Question &question, double seconds)
    : find(std::move(find)), question(question),
      limit(usableMemory(question.cluster.gpu)), seconds(seconds) {}

// Whether compiled programs show that this one would not fit, by a margin.
bool TrialWalk::isTooLarge(const Candidate &candidate) const {
  constexpr double kMargin = 1.03;
  auto isTooLargeBy = [&](double ratio) {
    return candidate.memory.total() * ratio > kMargin * limit;
  };
  if (auto found = excess.find(kindOf(candidate.plan)); found != excess.end())
    return isTooLargeBy(found->second);
  // By other kinds only if formulas say so, too, and all of them.
  return candidate.memory.total() > limit && !excess.empty() &&
         std::ranges::all_of(excess, [&](const auto &each) {
           return isTooLargeBy(each.second);
         });
}

TrialWalk::Job TrialWalk::prepare(const Candidate &candidate) {
  const MeshPlan plan = meshPlanOf(question.workload, candidate.plan);
  Job job{candidate, keyOf(plan), std::nullopt};
  if (known.contains(job.key))
    return job;
  Outcome &outcome = known[job.key];
  if (isTooLarge(candidate)) {
    outcome.isLike = outcome.isKnown = true;
    return job;
  }
  StatusOr<TrialProgram> program = find(plan);
  if (!program.ok()) {
    outcome = {std::string(program.message()), {}, true};
    return job;
  }
  // Until a plan fits the others may take as long again, but no single one.
  const double most = seconds * (hasFit ? 1 : 2) + granted;
  if (program->cost > seconds || spent + program->cost > most)
    return job; // no time for it
  spent += program->cost;
  job.program = program.take();
  return job;
}

void TrialWalk::compile(std::vector<Job> &jobs) {
  std::vector<std::pair<Outcome *, std::future<StatusOr<ProbedProgram>>>> all;
  for (Job &job : jobs)
    if (job.program)
      all.emplace_back(&known[job.key],
                       std::async(std::launch::async, job.program->compile));
  for (auto &[outcome, future] : all) {
    StatusOr<ProbedProgram> program = future.get();
    outcome->isKnown = true;
    ++counts.compiled;
    if (!program.ok()) {
      outcome->refusal = program.message();
      continue;
    }
    const RankMemory &memory = program->fullest;
    outcome->program = {
        static_cast<double>(memory.state), static_cast<double>(memory.arena),
        static_cast<double>(memory.total()) + question.workload.libraryBytes,
        program->whole, program->seconds};
  }
}

// Counts each plan once, though the walk may come to it twice.
void TrialWalk::settle(Job &job, std::vector<Candidate> &kept) {
  const Outcome &outcome = known[job.key];
  const bool isNew = settled.insert(describe(job.candidate.plan)).second;
  if (!outcome.isKnown) {
    counts.estimated += isNew;
    if (job.candidate.memory.total() <= limit)
      kept.push_back(job.candidate);
    return;
  }
  if (!outcome.refusal.empty()) {
    if (counts.refusal.empty())
      counts.refusal =
          fmt::format("{}: {}", describe(job.candidate.plan), outcome.refusal);
    counts.refused += isNew;
    return;
  }
  if (outcome.isLike) {
    counts.alike += isNew;
    return;
  }
  const double ratio = outcome.program.bytes / job.candidate.memory.total();
  const auto least =
      excess.try_emplace(kindOf(job.candidate.plan), ratio).first;
  least->second = std::min(least->second, ratio);
  job.candidate.program = outcome.program;
  if (isNew)
    counts.programs.push_back(job.candidate);
  if (outcome.program.bytes <= limit) {
    hasFit = true;
    kept.push_back(job.candidate);
    return;
  }
  counts.unfit += isNew;
  if (!counts.smallest || outcome.program.bytes < counts.smallest->bytes())
    counts.smallest = job.candidate;
}

std::vector<Candidate> TrialWalk::run(std::span<const Candidate> candidates,
                                      size_t count) {
  std::vector<Candidate> kept;
  while (!candidates.empty() && kept.size() < count) {
    std::vector<Job> jobs;
    const size_t next = std::min(candidates.size(), kProgramsAtOnce);
    for (const Candidate &each : candidates.first(next))
      jobs.push_back(prepare(each));
    candidates = candidates.subspan(next);
    compile(jobs);
    for (Job &job : jobs)
      if (kept.size() < count)
        settle(job, kept);
  }
  return kept;
}
