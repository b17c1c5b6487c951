// The steps of a program in order, with what they cost.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "compiler/report/Json.h"
#include "compiler/report/Machine.h"

namespace tessera::report {

/// What a report needs to compute with: an artifact that was validated, and the
/// seconds of its steps.
struct ReportInput {
  const artifact::Artifact &root;
  const StepClock &clock;
  std::string device; ///< the kind that is shown, "cpu" or "cuda:sm_80"
};

const artifact::DeviceCode &deviceOf(const ReportInput &input,
                                     const artifact::Share &share);

/// One step. Numbers are those of Buffer.first and last.
struct StepView {
  const artifact::Node *node = nullptr;
  std::uint32_t begin = 0, end = 0;         ///< differ for loops only
  std::uint64_t runs = 1;                   ///< in one run of the program
  double seconds = 0, flops = 0, bytes = 0; ///< of one run; 0 for loops
};

/// In program order, a loop before its body.
std::vector<StepView> stepsOf(const ReportInput &input,
                              const artifact::DeviceCode &code,
                              const artifact::Program &program);

/// Ranks of a group along the axes of a collective.
double membersOf(const artifact::Artifact &root,
                 const artifact::Collective &one);

/// "linear_add", "all_gather", "wait", "loop of 4".
std::string nameOf(const artifact::DeviceCode &code,
                   const artifact::Node &node);

/// Whether the step writes parameters or their optimizer state.
bool isUpdate(const artifact::Share &share, const artifact::DeviceCode &code,
              const artifact::Node &node);

/// {"count":…,"names":[…],"name":[…],"origins":[…],"origin":[…],"layer":[…],
/// "backward":[…],"runs":[…]}: a column entry for each number, the end of a
/// loop included; names and origins once each.
Json stepsJson(const artifact::DeviceCode &code,
               const std::vector<StepView> &steps);

} // namespace tessera::report
