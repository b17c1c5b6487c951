// Text from a trained run: what `tessera generate RUN` does. Every token runs
// the whole logits program; an engine with a KV cache is another program.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/train/Sampler.h"
#include "runtime/train/TrainModel.h"

#include <functional>
#include <string>
#include <string_view>

namespace tessera {

struct GenerateOptions {
  std::string prompt; ///< special tokens in it are recognized
  uint64_t maxTokens = 64;
  SamplingOptions sampling;
  bool ignoreEnd = false;     ///< go on after the end-of-text token
  std::string device = "cpu"; ///< as hal::createDevice takes it
  unsigned threads = 0;       ///< 0: all processors
};

struct GenerateResult {
  std::string checkpoint; ///< "step-000100"
  uint64_t promptTokens = 0;
  std::vector<int32_t> tokens; ///< generated, the end-of-text token included
  bool ended = false;          ///< by the end-of-text token
  double seconds = 0;
};

/// Receives text as it becomes certain, always whole UTF-8 characters.
using TextSink = std::function<void(std::string_view)>;

/// Generates after the prompt's tokens; `window` is the longest context, and
/// longer texts slide: the last `window` tokens are seen. An empty prompt
/// starts a document, which needs a tokenizer with an end-of-text token.
StatusOr<GenerateResult> generateText(TrainModel &model,
                                      const tokenizer::Tokenizer &tokenizer,
                                      const GenerateOptions &options,
                                      const TextSink &sink);

/// The same with all that a run directory holds: program.tsr, tokenizer.json
/// and the newest intact checkpoint. `path` may also be one checkpoint,
/// RUN/step-000100. `note` receives one line for each damaged checkpoint.
StatusOr<GenerateResult> generateFromRun(const std::string &path,
                                         const GenerateOptions &options,
                                         const TextSink &sink,
                                         const TextSink &note);

} // namespace tessera
