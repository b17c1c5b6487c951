// Scales of input channels chosen by measured activations (Lin et al., AWQ,
// 2306.00978): a salient channel is scaled up before its weights are rounded,
// which reduces their relative error, and its inputs are divided by the same
// factor.
#pragma once
#include "runtime/support/QuantizedLayout.h"
#include "runtime/weights/WeightFactors.h"

#include <optional>
#include <span>

namespace tessera {

/// Statistics of a layer's input: the means of |x| and x² over tokens,
/// [channels].
struct InputStatistics {
  std::vector<float> magnitude, square;
};

/// An input of one or several linear layers.
struct ScaledInput {
  std::vector<SafetensorsModel::Location> readers; ///< [out, channels]
  /// The element of the preceding tensor that produces each channel:
  /// [channels]. Channels from the same element have the same scale.
  std::vector<int64_t> sources;
  /// If the sources are a norm's weights: scales are chosen such that rounding
  /// to their type changes nothing. `offset` is added to them when they are
  /// used.
  std::optional<SafetensorsModel::Location> norm = {};
  float offset = 0;
};

struct ChosenScales {
  double exponent = 0;        ///< 0: none
  double error = 0;           ///< of the layers' outputs, squared, summed
  double plain = 0;           ///< the same without scales
  std::vector<float> scales;  ///< [channels]
  std::vector<float> inverse; ///< [elements before], 1 where none is a source
};

/// Scales are s = mean|x|^a / sqrt(max × min), at least 1e-4 before that, of
/// that a of 0, 1/20 … 19/20 with the least error (the first of equals), which
/// is Σ E[x²] (w - Q(s w) / s)² over all weights: what E|Wx - Q(Ws)(x/s)|²
/// comes to where rounding errors of different channels are independent of each
/// other and have no mean. `rounding` says bits, group and zero points; `count`
/// elements come before. Matrices that are too small to be quantized have no
/// error. The result does not depend on the number of processors. Weights that
/// are not finite are errors.
StatusOr<ChosenScales> chooseScales(const ScaledInput &input,
                                    const InputStatistics &statistics,
                                    const QuantizedLayout &rounding,
                                    int64_t count);

} // namespace tessera
