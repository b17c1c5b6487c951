// A Hugging Face directory as generation sees it: config.json, weights in
// safetensors, tokenizer.json and, where there is one, generation_config.json.
#pragma once
#include "runtime/support/ModelFiles.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The directory of the model `place`, or nothing: `place` itself if it has a
/// config.json and is no run, which keeps the model's config in its program;
/// or, for a name such as "Qwen/Qwen3-0.6B", the revision "main" of it that the
/// hub's client has left in its cache ($HF_HUB_CACHE, $HF_HOME/hub, or that of
/// ~/.cache/huggingface).
std::optional<std::string> findModelDirectory(const std::string &place);

/// What generation_config.json says; what it does not say is absent.
struct GenerationConfig {
  std::optional<float> temperature; ///< 0 where it says `do_sample: false`
  std::optional<int64_t> topK;
  std::optional<float> topP, minP, repetitionPenalty;
  std::optional<uint64_t> maxTokens; ///< max_new_tokens
  std::vector<int32_t> endTokens;    ///< eos_token_id: one or several
  /// Keys that would change what is generated and have no counterpart here.
  std::vector<std::string> unused;
};

/// Reads a model's generation_config.json; one that says nothing where there
/// is no such file. Numbers of the wrong kind are errors, their ranges are for
/// checkSampling.
StatusOr<GenerationConfig> loadGenerationConfig(const ModelFiles &files);
/// The same of a file's text; `where` begins errors.
StatusOr<GenerationConfig> parseGenerationConfig(std::string_view text,
                                                 const std::string &where);

/// The tokens that end a text: those of `config`, or else the eos_token_id of
/// the model's config.json; may be none.
StatusOr<std::vector<int32_t>> endTokensOf(const ModelFiles &files,
                                           const GenerationConfig &config);

} // namespace tessera
