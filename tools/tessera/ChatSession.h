// A conversation with a model: what was said, and what of it stands in the
// cache of keys and values, so that a turn reads only what is new.
#pragma once
#include "runtime/infer/Decoder.h"
#include "runtime/infer/Sampler.h"
#include "runtime/serve/Chat.h"

#include <functional>
#include <string>
#include <vector>

namespace tessera {

/// What ends an answer, beside `stop()`.
struct AnswerLimits {
  std::vector<int32_t> endTokens;
  uint64_t maxTokens = 0;
  SamplingOptions sampling;
};

struct Answer {
  std::string text;
  int64_t kept = 0; ///< tokens of the prompt that the cache had
  int64_t read = 0; ///< and those that it had not
  int64_t generated = 0;
  bool ended = false; ///< by the model
  bool full = false;  ///< the context is
};

/// The arguments must outlive it.
class ChatSession {
public:
  ChatSession(Decoder &decoder, const tokenizer::Tokenizer &tokenizer,
              const serve::ChatRenderer &chat)
      : decoder(decoder), tokenizer(tokenizer), chat(chat), encoder(tokenizer) {
  }
  ~ChatSession() { decoder.release(sequence); }
  ChatSession(const ChatSession &) = delete;

  /// The model's answer to `message`; `show` receives its text as it becomes
  /// certain, `stop` is asked after each token. An answer that was stopped
  /// counts as it is; after an error the message was not said.
  StatusOr<Answer> say(const std::string &message, const AnswerLimits &limits,
                       const std::function<void(std::string_view)> &show,
                       const std::function<bool()> &stop);
  /// Forgets what was said, and begins with this text of the system; empty:
  /// none.
  void reset(const std::string &system);

private:
  /// Row 0 is then as `wanted`.
  Status readPrompt(std::span<const int32_t> prompt, const Wanted &wanted,
                    Answer &answer);
  Status generate(std::span<const int32_t> prompt, const AnswerLimits &limits,
                  const std::function<void(std::string_view)> &show,
                  const std::function<bool()> &stop, Answer &answer);

  Decoder &decoder;
  const tokenizer::Tokenizer &tokenizer;
  const serve::ChatRenderer &chat;
  tokenizer::Encoder encoder;
  std::vector<serve::ChatMessage> messages;
  Sequence sequence;
  std::vector<int32_t> cached; ///< the sequence's tokens
  uint64_t draws = 0;          ///< so far
};

} // namespace tessera
