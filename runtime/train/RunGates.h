// Gates of a run (recipe: gates): what its evaluations must reach, and the file
// RUN/promoted, which names the newest checkpoint that did.
#pragma once
#include "runtime/data/FileOperations.h"
#include "runtime/train/Metrics.h"

#include <optional>
#include <span>
#include <string>

namespace tessera {

inline constexpr const char *kPromotedFile = "promoted";

struct GateVerdict {
  bool isMeasured = false; ///< whether the record has all metrics
  std::string missed; ///< "eval_loss <= 3.2, the value is 3.4"; empty: none
};
GateVerdict judge(const MetricsRecord &record,
                  std::span<const std::string> gates);

/// Makes `checkpoint` of the run its promoted one, in one step.
Status writePromoted(FileOperations &files, const std::string &run,
                     const std::string &checkpoint);
/// "step-000100"; empty: none has been promoted. An error if the file names
/// nothing that is there.
StatusOr<std::string> promotedCheckpoint(const std::string &run);

} // namespace tessera
