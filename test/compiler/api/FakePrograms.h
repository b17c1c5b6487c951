// Programs of plans, made up instead of compiled.
#pragma once
#include "compiler/api/TrialWalk.h"

#include <map>
#include <string>
#include <vector>

namespace tessera::testing {

/// Bytes of state that do not fit a device with 79 GiB.
inline constexpr int64_t kTooMuch = 90'000'000'000;

/// What the compiler would say of a plan.
struct FakeProgram {
  int64_t bytes = 1'000'000'000; ///< of state
  double cost = 1;               ///< seconds to compile
  std::string refusal = {};      ///< empty: none
};

/// A compiler that knows its answers; it is asked for `asked`, in order.
class FakePrograms {
public:
  FakePrograms(const planner::Question &question, FakeProgram others = {})
      : question(question), others(std::move(others)) {}

  void set(const planner::Candidate &candidate, FakeProgram program) {
    programs[nameOf(candidate)] = std::move(program);
  }
  std::string nameOf(const planner::Candidate &candidate) const {
    return nameOf(planner::meshPlanOf(question.workload, candidate.plan));
  }
  FindProgram find() {
    return [this](const planner::MeshPlan &plan) -> StatusOr<TrialProgram> {
      asked.push_back(nameOf(plan));
      const auto found = programs.find(asked.back());
      const FakeProgram &program =
          found == programs.end() ? others : found->second;
      return TrialProgram{program.cost, [program] { return answer(program); }};
    };
  }

  std::vector<std::string> asked; ///< plans whose programs were looked for

private:
  static std::string nameOf(const planner::MeshPlan &plan) {
    std::string name = planner::meshText(plan);
    for (const std::string &key : planner::recipeKeys(plan))
      name += " " + key;
    return name;
  }
  static StatusOr<ProbedProgram> answer(const FakeProgram &program) {
    if (!program.refusal.empty())
      return Status::error("{}", program.refusal);
    ProbedProgram probed;
    probed.fullest.state = program.bytes;
    probed.whole = true;
    return probed;
  }

  const planner::Question &question;
  const FakeProgram others;
  std::map<std::string, FakeProgram> programs;
};

} // namespace tessera::testing
