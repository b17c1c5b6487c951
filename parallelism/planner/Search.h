// The sweep over all plans of a model on a cluster.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallelism/planner/CostModel.h"

namespace tessera::planner {

/// What is known of a plan from compiled programs: its own, or shallow ones on
/// the same mesh (compiler/api/ProgramProbe.h).
struct ProgramCost {
  double state = 0, arena = 0; ///< bytes of the fullest rank
  double bytes = 0;            ///< in all: inputs, outputs and libraries too
  bool whole = false;          ///< its own program was compiled
  double seconds = 0;          ///< of a step, replayed; 0: unknown
  bool operator==(const ProgramCost &) const = default;
};

struct Candidate {
  ParallelPlan plan;
  StepCost cost;
  Memory memory;
  std::optional<ProgramCost> program = {};

  /// Bytes of the fullest rank: of its program, or else by the memory model.
  double bytes() const { return program ? program->bytes : memory.total(); }
  /// Seconds of a step: replayed, or else by the cost model.
  double seconds() const {
    return program && program->seconds > 0 ? program->seconds : cost.total;
  }
  /// MFU at that time.
  double utilization() const {
    return cost.utilization * cost.total / seconds();
  }
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
  /// The fastest plan of each `complexity` up to that time, the simplest first:
  /// `chosen`, and what to choose if its program does not fit.
  std::vector<Candidate> simplest;
  /// The same of plans that need more than the memory, up to `slack`.
  std::vector<Candidate> beyond;
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
/// and expert tensor parallelism other than 1 and `tensor`; and replicas with
/// ZeRO-1, which send more. Replicas are of whole nodes (replicaCounts).
///
/// `slack` is the factor of the memory up to which plans are kept: above 1
/// where compiled programs decide afterwards, so that an error of the memory
/// model does not hide a plan. Such plans are among `best` and `beyond`; they
/// are chosen, and are a degree's best, only where none fits without.
SearchResult search(const ModelShape &model, const Cluster &cluster,
                    const Workload &workload, size_t keep = 10,
                    Scope scope = Scope::Any, double slack = 1);

/// One plan's cost and memory. An error if it breaks a constraint; a plan that
/// does not fit into memory is evaluated nevertheless.
StatusOr<Candidate> evaluate(const ModelShape &model, const Cluster &cluster,
                             const Workload &workload,
                             const ParallelPlan &plan);

} // namespace tessera::planner
