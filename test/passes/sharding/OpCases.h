// Every op of the graph dialect at sizes that meshes of two and three devices
// cut evenly and unevenly.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace tessera::testing {

struct OpCase {
  /// @f returns the results of its last op; all others are constants.
  std::string text;
  /// Floats are whole numbers in [low, high], so that sums are exact in any
  /// order; integers are in [0, integers).
  double low = -4, high = 4, integers = 5;
  /// What integer arguments are instead, where not all values mean something.
  std::vector<std::vector<double>> indices = {};
  /// Its sums are of numbers that are not whole.
  bool rounds = false;
};

/// By name, without the dialect's.
const std::multimap<std::string, OpCase> &opCases();

} // namespace tessera::testing
