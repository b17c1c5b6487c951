// Scales of channels for tessera quantize: what a model's linear layers read of
// a text is measured, by a program that is compiled for it.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/support/QuantizedLayout.h"
#include "runtime/weights/WeightFactors.h"
#include "tools/tessera/DecoderProgram.h"

#include <span>

namespace tessera {

struct CalibrationText {
  std::span<const int32_t> tokens, starts;
  std::string file; ///< for errors
  int64_t window;   ///< tokens that are read together, behind `starts`
};

struct Calibration {
  WeightFactors factors;
  int64_t tokens = 0; ///< that were read
  int64_t inputs = 0; ///< that were measured
  /// The error of layers' outputs with scales over that without, the mean over
  /// inputs.
  double error = 0;
};

/// An error for a text of fewer than 1024 tokens, or than a window.
Status checkLength(const CalibrationText &text);

/// Reads whole windows of the text, of a long one 128 that are spread over it.
/// Progress goes to stderr. Errors: scaledInputs' (models/ScaledInputs.h);
/// checkLength's; weights and activations that are not finite.
StatusOr<Calibration>
calibrateScales(const std::string &directory, const models::ModelSpec &spec,
                const DecoderSettings &settings, const CalibrationText &text,
                const QuantizedLayout &rounding, unsigned threads);

} // namespace tessera
