// Compiles candidate plans in order until enough of them fit.
#pragma once
#include "compiler/api/ProgramProbe.h"
#include "parallelism/planner/Report.h"
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// The program of a plan that is not compiled yet.
struct TrialProgram {
  double cost = 0; ///< seconds of one processor to compile it, estimated
  /// An error if the compiler refuses the plan. Several may run at once.
  std::function<StatusOr<ProbedProgram>()> compile;
};

/// The program of a plan. An error if the compiler refuses the plan.
using FindProgram =
    std::function<StatusOr<TrialProgram>(const planner::MeshPlan &)>;

/// Plans whose programs are the same count as one.
class TrialWalk {
public:
  /// May take `seconds` of one processor for all programs, estimated, and twice
  /// that until one fits. `question` must outlive it.
  TrialWalk(FindProgram find, const planner::Question &question,
            double seconds);

  /// At most `count` candidates that fit, first ones first; those that there
  /// was no time for are among them unchanged.
  std::vector<planner::Candidate>
  run(std::span<const planner::Candidate> candidates, size_t count);
  /// More time, in seconds of one processor.
  void grant(double seconds) { granted += seconds; }
  /// What all calls came to.
  const planner::Trials &trials() const { return counts; }

private:
  /// What became of a candidate.
  struct Outcome {
    std::string refusal; ///< of the compiler; empty: none
    planner::ProgramCost program;
    bool isLike = false;  ///< it does not fit, as one that was compiled
    bool isKnown = false; ///< it was compiled, refused or compared
  };
  /// The next candidates, with programs for those whose cost is not known.
  struct Job {
    planner::Candidate candidate;
    std::string key;
    std::optional<TrialProgram> program;
  };
  bool isTooLarge(const planner::Candidate &candidate) const;
  Job prepare(const planner::Candidate &candidate);
  void compile(std::vector<Job> &jobs);
  void settle(Job &job, std::vector<planner::Candidate> &kept);

  const FindProgram find;
  const planner::Question &question;
  const double limit;   ///< bytes of a device
  const double seconds; ///< of one processor
  double spent = 0, granted = 0;
  bool hasFit = false;                  ///< a program was compiled that fits
  std::map<std::string, Outcome> known; ///< by program
  /// Bytes of a compiled program over those by formulas, the least of each kind
  /// of plan.
  std::map<std::string, double> excess;
  std::set<std::string> settled; ///< plans
  planner::Trials counts;
};

} // namespace tessera
