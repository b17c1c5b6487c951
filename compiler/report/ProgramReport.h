// The report of an artifact: what its page shows.
#pragma once
#include <string>
#include <vector>

#include "compiler/report/IrPhases.h"
#include "compiler/report/ProgramSteps.h"

namespace tessera::report {

/// Everything that is known of an artifact and its dumps. An error if its
/// pipeline schedule cannot be read. Keys are those that page/*.js read.
StatusOr<Json> programReport(const ReportInput &input, const std::string &title,
                             const std::vector<IrPhase> &phases);

/// "rank 3", "ranks 0 to 3".
std::string ranksOf(const artifact::Share &share);

} // namespace tessera::report
