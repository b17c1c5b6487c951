#include "compiler/api/PlanTrials.h"
#include "compiler/api/PlanPrograms.h"
#include "hardware/Quantity.h"
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <ranges>
#include <tuple>

using namespace tessera;
using namespace tessera::planner;

std::string tessera::whyNotTried(const std::string &spec,
                                 const Question &question) {
  if (std::string reason = whyNotBuilt(spec, question); !reason.empty())
    return reason;
  if (question.cluster.gpu.target.empty())
    return fmt::format("{} has no gpu.target to compile for; add it to its "
                       "file, such as target: cuda:sm_80",
                       question.cluster.name);
  return "";
}

static Status tryGiven(TrialWalk &walk, Answer &answer) {
  std::vector<Candidate> kept = walk.run({&answer.chosen, 1}, 1);
  answer.trials = walk.trials();
  if (!kept.empty())
    answer.chosen = kept.front();
  else if (walk.trials().smallest)
    answer.chosen = *walk.trials().smallest;
  else if (!walk.trials().refusal.empty())
    return Status::error("{}", walk.trials().refusal);
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

static FindProgram findCompiled(const TrialOptions &options,
                                const Question &question) {
  CompileRequest request;
  request.spec = options.spec;
  request.recipe = options.recipe;
  request.set = options.set;
  request.targets = {question.cluster.gpu.target};
  return [request, &cluster = question.cluster](
             const MeshPlan &plan) -> StatusOr<TrialProgram> {
    StatusOr<ProgramProbe> probe = ProgramProbe::create(request, plan, cluster);
    if (!probe.ok())
      return probe.status();
    const auto shared = std::make_shared<const ProgramProbe>(probe.take());
    return TrialProgram{shared->cost(), [shared] { return shared->run(); }};
  };
}

Status tessera::tryPlans(const TrialOptions &options, const Question &question,
                         Answer &answer) {
  if (!whyNotTried(options.spec, question).empty() ||
      !whyNotCompiled(question.model, question.workload, answer.chosen.plan)
           .empty())
    return Status::success();
  TrialWalk walk(options.find ? options.find : findCompiled(options, question),
                 question, options.seconds);
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
  answer.trials = walk.trials();
  if (kept.empty() && !walk.trials().smallest && !walk.trials().refusal.empty())
    return Status::error("the compiler refuses every plan; the first one: {}",
                         walk.trials().refusal);
  if (kept.empty())
    return Status::error(
        "the program of no plan fits {}: of {} that were compiled, {} needs "
        "least, {}; use more GPUs (--gpus) or another --global-batch",
        formatBytes(usableMemory(question.cluster.gpu)), walk.trials().compiled,
        walk.trials().smallest ? describe(walk.trials().smallest->plan)
                               : "none",
        formatBytes(walk.trials().smallest ? walk.trials().smallest->bytes()
                                           : 0));
  choose(answer, kept, std::move(best));
  return Status::success();
}
