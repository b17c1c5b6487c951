// From an example to tokens and a loss mask.
#pragma once
#include "runtime/data/chat/ChatFormat.h"
#include "runtime/data/chat/Example.h"
#include "runtime/data/chat/TurnSpans.h"

namespace tessera::chat {

struct EncodedDocument {
  DocumentKind kind = DocumentKind::Plain;
  std::vector<uint32_t> tokens;
  /// 0 or 1 for each token; none of an example that is only scored.
  std::vector<uint8_t> supervised;
  uint32_t turns = 0;    ///< of the assistant, supervised
  uint32_t ends = 0;     ///< supervised end-of-turn tokens of these turns
  uint32_t keptEnds = 0; ///< of them those that truncation leaves
};

/// One document, or the chosen and the rejected one.
using EncodedExample = std::vector<EncodedDocument>;

/// Which turns of the assistant a model learns.
enum class SupervisedTurns : uint8_t { All, Last };

struct ChatEncoderOptions {
  SupervisedTurns turns = SupervisedTurns::All;
  /// Special tokens written out in a message are those tokens, as in
  /// transformers; else such a message is an error.
  bool parsesSpecial = false;
  /// Score: without a loss mask, and nothing need be learned.
  ExampleUse use = ExampleUse::Learn;
  RenderOptions rendering;
};

/// One a thread.
class ChatEncoder {
public:
  ChatEncoder(const ChatFormat &format, const ChatEncoderOptions &options)
      : format(format), options(options), encoder(format.tokenizer) {}

  /// The ids that transformers' apply_chat_template gives (of strings: the
  /// tokenizer's own, with the end-of-turn token after the answer unless it is
  /// there or the answer is truncated). Supervised are the assistant's turns of
  /// the answers, see TurnSpans.h, or the answers. An error if nothing is.
  StatusOr<EncodedExample> encode(const Example &example);
  /// How many of the document's tokens are supervised end-of-turn tokens.
  uint32_t countEnds(const EncodedDocument &document) const;

private:
  Status encodeConversation(const Example &example, const Answer &answer,
                            EncodedDocument &out);
  Status encodeStrings(const Example &example, const Answer &answer,
                       EncodedDocument &out);
  /// Only the tokens, for `ExampleUse::Score`.
  Status readConversation(const Answer &answer,
                          const Conversation &conversation,
                          EncodedDocument &out);
  Status readStrings(const Example &example, const Answer &answer,
                     EncodedDocument &out);
  std::string textOf(const Example &example, const Answer &answer) const;
  Status checkExample(const Example &example) const;
  Status checkPlain(const JsonValue &value, std::string_view advice) const;
  Status checkText(std::string_view text, std::string_view advice) const;

  const ChatFormat &format;
  const ChatEncoderOptions &options;
  tokenizer::Encoder encoder;
};

} // namespace tessera::chat
