// Readers of values, and of the fields of sampling and output.
#include "runtime/serve/ApiFields.h"
#include "runtime/serve/Choice.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tessera::serve {

//===--- values -----------------------------------------------------------===//

Problem checkMembers(std::string_view field, std::string_view what,
                     const JsonValue &value,
                     std::span<const std::string_view> known) {
  for (const JsonValue::Member &member : value.members())
    if (std::ranges::count(known, member.name) == 0 && !member.value.isNull())
      return problem(field, "the field {} of {} is not supported",
                     quote(member.name), what);
  return std::nullopt;
}

bool getWhole(const JsonValue &value, int64_t &to) {
  if (value.get(to))
    return true;
  // 3.0 is a whole number too, as far as a double can tell.
  double number = 0;
  if (!value.get(number) || std::trunc(number) != number ||
      std::abs(number) > 0x1p53)
    return false;
  to = int64_t(number);
  return true;
}

Problem readTruncation(std::string_view name, const JsonValue &value,
                       std::optional<int64_t> &to) {
  int64_t &most = to.emplace();
  if (!getWhole(value, most) || (most < 1 && most != -1))
    return problem(name,
                   "{} must be an integer of at least 1, or -1 for the context "
                   "of the model",
                   name);
  return std::nullopt;
}

Problem readWhole(std::string_view name, int64_t least, int64_t most,
                  const JsonValue &value, int64_t &to) {
  if (!getWhole(value, to) || to < least || to > most)
    return problem(name, "{} must be a whole number from {} to {}", name, least,
                   most);
  return std::nullopt;
}

Problem readNumber(const Field &field, const JsonValue &value, float &to) {
  double number = 0;
  if (!value.get(number) || !(number >= field.least && number <= field.most))
    return problem(field.name, "{} must be a number from {} to {}", field.name,
                   field.least, field.most);
  to = float(number);
  return std::nullopt;
}

Problem readBool(std::string_view name, const JsonValue &value, bool &to) {
  if (!value.get(to))
    return problem(name, "{} must be true or false", name);
  return std::nullopt;
}

Problem readText(std::string_view name, const JsonValue &value,
                 std::string &to) {
  std::string_view text;
  if (!value.get(text))
    return problem(name, "{} must be a string", name);
  to = text;
  return std::nullopt;
}

//===--- fields -----------------------------------------------------------===//

Problem readModel(const Field &field, const JsonValue &value,
                  ApiRequest &request) {
  if (Problem found = readText(field.name, value, request.model))
    return found;
  if (request.model.empty())
    return problem(field.name, "model must be a string that is not empty");
  return std::nullopt;
}

Problem readSuffix(const Field &field, const JsonValue &value,
                   ApiRequest &request) {
  return readText(field.name, value, request.suffix);
}

Problem readInstructions(const Field &field, const JsonValue &value,
                         ApiRequest &request) {
  return readText(field.name, value, request.instructions.emplace());
}

Problem readStop(const Field &field, const JsonValue &value,
                 ApiRequest &request) {
  auto add = [&](const JsonValue &each) -> Problem {
    std::string_view text;
    if (!each.get(text) || text.empty() || charactersOf(text) > kMaxStopLength)
      return problem(field.name, "a stop string must have 1 to {} characters",
                     kMaxStopLength);
    request.stop.emplace_back(text);
    return std::nullopt;
  };
  if (!value.isArray())
    return add(value);
  if (int64_t(value.elements().size()) > kMaxStops)
    return problem(field.name, "there may be at most {} stop strings",
                   kMaxStops);
  for (const JsonValue &each : value.elements())
    if (Problem found = add(each))
      return found;
  return std::nullopt;
}

Problem readBias(const Field &field, const JsonValue &value,
                 ApiRequest &request) {
  if (!value.isObject() || value.members().size() > 1024)
    return problem(field.name,
                   "logit_bias must map at most 1024 tokens to numbers");
  for (const JsonValue::Member &member : value.members()) {
    float bias = 0;
    if (Problem found = readNumber(field, member.value, bias))
      return found;
    if (bias == 0) // has no effect, whatever the name
      continue;
    int32_t token = -1;
    const char *end = member.name.data() + member.name.size();
    auto [stop, code] = std::from_chars(member.name.data(), end, token);
    if (code != std::errc() || stop != end || token < 0)
      return problem(field.name, "{} is not a token id", quote(member.name));
    request.sampling.bias.emplace_back(token, bias);
  }
  return std::nullopt;
}

