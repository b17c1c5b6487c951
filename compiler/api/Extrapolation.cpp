#include "compiler/api/Extrapolation.h"
#include <cmath>

using namespace tessera;

// By elimination, with as many terms as points allow.
double tessera::linearAt(llvm::ArrayRef<ExtentFeatures> features,
                         llvm::ArrayRef<double> values, ExtentFeatures to) {
  // Rows are points: differences to the first one remove the constant.
  const ExtentFeatures &base = features.front();
  auto less = [](const ExtentFeatures &a, const ExtentFeatures &b) {
    return std::array<double, 2>{a[1] - b[1], a[2] - b[2]};
  };
  const std::array<double, 2> wanted = less(to, base);
  const std::array<double, 2> a = less(features[1], base);
  const double first = values[1] - values[0];
  if (features.size() > 2) {
    const std::array<double, 2> b = less(features[2], base);
    const double second = values[2] - values[0];
    const double det = a[0] * b[1] - a[1] * b[0];
    if (std::abs(det) > 1e-9) {
      const double perLayer = (first * b[1] - second * a[1]) / det;
      const double perFlight = (second * a[0] - first * b[0]) / det;
      return values[0] + wanted[0] * perLayer + wanted[1] * perFlight;
    }
  }
  // One direction: along the layers, or what is in flight if they are equal.
  const size_t term = std::abs(a[0]) > 0 ? 0 : 1;
  const double share = std::abs(a[term]) > 0 ? wanted[term] / a[term] : 0;
  return values[0] + share * first;
}
