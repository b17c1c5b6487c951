// The tokenizer of a GGUF file as Hugging Face files.
#pragma once
#include "models/gguf/GgufKeys.h"

#include <string>
#include <vector>

namespace tessera::models {

struct GgufTokenizer {
  std::string json;          ///< tokenizer.json
  std::string config;        ///< tokenizer_config.json: special tokens' names
  std::string chatTemplate;  ///< chat_template.jinja; empty: none
  std::vector<int64_t> ends; ///< tokens that end an answer
  std::string shape;         ///< for messages: "llama-bpe", "SentencePiece"
  size_t size = 0;           ///< tokens
};

/// Supports `tokenizer.ggml.model` "gpt2", byte-level BPE with a known
/// pre-tokenizer `tokenizer.ggml.pre`, and "llama", SentencePiece's BPE with
/// scores. Of "no_vocab" and "none", files of weights alone, all is empty.
/// Others are rejected by name. `architecture` is general.architecture.
StatusOr<GgufTokenizer> ggufTokenizer(GgufKeys &keys,
                                      std::string_view architecture);

} // namespace tessera::models
