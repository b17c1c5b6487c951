// How a model's directory writes conversations.
#pragma once
#include "runtime/data/chat/EndOfTurn.h"
#include "runtime/infer/chat/ChatTemplate.h"

#include <optional>
#include <string>
#include <vector>

namespace tessera::chat {

/// What the encoders of several threads have in common; constant.
struct ChatFormat {
  tokenizer::Tokenizer tokenizer;
  std::optional<ChatTemplate> source; ///< none: only strings can be encoded
  EndOfTurn end;
};

/// Of the directory of `tokenizer`: its chat template, or the one in the file
/// `source` unless that is empty; and its end-of-turn tokens (`endOfTurn` as
/// for findEndOfTurn).
StatusOr<ChatFormat> loadChatFormat(const ModelFiles &files,
                                    tokenizer::Tokenizer tokenizer,
                                    const std::string &source,
                                    const std::vector<std::string> &endOfTurn);

} // namespace tessera::chat