Problem readSeed(const Field &field, const JsonValue &value,
                 ApiRequest &request) {
  int64_t seed = 0;
  uint64_t natural = 0;
  if (value.get(natural))
    request.seed = natural;
  else if (getWhole(value, seed))
    request.seed = uint64_t(seed);
  else
    return problem(field.name, "seed must be an integer");
  return std::nullopt;
}

/// Obfuscation pads events against analysis of encrypted traffic. OpenAI does
/// so by default; here it is off by default.
static bool readObfuscation(const JsonValue::Member &option,
                            ApiRequest &request) {
  return option.name == "include_obfuscation" &&
         option.value.get(request.obfuscate);
}

Problem readStreamOptions(const Field &field, const JsonValue &value,
                          ApiRequest &request) {
  if (!value.isObject())
    return problem(field.name, "stream_options must be an object");
  for (const JsonValue::Member &member : value.members()) {
    if (readObfuscation(member, request))
      continue;
    if (member.name != "include_usage")
      return problem(field.name, "the stream option {} is not supported",
                     quote(member.name));
    if (Problem found = readBool("stream_options.include_usage", member.value,
                                 request.includeUsage))
      return found;
  }
  return std::nullopt;
}

/// Of responses, whose usage is always reported.
Problem readResponseStreamOptions(const Field &field, const JsonValue &value,
                                  ApiRequest &request) {
  for (const JsonValue::Member &member : value.members())
    if (!readObfuscation(member, request))
      return problem(field.name, "the stream option {} is not supported",
                     quote(member.name));
  if (!value.isObject())
    return problem(field.name, "stream_options must be an object");
  return std::nullopt;
}

Problem readMaxTokens(const Field &field, const JsonValue &value,
                      ApiRequest &request) {
  return readWhole(field, value, request.maxTokens.emplace());
}

Problem readCompletionLogprobs(const Field &field, const JsonValue &value,
                               ApiRequest &request) {
  return readWhole(field, value, request.logprobs.emplace());
}

Problem readChatLogprobs(const Field &field, const JsonValue &value,
                         ApiRequest &request) {
  bool wanted = false;
  if (Problem found = readBool(field.name, value, wanted))
    return found;
  if (wanted && !request.logprobs)
    request.logprobs = 0;
  return std::nullopt;
}

/// Read after `logprobs`, which it requires.
Problem readTopLogprobs(const Field &field, const JsonValue &value,
                        ApiRequest &request) {
  if (!request.logprobs)
    return problem(field.name, "top_logprobs requires logprobs: true");
  return readWhole(field, value, *request.logprobs);
}

Problem readMetadata(std::string_view name, const JsonValue &value,
                     Metadata &to) {
  bool good = value.isObject() && value.members().size() <= 16;
  for (const JsonValue::Member &member : value.members()) {
    std::string_view text;
    good = good && member.value.get(text) && charactersOf(text) <= 512 &&
           charactersOf(member.name) <= 64;
    if (good)
      to.emplace_back(member.name, text);
  }
  if (!good)
    return problem(name, "metadata must have at most 16 strings, of 512 "
                         "characters with names of 64");
  return std::nullopt;
}

/// Has no effect, but stored answers repeat it.
Problem readMetadata(const Field &field, const JsonValue &value,
                     ApiRequest &request) {
  return readMetadata(field.name, value, request.metadata);
}

Problem readPrevious(const Field &field, const JsonValue &value,
                     ApiRequest &request) {
  if (Problem found = readText(field.name, value, request.previousId))
    return found;
  if (request.previousId.empty())
    return problem(field.name, "{} must be the id of a response", field.name);
  return std::nullopt;
}

} // namespace tessera::serve
