#include "tools/tessera/PlanTrials.h"
#include "compiler/api/ProgramProbe.h"
#include "hardware/Quantity.h"
#include "tools/tessera/PlanPrograms.h"
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <future>
#include <map>
#include <ranges>
#include <set>
#include <tuple>

using namespace tessera;
using namespace tessera::planner;

// Plans that are compiled at once, a thread for each of their programs: a
// constant, so that all machines compile the same plans.
static constexpr size_t kTogether = 2;

namespace {

/// What became of a candidate.
struct Outcome {
  std::string refusal; ///< of the compiler; empty: none
  ProgramCost program;
  bool isLike = false;  ///< it does not fit, as one that was compiled
  bool isKnown = false; ///< it was compiled, refused or compared
};

/// Compiles candidates in order until enough of them fit.
class TrialWalk {
public:
  TrialWalk(const TrialOptions &options, const Question &question)
      : options(options), question(question),
        limit(usableMemory(question.cluster.gpu)) {}

  /// Candidates that fit, first ones first; those that there was no time for
  /// are among them unchanged.
  std::vector<Candidate> run(std::span<const Candidate> candidates,
                             size_t count);
  /// More time, in seconds of one processor.
  void grant(double seconds) { granted += seconds; }
  Trials trials;

private:
  /// The next candidates, with probes for those whose programs are not known.
  struct Job {
    Candidate candidate;
    std::string key;
    std::optional<ProgramProbe> probe;
  };
  bool isTooLarge(const Candidate &candidate) const;
  Job prepare(const Candidate &candidate);
  void compile(std::vector<Job> &jobs);
  void settle(Job &job, std::vector<Candidate> &kept);

  const TrialOptions &options;
  const Question &question;
  const double limit;
  double spent = 0, granted = 0;
  bool hasFit = false;                  ///< a program was compiled that fits
  std::map<std::string, Outcome> known; ///< by program
  /// Bytes of a compiled program over those by formulas, the least of each kind
  /// of plan.
  std::map<std::string, double> excess;
  std::set<std::string> settled; ///< plans
};

} // namespace

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
  CompileRequest request;
  request.spec = options.spec;
  request.recipe = options.recipe;
  request.set = options.set;
  request.targets = {question.cluster.gpu.target};
  StatusOr<ProgramProbe> probe =
      ProgramProbe::create(std::move(request), plan, question.cluster);
  if (!probe.ok()) {
    outcome = {std::string(probe.message()), {}, true};
    return job;
  }
  const double cost = probe->cost();
  // Until a plan fits the others may take as long again, but no single one.
  const double limit = options.seconds * (hasFit ? 1 : 2) + granted;
  if (cost > options.seconds || spent + cost > limit)
    return job; // no time for it
  spent += cost;
  job.probe = probe.take();
  return job;
}

void TrialWalk::compile(std::vector<Job> &jobs) {
  std::vector<std::pair<Outcome *, std::future<StatusOr<ProbedProgram>>>> all;
  for (Job &job : jobs)
    if (job.probe)
      all.emplace_back(&known[job.key], std::async(std::launch::async, [&job] {
        return job.probe->run();
      }));
  for (auto &[outcome, future] : all) {
    StatusOr<ProbedProgram> program = future.get();
    outcome->isKnown = true;
    ++trials.compiled;
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
    trials.estimated += isNew;
    if (job.candidate.memory.total() <= limit)
      kept.push_back(job.candidate);
    return;
  }
  if (!outcome.refusal.empty()) {
    if (trials.refusal.empty())
      trials.refusal =
          fmt::format("{}: {}", describe(job.candidate.plan), outcome.refusal);
    trials.refused += isNew;
    return;
  }
  if (outcome.isLike) {
    trials.alike += isNew;
    return;
  }
  const double ratio = outcome.program.bytes / job.candidate.memory.total();
  const auto least =
      excess.try_emplace(kindOf(job.candidate.plan), ratio).first;
  least->second = std::min(least->second, ratio);
  job.candidate.program = outcome.program;
  if (isNew)
    trials.programs.push_back(job.candidate);
  if (outcome.program.bytes <= limit) {
    hasFit = true;
    kept.push_back(job.candidate);
    return;
  }
  trials.unfit += isNew;
  if (!trials.smallest || outcome.program.bytes < trials.smallest->bytes())
    trials.smallest = job.candidate;
}

