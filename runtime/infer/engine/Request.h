// What the engine is asked for, and what it answers.
#pragma once
#include "runtime/infer/Sampler.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

using EngineClock = std::chrono::steady_clock;

enum class FinishReason : uint8_t {
  stop,      ///< a stop token, or whoever receives the tokens has enough
  length,    ///< maxTokens, or the end of the context
  cancelled, ///< by cancel(), or by drain's end
  deadline,
  error, ///< of the device or of the weights; `message` says which
  form,  ///< of the request, which cannot be followed; `message` says why
};
std::string_view name(FinishReason reason);

/// A token as it was chosen.
struct TokenEvent {
  int32_t token = 0;
  bool isStop = false;    ///< one of stopTokens, of which no text is made
  TokenLogprobs logprobs; ///< if the request wants them
};

struct EngineResult {
  FinishReason reason = FinishReason::stop;
  std::string message; ///< of an error
  int64_t promptTokens = 0, cachedTokens = 0, generatedTokens = 0;
  /// Of the prompt, what was in the cache at some time: less than all of it
  /// where the request ended before.
  int64_t readTokens = 0;
};

/// Receives what becomes of a request, on the engine's thread: no call may
/// block. After finished() there is none.
class RequestSink {
public:
  virtual ~RequestSink() = default;
  /// False: enough, the request ends with `stop`.
  virtual bool token(const TokenEvent &event) = 0;
  /// Before any token(), if the request scores its prompt: each of its tokens
  /// but the first, which nothing stands before, with its place.
  virtual void scored(std::size_t /*place*/, const TokenEvent & /*event*/) {}
  virtual void finished(const EngineResult &result) = 0;
};

struct EngineRequest {
  std::vector<int32_t> prompt; ///< at least one token, inside the vocabulary
  SamplingOptions sampling;
  /// 0: the prompt is read, into the cache for those that begin alike, and
  /// nothing is generated.
  int64_t maxTokens = 16;
  std::vector<int32_t> stopTokens;
  std::optional<int64_t> logprobs;   ///< the number of likeliest tokens
  bool scoresPrompt = false;         ///< with logprobs, also of the prompt
  std::shared_ptr<TokenGuide> guide; ///< of the text's form; its own
  std::optional<EngineClock::time_point> deadline;
  std::shared_ptr<RequestSink> sink;
};

} // namespace tessera
