// The sweep over all plans of a model on a cluster.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallelism/planner/CostModel.h"

namespace tessera::planner {

struct Candidate {
  ParallelPlan plan;
  StepCost cost;
  Memory memory;
};

/// Plans that one constraint ruled out.
struct Killed {
  int64_t plans = 0;
  /// Memory only: the fastest of these plans, and how much it would need.
  std::optional<Candidate> fastest;
};

/// The best plan for one value of one degree, with all other degrees free.
struct Choice {
  int64_t fitting = 0;
  std::optional<Candidate> best;
  std::array<int64_t, size_t(Constraint::Memory) + 1> killed{};
};

struct SearchResult {
  int64_t considered = 0, fitting = 0;
  std::vector<Candidate> best; ///< fastest first
  /// The simplest of the plans that are less than `indifference` slower than
  /// the fastest, which is below the accuracy of the model. Absent if none
  /// fits.
  std::optional<Candidate> chosen;
  static constexpr double indifference = 0.02;
  std::array<Killed, size_t(Constraint::Memory) + 1> killed;
  /// By degree ("tensor") and value.
  std::map<std::string, std::map<int64_t, Choice>> choices;
};

/// How far a plan is from plain data parallelism: a doubling of another degree
/// counts one, and so does each unusual option.
int64_t complexity(const ParallelPlan &plan);

/// The plans of a sweep.
enum class Scope {
  Any,      ///< of any software
  Compiled, ///< without those that this compiler refuses (whyNotCompiled)
};

/// Evaluates every combination of degrees and keeps the `keep` fastest that fit
/// into memory. Simple are small degrees, no ZeRO beyond 1 and a plain
/// schedule. The same input gives the same result; ties go to the plan with
/// smaller degrees. Left out as never faster: ZeRO-0 with several data ranks,
/// and expert tensor parallelism other than 1 and `tensor`.
SearchResult search(const ModelShape &model, const Cluster &cluster,
                    const Workload &workload, size_t keep = 10,
                    Scope scope = Scope::Any);

/// One plan's cost and memory. An error if it breaks a constraint; a plan that
/// does not fit into memory is evaluated nevertheless.
StatusOr<Candidate> evaluate(const ModelShape &model, const Cluster &cluster,
                             const Workload &workload,
                             const ParallelPlan &plan);

} // namespace tessera::planner
