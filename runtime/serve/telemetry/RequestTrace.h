// What a trace says of a request: OpenTelemetry spans with the attributes of
// its conventions for generative models.
#pragma once
#include "runtime/serve/telemetry/TraceContext.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera::serve {

/// A choice in the engine. A time is missing if the choice ended before.
struct ChoiceTrace {
  using Time = std::chrono::steady_clock::time_point;
  Time arrived, ended;
  std::optional<Time> started, first; ///< left the queue; had a token
  std::string finishReason;
};

struct GenerationTrace {
  std::vector<ChoiceTrace> choices;     ///< that have ended
  int64_t n = 1;                        ///< choices of a prompt
  int64_t tokens = 0, cachedTokens = 0; ///< cached: of the prompt
  std::optional<int64_t> maxTokens;
  double temperature = 0, topP = 1;
};

struct RequestTrace {
  std::optional<TraceContext> context; ///< of the client
  std::string operation;      ///< "chat", "text_completion", "embeddings"
  std::string requestedModel; ///< empty: the request names none
  std::string model, id;      ///< an embedding has no id
  int status = 200;           ///< of HTTP
  std::string error;
  std::chrono::steady_clock::time_point arrived, ended;
  int64_t promptTokens = 0;
  std::optional<GenerationTrace> generated;
};

/// Adds the span of the request, and of each choice its time in the queue, in
/// prefill and in decoding, as OTLP's JSON encoding has them. `random` gives
/// 64 bits at a call; ids are made of them.
void addSpans(const RequestTrace &request, uint64_t (*random)(),
              nlohmann::json &spans);

} // namespace tessera::serve
