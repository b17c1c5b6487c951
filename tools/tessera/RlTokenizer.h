// The tokenizer and the chat template of a model directory, as rollouts need
// them.
#pragma once
#include "compiler/api/ModelSource.h"
#include "runtime/rl/PromptFile.h"
#include "runtime/serve/ModelChat.h"

#include <memory>

namespace tessera {

class RlTokenizer {
public:
  Status read(const ModelSource &source);
  rl::PromptEncoder promptEncoder();
  std::string decode(std::span<const int32_t> tokens) const;
  std::vector<int32_t> stopTokens() const;

private:
  StatusOr<std::vector<int32_t>> encodeText(std::string_view text);
  StatusOr<std::vector<int32_t>> encodeMessages(const JsonValue &messages);

  std::optional<tokenizer::Tokenizer> tokenizer;
  std::optional<tokenizer::Encoder> encoder;
  std::unique_ptr<serve::ChatRenderer> chat;
  std::vector<int32_t> ends;
};

} // namespace tessera
