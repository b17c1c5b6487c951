#include "passes/sharding/solver/Solve.h"

#include "passes/sharding/solver/Reduce.h"
#include "passes/sharding/solver/Search.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <memory>
#include <thread>

namespace tessera::solver {

static bool isLate(const Options &options) {
  return options.deadline &&
         std::chrono::steady_clock::now() >= *options.deadline;
}

namespace {

/// Searchers with different seeds that share the best choice after every round.
/// Rounds are counted in steps, so that results are reproducible. Whenever the
/// best has become cheaper, the core is reduced to values that may be cheaper
/// still.
class Team {
public:
  /// Searchers begin at the strategies of `start`, if it has any.
  Team(const Problem &problem, ReductionGraph graph, const Options &options,
       const Progress &progress, std::span<const int> start);
  void run();
  /// Of all nodes; empty if none was found.
  std::vector<int> choice;
  double cost = kForbidden;
  double lowerBound = -kForbidden;

private:
  bool late() const { return isLate(options); }
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

/// The cheapest value of each variable by itself, or the one of its strategy.
static std::vector<int> startValues(const Model &model,
                                    std::span<const int> start) {
  std::vector<int> values;
  for (int v = 0; v < model.count(); ++v) {
    const auto at = static_cast<std::ptrdiff_t>(model.first[v]);
    const auto costs = model.unary.begin() + at;
    const auto strategies = model.strategy.begin() + at;
    auto value = std::min_element(costs, costs + model.sizes[v]) - costs;
    if (!start.empty()) {
      const auto same = std::find(strategies, strategies + model.sizes[v],
                                  start[model.node[v]]);
      if (same != strategies + model.sizes[v])
        value = same - strategies;
    }
    values.push_back(static_cast<int>(value));
  }
  return values;
}

Team::Team(const Problem &problem, ReductionGraph reduced,
           const Options &options, const Progress &progress,
           std::span<const int> start)
    : problem(problem), options(options), progress(progress),
      graph(std::move(reduced)), model(std::make_unique<Model>(graph)) {
  Random seeds(options.seed);
  for (unsigned i = 0; i < std::max(1U, options.threads); ++i)
    searchers.emplace_back(*model, seeds(), startValues(*model, start));
  searchers[0].enumerate();
  share();
}

void Team::run() {
  // Without a limit the first rounds are short: a good choice may soon reduce
  // the core to nothing.
  constexpr std::uint64_t kRound = 32;
  std::uint64_t round = problem.usageLimit < 0 ? 1 : kRound, reduced = 0;
  for (std::uint64_t done = 0;
       done < options.steps && !late() && cost - lowerBound >= 0.5;
       round = std::min(2 * round, kRound)) {
    round = std::min(round, options.steps - done);
    advanceAll(round);
    share();
    done += round;
    // A small improvement is not worth a reduction now.
    constexpr double kShare = 0.01;
    constexpr std::uint64_t kWait = 16 * kRound;
    const bool much = cost < ceiling - kShare * (ceiling - graph.constant);
    if (!much && (cost == ceiling || done - reduced < kWait))
      continue;
    reduceAgain();
    reduced = done;
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
  if (!reduceBelow(graph, ceiling + 0.5, [this] { return late(); }).ok()) {
    lowerBound = cost;
    return;
  }
  auto reduced = std::make_unique<Model>(graph);
  std::vector<Search> moved;
  for (const Search &searcher : searchers)
    moved.emplace_back(*reduced, searcher);
  searchers = std::move(moved);
  model = std::move(reduced);
  searchers[0].enumerate();
  share();
}

/// A fraction of the steps and of the time.
static Options forRelaxation(const Options &options) {
  constexpr int kShare = 6;
  Options part = options;
  part.steps = options.steps / kShare;
  const auto now = std::chrono::steady_clock::now();
  if (options.deadline)
    part.deadline = now + (*options.deadline - now) / kShare;
  return part;
}

StatusOr<Solution> solve(const Problem &problem, const Options &options,
                         const Progress &progress) {
  TESSERA_RETURN_IF_ERROR(validate(problem));
  // Without the limit much more is reduced. Its choice is where the search
  // begins, and its bound holds with the limit as well.
  auto stop = [&] { return isLate(options); };
  StatusOr<ReductionGraph> unlimited = reduce(problem, /*limited=*/false, stop);
  if (!unlimited.ok())
    return unlimited.status();
  const bool limited = problem.usageLimit >= 0;
  const Options part = limited ? forRelaxation(options) : options;
  const Progress silent;
  Team relaxed(problem, unlimited.take(), part, limited ? silent : progress,
               {});
  relaxed.run();
  Solution solution;
  auto finish = [&](Team &team) {
    const Evaluation evaluation = evaluate(problem, team.choice);
    solution.choice = std::move(team.choice);
    solution.cost = evaluation.cost;
    const double bound = std::max(relaxed.lowerBound, team.lowerBound);
    solution.lowerBound =
        std::min(solution.cost,
                 static_cast<Cost>(std::ceil(std::max(0.0, bound - 0.5))));
    return solution;
  };
  if (!relaxed.choice.empty() && evaluate(problem, relaxed.choice).feasible &&
      (!limited || relaxed.cost - relaxed.lowerBound < 0.5))
    return finish(relaxed);
  const bool none = !limited && isForbidden(relaxed.cost);
  if (none && isForbidden(relaxed.lowerBound))
    return Status::error("every choice has something that is not allowed");
  if (none)
    return Status::error(
        "no choice that is allowed was found; allow more time");
  StatusOr<ReductionGraph> graph = reduce(problem, /*limited=*/true, stop);
  if (!graph.ok())
    return graph.status();
  Team team(problem, graph.take(), options, progress, relaxed.choice);
  team.run();
  if (isForbidden(team.cost) && isForbidden(team.lowerBound))
    return Status::error("no choice is within the usage limit of {}; raise it",
                         problem.usageLimit);
  if (isForbidden(team.cost))
    return Status::error("no choice within the usage limit of {} was found; "
                         "allow more time, or raise the limit",
                         problem.usageLimit);
  return finish(team);
}

} // namespace tessera::solver
