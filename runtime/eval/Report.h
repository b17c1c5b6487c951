// Results as a table and as JSON.
#pragma once
#include "runtime/eval/Gates.h"

namespace tessera::eval {

struct Report {
  std::string version; ///< of Tessera
  std::string model;   ///< its name
  std::string source;  ///< directory, file or checkpoint
  std::string adapter; ///< its directory; empty: none
  std::string tasks;   ///< path of the task file
  std::vector<Result> results;
  std::vector<GateOutcome> gates;
};

/// One line for each result, with a heading.
std::string printTable(const std::vector<Result> &results);
/// docs/evaluating.md has the fields. A value that is not finite is null.
std::string printJson(const Report &report);

} // namespace tessera::eval
