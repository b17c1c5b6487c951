#include "passes/sharding/solver/Solve.h"

#include "passes/sharding/solver/Reduce.h"
#include "passes/sharding/solver/Search.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <thread>

namespace tessera::solver {

namespace {

/// Searchers with seeds of their own that tell each other the best choice after
/// every round. Rounds are counted in steps, so that the same happens each
/// time.
class Team {
public:
  Team(const Model &model, const Options &options,
       const std::function<void(const Incumbent &)> &progress);
  void run();
  const Search &leader() const { return searchers[lead]; }
  double lowerBound() const;

private:
  bool late() const {
    return options.deadline &&
           std::chrono::steady_clock::now() >= *options.deadline;
  }
  void advanceAll(std::uint64_t steps);
  void share();

  const Options &options;
  const std::function<void(const Incumbent &)> &progress;
  std::vector<Search> searchers;
  std::size_t lead = 0;
};

} // namespace

Team::Team(const Model &model, const Options &options,
           const std::function<void(const Incumbent &)> &progress)
    : options(options), progress(progress) {
  Random seeds(options.seed);
  for (unsigned i = 0; i < std::max(1U, options.threads); ++i)
    searchers.emplace_back(model, seeds());
  share();
}

double Team::lowerBound() const {
  double bound = searchers[0].lowerBound();
  for (const Search &searcher : searchers)
    bound = std::max(bound, searcher.lowerBound());
  return bound;
}

void Team::run() {
  constexpr std::uint64_t kRound = 16;
  for (std::uint64_t done = 0; done < options.steps && !late();
       done += kRound) {
    advanceAll(std::min(kRound, options.steps - done));
    share();
    if (std::ranges::any_of(searchers, &Search::optimal))
      return;
  }
}

void Team::advanceAll(std::uint64_t steps) {
  auto stop = [this] { return late(); };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < searchers.size(); ++i)
    others.emplace_back([&, i] { searchers[i].advance(steps, stop); });
  searchers[0].advance(steps, stop);
}

/// Of equal costs the first searcher's counts.
void Team::share() {
  const double before =
      searchers[lead].best() ? searchers[lead].best()->cost : kForbidden;
  double least = kForbidden;
  for (std::size_t i = 0; i < searchers.size(); ++i)
    if (searchers[i].best() && searchers[i].best()->cost < least) {
      least = searchers[i].best()->cost;
      lead = i;
    }
  if (!leader().best())
    return;
  for (Search &searcher : searchers)
    searcher.adopt(*leader().best());
  if (progress && least < before)
    progress(*leader().best());
}

static std::vector<int> choiceOf(const ReductionGraph &graph,
                                 const Model &model,
                                 std::span<const int> values) {
  std::vector<int> choice(graph.variables.size());
  for (int v = 0; v < model.count(); ++v)
    choice[model.node[v]] = graph.variables[model.node[v]].strategy[values[v]];
  graph.undo(choice);
  return choice;
}

StatusOr<Solution> solve(const Problem &problem, const Options &options,
                         const Progress &progress) {
  TESSERA_RETURN_IF_ERROR(validate(problem));
  StatusOr<ReductionGraph> graph = reduce(problem);
  if (!graph.ok())
    return graph.status();
  const Model model(*graph);
  Team team(model, options, [&](const Incumbent &best) {
    if (progress)
      progress(static_cast<Cost>(best.cost));
  });
  team.run();
  if (!team.leader().best())
    return Status::error("no choice within the usage limit of {} was found; "
                         "allow more time, or raise the limit",
                         problem.usageLimit);
  Solution solution;
  solution.choice = choiceOf(*graph, model, team.leader().best()->values);
  const Evaluation evaluation = evaluate(problem, solution.choice);
  assert(evaluation.feasible);
  solution.cost = evaluation.cost;
  solution.lowerBound = std::min(
      solution.cost,
      static_cast<Cost>(std::ceil(std::max(0.0, team.lowerBound() - 0.5))));
  return solution;
}

} // namespace tessera::solver
