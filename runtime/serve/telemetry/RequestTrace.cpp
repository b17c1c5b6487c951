#include "runtime/serve/telemetry/RequestTrace.h"

#include <cstring>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using nlohmann::json;

// Of OTLP (opentelemetry/proto/trace/v1/trace.proto).
enum Kind { internal = 1, server = 2 };
enum Code { unset = 0, failed = 2 };

json attribute(std::string_view key, std::string_view value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}
// 64-bit integers are strings in the JSON encoding of protobuf.
json attribute(std::string_view key, int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}
json attribute(std::string_view key, double value) {
  return {{"key", key}, {"value", {{"doubleValue", value}}}};
}
json attribute(std::string_view key, const std::vector<std::string> &values) {
  json array = json::array();
  for (const std::string &value : values)
    array.push_back({{"stringValue", value}});
  return {{"key", key},
          {"value", {{"arrayValue", {{"values", std::move(array)}}}}}};
}

/// Nanoseconds since 1970.
std::string unixTime(std::chrono::steady_clock::time_point time) {
  const auto ago = std::chrono::steady_clock::now() - time;
  const auto then = std::chrono::system_clock::now() - ago;
  return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(
                            then.time_since_epoch())
                            .count());
}

SpanId newSpan(uint64_t (*random)()) {
  SpanId id{};
  while (id == SpanId{}) {
    const uint64_t bits = random();
    std::memcpy(id.data(), &bits, id.size());
  }
  return id;
}

TraceId newTrace(uint64_t (*random)()) {
  TraceId id{};
  for (std::size_t at = 0; at < id.size(); at += sizeof(uint64_t)) {
    const SpanId half = newSpan(random); // not zero
    std::memcpy(id.data() + at, half.data(), half.size());
  }
  return id;
}

json span(const TraceId &trace, const SpanId &id, std::string_view name,
          Kind kind, std::chrono::steady_clock::time_point start,
          std::chrono::steady_clock::time_point end) {
  return {{"traceId", hex(trace)},
          {"spanId", hex(id)},
          {"name", name},
          {"kind", kind},
          {"startTimeUnixNano", unixTime(start)},
          {"endTimeUnixNano", unixTime(end)}};
}

// Names of attributes are those of OpenTelemetry's semantic conventions for
// generative AI and for HTTP.

void addGenerated(const GenerationTrace &generated, json &attributes) {
  std::vector<std::string> reasons;
  for (const ChoiceTrace &choice : generated.choices)
    reasons.push_back(choice.finishReason);
  for (json each :
       {attribute("gen_ai.request.temperature", generated.temperature),
        attribute("gen_ai.request.top_p", generated.topP),
        attribute("gen_ai.usage.output_tokens", generated.tokens),
        attribute("gen_ai.usage.cache_read.input_tokens",
                  generated.cachedTokens),
        attribute("gen_ai.response.finish_reasons", reasons)})
    attributes.push_back(std::move(each));
  if (generated.n > 1)
    attributes.push_back(attribute("gen_ai.request.choice.count", generated.n));
  if (generated.maxTokens)
    attributes.push_back(
        attribute("gen_ai.request.max_tokens", *generated.maxTokens));
}

json attributesOf(const RequestTrace &request) {
  json attributes = json::array(
      {attribute("gen_ai.operation.name", request.operation),
       attribute("gen_ai.provider.name", "tessera"),
       attribute("gen_ai.response.model", request.model),
       attribute("gen_ai.usage.input_tokens", request.promptTokens),
       attribute("http.response.status_code", int64_t(request.status))});
  if (!request.requestedModel.empty())
    attributes.push_back(
        attribute("gen_ai.request.model", request.requestedModel));
  if (!request.id.empty())
    attributes.push_back(attribute("gen_ai.response.id", request.id));
  if (!request.error.empty())
    attributes.push_back(
        attribute("error.type", std::to_string(request.status)));
  if (request.generated)
    addGenerated(*request.generated, attributes);
  return attributes;
}

/// Of each choice its time in the queue, in prefill and in decoding.
void addChoices(const std::vector<ChoiceTrace> &choices, const TraceId &trace,
                const SpanId &parent, uint64_t (*random)(), json &spans) {
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const ChoiceTrace &choice = choices[i];
    auto add = [&](std::string_view name, ChoiceTrace::Time start,
                   ChoiceTrace::Time end) {
      json part = span(trace, newSpan(random), name, internal, start, end);
      part["parentSpanId"] = hex(parent);
      part["attributes"] =
          json::array({attribute("tessera.choice", int64_t(i))});
      spans.push_back(std::move(part));
    };
    add("queue", choice.arrived, choice.started.value_or(choice.ended));
    if (choice.started)
      add("prefill", *choice.started, choice.first.value_or(choice.ended));
    if (choice.first)
      add("decode", *choice.first, choice.ended);
  }
}

} // namespace

void addSpans(const RequestTrace &request, uint64_t (*random)(), json &spans) {
  const TraceId trace =
      request.context ? request.context->trace : newTrace(random);
  const SpanId own = newSpan(random);
  json whole = span(trace, own, request.operation + " " + request.model, server,
                    request.arrived, request.ended);
  if (request.context)
    whole["parentSpanId"] = hex(request.context->parent);
  whole["attributes"] = attributesOf(request);
  whole["status"] = {{"code", request.error.empty() ? unset : failed}};
  if (!request.error.empty())
    whole["status"]["message"] = request.error;
  spans.push_back(std::move(whole));
  if (request.generated)
    addChoices(request.generated->choices, trace, own, random, spans);
}

} // namespace tessera::serve
