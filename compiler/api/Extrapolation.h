// A rank's bytes and seconds, from those of programs with fewer layers.
#pragma once
#include "llvm/ADT/ArrayRef.h"
#include <array>

namespace tessera {

/// What a rank's bytes are linear in: 1, its layers, and its layers times
/// microbatches in flight.
using ExtentFeatures = std::array<double, 3>;

/// The value at `to` of the linear function of features that has `values` at
/// the points `features`, two or three. Two points vary one feature: layers, or
/// what is in flight if both have equal layers. So do three whose features are
/// proportional.
double linearAt(llvm::ArrayRef<ExtentFeatures> features,
                llvm::ArrayRef<double> values, ExtentFeatures to);

} // namespace tessera
