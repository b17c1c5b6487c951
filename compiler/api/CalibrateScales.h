// Scales of input channels for tessera quantize (AWQ): a program compiled for
// it measures the inputs of the model's linear layers on a text.
#pragma once
#include "compiler/api/DecoderProgram.h"
#include "models/ModelSpec.h"
#include "runtime/support/QuantizedLayout.h"
#include "runtime/weights/WeightFactors.h"

#include <span>

namespace tessera {

struct CalibrationText {
  std::span<const int32_t> tokens, starts;
  std::string file; ///< for errors
  int64_t window;   ///< tokens per window, after `starts`
};

struct Calibration {
  WeightFactors factors;
  int64_t tokens = 0; ///< tokens read
  int64_t inputs = 0; ///< inputs measured
  /// Mean over inputs of the error of layers' outputs with scales, relative to
  /// that without.
  double error = 0;
};

/// An error for a text of fewer than 1024 tokens, or than a window.
Status checkLength(const CalibrationText &text);

/// Reads whole windows of the text, at most 128, evenly spaced. Progress goes
/// to stderr. Errors: those of scaledInputs (models/ScaledInputs.h) and
/// checkLength; weights and activations that are not finite.
StatusOr<Calibration>
calibrateScales(const std::string &directory, const models::ModelSpec &spec,
                const DecoderSettings &settings, const CalibrationText &text,
                const QuantizedLayout &rounding, unsigned threads);

} // namespace tessera
