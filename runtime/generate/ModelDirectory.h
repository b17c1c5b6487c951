// A Hugging Face directory as generation reads it: config.json, weights in
// safetensors, tokenizer.json and, if it exists, generation_config.json.
#pragma once
#include "runtime/support/ModelFiles.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The directory of the model `place`, or nothing. It is `place` itself if it
/// has a config.json and is not a run, which keeps the model's config in its
/// program; or, for a name such as "Qwen/Qwen3-0.6B", the revision "main" in
/// the cache of the hub's client ($HF_HUB_CACHE, $HF_HOME/hub, or that of
/// ~/.cache/huggingface).
std::optional<std::string> findModelDirectory(const std::string &place);

/// The contents of generation_config.json; missing keys are absent.
struct GenerationConfig {
  std::optional<float> temperature; ///< 0 where it says `do_sample: false`
  std::optional<int64_t> topK;
  std::optional<float> topP, minP, repetitionPenalty;
  std::optional<uint64_t> maxTokens; ///< max_new_tokens
  std::vector<int32_t> endTokens;    ///< eos_token_id: one or several
  /// Keys that would change the output and are not supported.
  std::vector<std::string> unused;
};

/// Reads a model's generation_config.json; without such a file, all values are
/// absent. Values of the wrong type are errors; checkSampling checks their
/// ranges.
StatusOr<GenerationConfig> loadGenerationConfig(const ModelFiles &files);
/// Parses the file's contents; `where` prefixes errors.
StatusOr<GenerationConfig> parseGenerationConfig(std::string_view text,
                                                 const std::string &where);

/// The end tokens of `config`, or else the eos_token_id of the model's
/// config.json; may be empty.
StatusOr<std::vector<int32_t>> endTokensOf(const ModelFiles &files,
                                           const GenerationConfig &config);

} // namespace tessera
