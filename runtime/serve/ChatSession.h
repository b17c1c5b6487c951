// A conversation with a model: its messages and the tokens of the KV cache, so
// that a turn computes only the new tokens.
#pragma once
#include "runtime/infer/Decoder.h"
#include "runtime/infer/Sampler.h"
#include "runtime/serve/Chat.h"

#include <functional>
#include <string>
#include <vector>

namespace tessera {

/// Conditions that end an answer, in addition to `stop()`.
struct AnswerLimits {
  std::vector<int32_t> endTokens;
  uint64_t maxTokens = 0;
  SamplingOptions sampling;
};

struct Answer {
  std::string text;
  int64_t kept = 0; ///< tokens of the prompt that were cached
  int64_t read = 0; ///< tokens of the prompt that were computed
  int64_t generated = 0;
  bool ended = false; ///< the model ended the answer
  bool full = false;  ///< the context is full
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

  /// The model's answer to `message`. `show` receives text as it is generated;
  /// `stop` is called after each token. A stopped answer stays in the
  /// conversation; after an error the message does not.
  StatusOr<Answer> say(const std::string &message, const AnswerLimits &limits,
                       const std::function<void(std::string_view)> &show,
                       const std::function<bool()> &stop);
  /// Starts a new conversation with this system prompt; empty: none.
  void reset(const std::string &system);

private:
  /// Makes row 0 of the cache hold `wanted`.
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
  uint64_t draws = 0;          ///< number of draws so far
};

} // namespace tessera
