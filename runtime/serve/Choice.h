// From a request's tokens to the text of one choice.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/infer/engine/Request.h"
#include "runtime/serve/ToolCalls.h"

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

/// A token with its place.
struct ChoiceToken {
  TokenEvent event;
  int64_t offset = 0; ///< characters of the choice before it
  bool hasScore =
      true; ///< false: nothing stands before it that says how likely
};

/// What of the prompt a choice begins with.
struct Echo {
  std::vector<int32_t> tokens;
  std::size_t begin = 0; ///< the place of the first in the prompt
  /// The text had those of special tokens, and has them again.
  bool showsSpecial = false;
};

/// What is new of a choice.
struct Delta {
  std::size_t choice = 0;
  std::string text;
  std::vector<ChoiceToken> tokens; ///< that made it; if logprobs are wanted
  std::optional<EngineResult> end;
  std::vector<CallPiece> calls = {}; ///< that were found in the text
  bool hasCalls = false;             ///< in all of the choice so far
};

/// Code points of UTF-8.
int64_t charactersOf(std::string_view text);

/// Runs on the engine's thread and hands out what is new.
class Choice final : public RequestSink {
public:
  /// The tokenizer must outlive it. `shown` are special tokens whose text the
  /// choice has, unlike that of others.
  Choice(const tokenizer::Tokenizer &tokenizer, std::vector<std::string> stops,
         std::size_t number, bool logprobs, std::vector<int32_t> shown,
         std::function<void(Delta)> take, Echo echo = {})
      : tokenizer(tokenizer), decoder(tokenizer, /*skipSpecial=*/true),
        matcher(std::move(stops)), number(number), logprobs(logprobs),
        shown(std::move(shown)), take(std::move(take)), echo(std::move(echo)) {}
  void scored(std::size_t place, const TokenEvent &event) override;
  bool token(const TokenEvent &event) override;
  void finished(const EngineResult &result) override;

private:
  int64_t ownLength(const TokenEvent &event) const;
  std::string textOf(int32_t token);
  void note(const TokenEvent &event, std::string_view decoded, bool hasScore);
  std::string echoed(const TokenEvent &event, bool hasScore);
  void echoUpTo(std::size_t end);

  const tokenizer::Tokenizer &tokenizer;
  tokenizer::StreamDecoder decoder;
  StopMatcher matcher;
  std::size_t number;
  bool logprobs;
  std::vector<int32_t> shown;
  std::function<void(Delta)> take;
  std::vector<ChoiceToken> pending; ///< whose text is not certain yet
  int64_t characters = 0;           ///< of all tokens' text
  Echo echo;
  std::size_t nextEcho = 0; ///< of its tokens
};

} // namespace tessera::serve
