// Turns a request's tokens into the text of one choice.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/infer/engine/Request.h"
#include "runtime/serve/ToolCalls.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::serve {

/// Truncates streamed text at a stop string; of several, at the one that ends
/// first.
class StopMatcher {
public:
  explicit StopMatcher(std::vector<std::string> stops)
      : stops(std::move(stops)) {}
  /// Returns the text that certainly precedes any stop string.
  std::string push(std::string_view text);
  /// Returns the text that was held back because a stop string could begin
  /// there.
  std::string finish();
  bool found() const { return !hit.empty(); }
  /// The stop string that was found.
  const std::string &which() const { return hit; }

private:
  std::vector<std::string> stops;
  std::string held;
  std::string hit;
};

/// A token and its offset.
struct ChoiceToken {
  TokenEvent event;
  int64_t offset = 0;    ///< in characters of the choice
  bool hasScore = true;  ///< false: the first token, which has no logprob
  bool isPrompt = false; ///< echoed
};

/// The part of the prompt that a choice begins with.
struct Echo {
  std::vector<int32_t> tokens;
  std::size_t begin = 0; ///< index of the first in the prompt
  /// Special tokens were part of the text, and are shown.
  bool showsSpecial = false;
};

/// New output of a choice.
struct Delta {
  std::size_t choice = 0;
  std::string text;
  std::vector<ChoiceToken> tokens; ///< if the choice keeps them
  std::optional<EngineResult> end;
  std::vector<CallPiece> calls = {}; ///< tool calls in the text
  bool hasCalls = false;             ///< whether the choice has had any
  std::string reasoning = {};        ///< precedes the text
  int64_t generated = 0; ///< tokens since the last delta, the end's among them
  std::string stopped = {}; ///< at the end: the stop string that was found
};

/// Code points of UTF-8.
int64_t charactersOf(std::string_view text);

/// Runs on the engine's thread and passes new output to `take`.
class Choice final : public RequestSink {
public:
  /// The tokenizer must outlive it. Deltas have tokens if `keepsTokens`.
  /// `shown` are special tokens that are part of the text; others are left out.
  Choice(const tokenizer::Tokenizer &tokenizer, std::vector<std::string> stops,
         std::size_t number, bool keepsTokens, std::vector<int32_t> shown,
         std::function<void(Delta)> take, Echo echo = {})
      : tokenizer(tokenizer), decoder(tokenizer, /*skipSpecial=*/true),
        matcher(std::move(stops)), number(number), keepsTokens(keepsTokens),
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
  void send(std::string text, std::optional<EngineResult> end = std::nullopt);

  const tokenizer::Tokenizer &tokenizer;
  tokenizer::StreamDecoder decoder;
  StopMatcher matcher;
  std::size_t number;
  bool keepsTokens;
  std::vector<int32_t> shown;
  std::function<void(Delta)> take;
  std::vector<ChoiceToken> pending; ///< whose text is held back
  int64_t characters = 0;           ///< of all tokens
  int64_t generated = 0;            ///< tokens since the last delta
  Echo echo;
  std::size_t nextEcho = 0; ///< index of the next echoed token
};

} // namespace tessera::serve
