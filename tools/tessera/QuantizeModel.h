// What tessera quantize does once all that is asked for has been checked.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/support/QuantizedLayout.h"
#include "runtime/support/Status.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/DecoderProgram.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct QuantizeSettings {
  std::string place;              ///< a model directory
  std::string output;             ///< one that is to be; empty: none
  std::string text;               ///< a file to foretell; empty: none
  std::string calibrate;          ///< one to choose scales by; empty: none
  int64_t window = 512;           ///< its tokens that are read together
  std::vector<std::string> quant; ///< of the recipe
  DecoderSettings decoder{.batch = 8, .pages = {}, .command = "quantize"};
  unsigned threads = 0;
  uint64_t cacheGib = kCacheGib;

  bool asks(std::string_view assignment) const {
    return std::ranges::find(quant, assignment) != quant.end();
  }
  /// The weights as they are, and nothing else.
  bool onlyMeasures() const {
    return asks("inference.quant=none") && !asks("inference.kv=int8");
  }
};

/// A file's tokens, and those that begin a text of the model.
struct TokenizedText {
  std::vector<int32_t> tokens, starts;
};

/// Of what perplexity is measured, and by what scales are chosen.
struct QuantizeTexts {
  std::optional<TokenizedText> text, sample;
};

/// Calibrates, measures and writes, and prints what came of each. `rounding`
/// says bits, group and zero points.
Status quantizeModel(const QuantizeSettings &settings,
                     const models::ModelSpec &spec,
                     const QuantizedLayout &rounding,
                     const QuantizeTexts &samples);

} // namespace tessera
