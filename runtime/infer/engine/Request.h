// Requests to the engine, and their results.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/infer/Sampler.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

using EngineClock = std::chrono::steady_clock;
inline double secondsOf(EngineClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

enum class FinishReason : uint8_t {
  stop,      ///< a stop token, or the sink returned false
  length,    ///< maxTokens, or the end of the context
  cancelled, ///< by cancel(), or at the deadline of drain()
  deadline,
  error, ///< of the device or of the weights; `message` says which
  form,  ///< structured output cannot go on; `message` says why
};
std::string_view name(FinishReason reason);

/// A token that was chosen.
struct TokenEvent {
  int32_t token = 0;
  bool isStop = false;    ///< one of stopTokens, which are not output
  TokenLogprobs logprobs; ///< if requested
};

/// When a request reached parts of its way; nothing if it ended before.
struct RequestTimes {
  EngineClock::time_point arrived, ended;
  std::optional<EngineClock::time_point> started; ///< left the queue
  std::optional<EngineClock::time_point> first;   ///< had its first token
};

struct EngineResult {
  FinishReason reason = FinishReason::stop;
  std::string message; ///< of an error
  int64_t promptTokens = 0, cachedTokens = 0, generatedTokens = 0;
  /// Prompt tokens that were in the KV cache at some time; fewer than all if
  /// the request ended early.
  int64_t readTokens = 0;
  RequestTimes times;
};

/// Receives a request's tokens and its end, on the engine's thread: calls must
/// not block. finished() is the last call.
class RequestSink {
public:
  virtual ~RequestSink() = default;
  /// False: the receiver has enough; the request ends with `stop`.
  virtual bool token(const TokenEvent &event) = 0;
  /// Before any token(), if the request scores its prompt: each prompt token
  /// but the first, which has no logprob, with its position.
  virtual void scored(std::size_t /*position*/, const TokenEvent & /*event*/) {}
  virtual void finished(const EngineResult &result) = 0;
};

/// A slot of the model that holds an adapter. The last owner's destructor may
/// free the slot for another one (runtime/serve/Adapters.h).
struct AdapterSlot {
  virtual ~AdapterSlot() = default;
  int32_t slot = -1;
  /// Of its contents, from 1 on and never reused: sequences with another number
  /// share no keys and values.
  uint64_t number = 0;
};

struct EngineRequest {
  std::vector<int32_t> prompt; ///< at least one token, inside the vocabulary
  SamplingOptions sampling;
  /// 0: generate nothing, only fill the prefix cache with the prompt.
  int64_t maxTokens = 16;
  std::vector<int32_t> stopTokens;
  std::optional<int64_t> logprobs;   ///< number of likeliest tokens to list
  bool scoresPrompt = false;         ///< with logprobs, also for the prompt
  std::shared_ptr<TokenGuide> guide; ///< structured output; not shared
  std::shared_ptr<const AdapterSlot> adapter; ///< null: the model as it is
  std::optional<EngineClock::time_point> deadline;
  /// Requests of a lower number run first, and preempt others.
  int64_t priority = 0;
  /// Whose request it is: tenants have equal shares (TenantShares.h).
  uint64_t tenant = 0;
  std::shared_ptr<RequestSink> sink;
};

/// Whether the request could run alone; if not, why.
Status checkRequest(const EngineRequest &request, const DecoderShape &shape);
/// Whether so many tokens of a prompt and after it fit the context: a part of
/// checkRequest().
Status checkLength(int64_t prompt, int64_t tokens, const DecoderShape &shape);

} // namespace tessera