std::vector<Candidate> TrialWalk::run(std::span<const Candidate> candidates,
                                      size_t count) {
  std::vector<Candidate> kept;
  while (!candidates.empty() && kept.size() < count) {
    std::vector<Job> jobs;
    const size_t next = std::min(candidates.size(), kTogether);
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

std::string tessera::whyNotTried(const std::string &spec,
                                 const Question &question) {
  if (std::string reason = whyNotBuilt(spec, question); !reason.empty())
    return reason;
  if (question.cluster.gpu.target.empty())
    return fmt::format("{} has no gpu.target to compile for; add it to its "
                       "file, such as  target: cuda:sm_80",
                       question.cluster.name);
  return "";
}

static Status tryGiven(TrialWalk &walk, Answer &answer) {
  std::vector<Candidate> kept = walk.run({&answer.chosen, 1}, 1);
  answer.trials = walk.trials;
  if (!kept.empty())
    answer.chosen = kept.front();
  else if (walk.trials.smallest)
    answer.chosen = *walk.trials.smallest;
  else if (!walk.trials.refusal.empty())
    return Status::error("{}", walk.trials.refusal);
  answer.fits = !kept.empty();
  return Status::success();
}

static bool isCompiled(const Candidate &each) {
  return each.program.has_value();
}

// The chosen plan, and what formulas may be wrong about: the best with other
// numbers of stages, which may be faster than they say, the fastest by formulas
// first, and plans that may fit.
static std::vector<Candidate> rivalsOf(const SearchResult &search) {
  constexpr double kSlower = 1.25;
  const Candidate &chosen = *search.chosen;
  std::vector<Candidate> rivals, beyond = search.beyond;
  std::erase_if(beyond, [&](const Candidate &each) {
    return each.cost.total >= chosen.cost.total;
  });
  for (const auto &[pipe, choice] : search.choices.at("pipe"))
    if (pipe != chosen.plan.pipe && choice.best &&
        choice.best->cost.total <= kSlower * chosen.cost.total)
      rivals.push_back(*choice.best);
  std::ranges::sort(rivals, {}, [](const Candidate &each) {
    return std::pair(each.cost.total, describe(each.plan));
  });
  rivals.insert(rivals.begin(), chosen);
  std::ranges::copy(beyond, std::back_inserter(rivals));
  return rivals;
}

// The chosen plan first: its program says which others are worth a try, since
// programs are hardly ever faster than formulas say.
static std::vector<Candidate> tryRivals(TrialWalk &walk,
                                        const SearchResult &search) {
  std::vector<Candidate> rivals = rivalsOf(search);
  std::vector<Candidate> kept = walk.run(std::span(rivals).first(1), 1);
  rivals.erase(rivals.begin());
  if (!kept.empty() && isCompiled(kept.front()))
    std::erase_if(rivals, [&](const Candidate &each) {
      return each.cost.total >
             kept.front().seconds() * (1 + SearchResult::indifference);
    });
  std::ranges::copy(walk.run(rivals, rivals.size()), std::back_inserter(kept));
  return kept;
}

// Plans that leave room: what else is worth a try if none of the fastest fits.
// The fastest of those that formulas put a tenth below the memory, then the
// smallest of all.
static std::vector<Candidate> roomyPlans(const SearchResult &search,
                                         double limit) {
  constexpr double kRoomy = 0.9;
  std::map<std::string, Candidate> all;
  for (const auto &[degree, choices] : search.choices)
    for (const auto &[value, choice] : choices)
      if (choice.best)
        all.emplace(describe(choice.best->plan), *choice.best);
  auto bytes = [](const Candidate &each) { return each.memory.total(); };
  std::vector<Candidate> roomy;
  for (const auto &[name, each] : all)
    if (bytes(each) <= kRoomy * limit)
      roomy.push_back(each);
  std::ranges::sort(roomy, {}, [](const Candidate &each) {
    return std::pair(each.cost.total, describe(each.plan));
  });
  if (!all.empty())
    roomy.push_back(std::ranges::min(std::views::values(all), {}, bytes));
  return roomy;
}

// The simplest of those that take at most 2 % longer than the fastest. Only
// compiled ones, if there are any.
static Candidate simplestOf(std::vector<Candidate> candidates) {
  if (std::ranges::any_of(candidates, isCompiled))
    std::erase_if(candidates, std::not_fn(isCompiled));
  const double limit =
      std::ranges::min(candidates, {}, &Candidate::seconds).seconds() *
      (1 + SearchResult::indifference);
  std::erase_if(candidates,
                [&](const Candidate &each) { return each.seconds() > limit; });
  return std::ranges::min(candidates, {}, [](const Candidate &each) {
    return std::tuple(complexity(each.plan), each.seconds(),
                      describe(each.plan));
  });
}

// The plan, and `best` with it in the order of their steps.
static void choose(Answer &answer, const std::vector<Candidate> &kept,
                   std::vector<Candidate> best) {
  answer.chosen = simplestOf(kept);
  answer.search->chosen = answer.chosen;
  auto isChosen = [&](const Candidate &each) {
    return describe(each.plan) == describe(answer.chosen.plan);
  };
  if (std::ranges::none_of(best, isChosen))
    best.push_back(answer.chosen);
  std::ranges::sort(best, {}, [](const Candidate &each) {
    return std::pair(each.seconds(), describe(each.plan));
  });
  answer.search->best = std::move(best);
}

Status tessera::tryPlans(const TrialOptions &options, const Question &question,
                         Answer &answer) {
  if (!whyNotTried(options.spec, question).empty() ||
      !whyNotCompiled(question.model, question.workload, answer.chosen.plan)
           .empty())
    return Status::success();
  TrialWalk walk(options, question);
  if (answer.given)
    return tryGiven(walk, answer);
  std::vector<Candidate> kept = tryRivals(walk, *answer.search);
  // Estimates prove nothing.
  auto isProven = [&] { return std::ranges::any_of(kept, isCompiled); };
  if (!isProven())
    std::ranges::copy(walk.run(answer.search->simplest, 1),
                      std::back_inserter(kept));
  std::vector<Candidate> best =
      options.count > 1 || !isProven()
          ? walk.run(answer.search->best, options.count)
          : std::vector<Candidate>();
  std::ranges::copy(best, std::back_inserter(kept));
  if (!isProven()) {
    walk.grant(options.seconds);
    std::ranges::copy(
        walk.run(roomyPlans(*answer.search, usableMemory(question.cluster.gpu)),
                 1),
        std::back_inserter(kept));
  }
  answer.trials = walk.trials;
  if (kept.empty() && !walk.trials.smallest && !walk.trials.refusal.empty())
    return Status::error("the compiler refuses every plan; the first one: {}",
                         walk.trials.refusal);
  if (kept.empty())
    return Status::error(
        "the program of no plan fits {}: of {} that were compiled, {} needs "
        "least, {}; use more GPUs (--gpus) or another --global-batch",
        formatBytes(usableMemory(question.cluster.gpu)), walk.trials.compiled,
        walk.trials.smallest ? describe(walk.trials.smallest->plan) : "none",
        formatBytes(walk.trials.smallest ? walk.trials.smallest->bytes() : 0));
  choose(answer, kept, std::move(best));
  return Status::success();
}
