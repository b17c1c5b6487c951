#include "passes/sharding/solver/Solve.h"

#include "passes/sharding/solver/Reduce.h"
#include "passes/sharding/solver/Search.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <memory>
#include <thread>

namespace tessera::solver {

namespace {

/// Searchers with seeds of their own that tell each other the best choice after
/// every round. Rounds are counted in steps, so that the same happens each
/// time. Whenever the best has become cheaper, the core is reduced to what may
/// be cheaper still.
class Team {
public:
  Team(const Problem &problem, ReductionGraph graph, const Options &options,
       const Progress &progress);
  void run();
  /// Of all nodes; empty if none was found.
  std::vector<int> choice;
  double cost = kForbidden;
  double lowerBound = -kForbidden;

private:
  bool late() const {
    return options.deadline &&
           std::chrono::steady_clock::now() >= *options.deadline;
  }
  void advanceAll(std::uint64_t steps);
  void share();
  void keep(const Incumbent &best);
  void reduceAgain();

  const Problem &problem;
  const Options &options;
  const Progress &progress;
  ReductionGraph graph;
  std::unique_ptr<Model> model;
  std::vector<Search> searchers;
  double ceiling = kForbidden; // of the last reduction
};

} // namespace

Team::Team(const Problem &problem, ReductionGraph reduced,
           const Options &options, const Progress &progress)
    : problem(problem), options(options), progress(progress),
      graph(std::move(reduced)), model(std::make_unique<Model>(graph)) {
  Random seeds(options.seed);
  for (unsigned i = 0; i < std::max(1U, options.threads); ++i)
    searchers.emplace_back(*model, seeds());
  share();
}

void Team::run() {
  constexpr std::uint64_t kRound = 32;
  for (std::uint64_t done = 0; done < options.steps && !late();
       done += kRound) {
    advanceAll(std::min(kRound, options.steps - done));
    share();
    if (cost - lowerBound < 0.5)
      return;
    if (cost < ceiling)
      reduceAgain();
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
  const Incumbent *best = nullptr;
  for (const Search &searcher : searchers) {
    lowerBound = std::max(lowerBound, searcher.lowerBound());
    if (searcher.best() && (!best || searcher.best()->cost < best->cost))
      best = &*searcher.best();
  }
  if (!best)
    return;
  const Incumbent shared = *best;
  for (Search &searcher : searchers)
    searcher.adopt(shared);
  if (shared.cost < cost)
    keep(shared);
}

void Team::keep(const Incumbent &best) {
  cost = best.cost;
  choice.assign(problem.nodes.size(), 0);
  for (int v = 0; v < model->count(); ++v)
    choice[model->node[v]] = model->strategy[model->first[v] + best.values[v]];
  graph.undo(choice);
  if (progress)
    progress(static_cast<Cost>(best.cost));
}

void Team::reduceAgain() {
  ceiling = cost;
  if (!reduceBelow(graph, ceiling + 0.5).ok()) {
    lowerBound = cost;
    return;
  }
  auto reduced = std::make_unique<Model>(graph);
  std::vector<Search> moved;
  for (const Search &searcher : searchers)
    moved.emplace_back(*reduced, searcher);
  searchers = std::move(moved);
  model = std::move(reduced);
}

StatusOr<Solution> solve(const Problem &problem, const Options &options,
                         const Progress &progress) {
  TESSERA_RETURN_IF_ERROR(validate(problem));
  StatusOr<ReductionGraph> graph = reduce(problem);
  if (!graph.ok())
    return graph.status();
  Team team(problem, graph.take(), options, progress);
  team.run();
  if (isForbidden(team.cost))
    return Status::error("no choice within the usage limit of {} was found; "
                         "allow more time, or raise the limit",
                         problem.usageLimit);
  Solution solution;
  const Evaluation evaluation = evaluate(problem, team.choice);
  assert(evaluation.feasible);
  solution.choice = std::move(team.choice);
  solution.cost = evaluation.cost;
  solution.lowerBound = std::min(
      solution.cost,
      static_cast<Cost>(std::ceil(std::max(0.0, team.lowerBound - 0.5))));
  return solution;
}

} // namespace tessera::solver
