// The summary of repeated measurements.
#pragma once
#include <algorithm>
#include <vector>

namespace tessera {

/// The middle value, the upper one of two. `values` has at least one.
inline double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

} // namespace tessera
