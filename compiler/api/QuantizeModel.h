// tessera quantize, after its options have been checked (QuantizeInput.h).
#pragma once
#include "compiler/api/DecoderProgram.h"
#include "models/ModelSpec.h"
#include "runtime/support/QuantizedLayout.h"
#include "runtime/support/Status.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct QuantizeSettings {
  std::string place;     ///< a model directory
  std::string output;    ///< directory to create; empty: none
  std::string text;      ///< file to measure perplexity on; empty: none
  std::string calibrate; ///< file to calibrate on; empty: none
  int64_t window = 512;  ///< tokens per window
  std::vector<std::string> quant; ///< keys of the recipe
  DecoderSettings decoder{.batch = 8, .pages = {}, .command = "quantize"};
  unsigned threads = 0;

  bool asks(std::string_view assignment) const {
    return std::ranges::find(quant, assignment) != quant.end();
  }
  /// Whether only the original weights are measured.
  bool onlyMeasures() const {
    return asks("inference.quant=none") && !asks("inference.kv=int8");
  }
};

/// A file's tokens, and the model's start tokens.
struct TokenizedText {
  std::vector<int32_t> tokens, starts;
};

/// The text for perplexity and the sample for calibration.
struct QuantizeSamples {
  std::optional<TokenizedText> text, sample;
};

/// Calibrates, measures and writes, and prints the results. `rounding` gives
/// bits, group and zero points.
Status quantizeModel(const QuantizeSettings &settings,
                     const models::ModelSpec &spec,
                     const QuantizedLayout &rounding,
                     const QuantizeSamples &samples);

} // namespace tessera
