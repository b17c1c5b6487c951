// From a request's tokens to the text of one choice.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/infer/engine/Request.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::serve {

/// Cuts a text that comes in pieces where a stop begins, of several the one
/// that is complete first.
class StopMatcher {
public:
  explicit StopMatcher(std::vector<std::string> stops)
      : stops(std::move(stops)) {}
  /// What is certain to stand before any stop.
  std::string push(std::string_view text);
  /// What was held back because a stop could have begun there.
  std::string finish();
  bool found() const { return hasFound; }

private:
  std::vector<std::string> stops;
  std::string held;
  bool hasFound = false;
};

/// What is new of a choice.
struct Delta {
  std::size_t choice = 0;
  std::string text;
  std::vector<TokenEvent> tokens; ///< that made it; if logprobs are wanted
  std::optional<EngineResult> end;
};

/// Runs on the engine's thread and hands out what is new.
class Choice final : public RequestSink {
public:
  /// The tokenizer must outlive it.
  Choice(const tokenizer::Tokenizer &tokenizer, std::vector<std::string> stops,
         std::size_t number, bool logprobs, std::function<void(Delta)> take)
      : decoder(tokenizer, /*skipSpecial=*/true), matcher(std::move(stops)),
        number(number), logprobs(logprobs), take(std::move(take)) {}
  bool token(const TokenEvent &event) override;
  void finished(const EngineResult &result) override;

private:
  tokenizer::StreamDecoder decoder;
  StopMatcher matcher;
  std::size_t number;
  bool logprobs;
  std::function<void(Delta)> take;
  std::vector<TokenEvent> pending; ///< whose text is not certain yet
};

} // namespace tessera::serve
