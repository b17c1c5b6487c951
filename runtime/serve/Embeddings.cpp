#include "runtime/serve/Embeddings.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using EmbeddingsField = FieldOf<EmbeddingsRequest>;

Problem readTokens(const JsonValue::Array &values, PromptInput &to) {
  std::vector<int32_t> tokens;
  for (const JsonValue &value : values) {
    uint64_t token = 0;
    if (!value.get(token) || token > uint64_t(INT32_MAX))
      return problem("input",
                     "a token of an input must be a non-negative integer");
    tokens.push_back(int32_t(token));
  }
  if (tokens.empty())
    return problem("input", "a list of tokens must not be empty");
  to = std::move(tokens);
  return std::nullopt;
}

Problem readInput(const EmbeddingsField &field, const JsonValue &value,
                  EmbeddingsRequest &request) {
  std::string_view text;
  if (value.get(text)) {
    request.inputs.emplace_back(std::string(text));
    return std::nullopt;
  }
  const JsonValue::Array &parts = value.elements();
  if (parts.empty())
    return problem(field.name,
                   "input must be a string, strings, tokens, or lists of "
                   "tokens, and not empty");
  uint64_t token = 0;
  if (parts.front().get(token))
    return readTokens(parts, request.inputs.emplace_back());
  if (parts.size() > kMaxInputs)
    return problem(field.name, "there may be at most {} inputs", kMaxInputs);
  for (const JsonValue &part : parts) {
    PromptInput &input = request.inputs.emplace_back();
    if (part.get(text))
      input = std::string(text);
    else if (!part.isArray())
      return problem(field.name,
                     "an input must be a string or a list of tokens");
    else if (Problem found = readTokens(part.elements(), input))
      return found;
  }
  return std::nullopt;
}

Problem readModel(const EmbeddingsField &field, const JsonValue &value,
                  EmbeddingsRequest &request) {
  return readText(field.name, value, request.model);
}

Problem readEncoding(const EmbeddingsField &field, const JsonValue &value,
                     EmbeddingsRequest &request) {
  std::string_view text;
  if (!value.get(text) || (text != "float" && text != "base64"))
    return problem(field.name, "encoding_format must be float or base64");
  request.base64 = text == "base64";
  return std::nullopt;
}

Problem readDimensions(const EmbeddingsField &field, const JsonValue &value,
                       EmbeddingsRequest &request) {
  return readWhole(field, value, request.dimensions.emplace());
}

Problem readTruncate(const EmbeddingsField &field, const JsonValue &value,
                     EmbeddingsRequest &request) {
  return readTruncation(field.name, value, request.truncate);
}

Problem ignoreUser(const EmbeddingsField &field, const JsonValue &value,
                   EmbeddingsRequest &) {
  std::string ignored;
  return readText(field.name, value, ignored);
}

constexpr EmbeddingsField kFields[] = {
    {"model", kEmbeddings, readModel, R"({"type": "string", "minLength": 1})",
     0, 0, "a name of the served model; default: the model"},
    {"input", kEmbeddings, readInput,
     R"({"anyOf": [{"type": "string"},
         {"type": "array", "minItems": 1, "maxItems": 2048,
          "items": {"anyOf": [{"type": "string"},
            {"$ref": "#/components/schemas/Tokens"}]}},
         {"$ref": "#/components/schemas/Tokens"}]})",
     0, 0, "a string, strings, tokens, or lists of tokens"},
    {"encoding_format", kEmbeddings, readEncoding,
     R"({"enum": ["float", "base64"]})", 0, 0,
     "base64: little-endian 32-bit floats"},
    {"dimensions", kEmbeddings, readDimensions, R"({"type": "integer"})", 1,
     INT32_MAX, "the width of the model, or less if it supports that"},
    {"truncate_prompt_tokens", kEmbeddings, readTruncate,
     R"({"anyOf": [{"type": "integer", "minimum": 1}, {"const": -1}]})", 0, 0,
     "an extension: truncates longer inputs to so many tokens; -1: to the "
     "context "
     "of the model"},
    {"user", kEmbeddings, ignoreUser, R"({"type": "string"})"},
};

} // namespace

std::span<const EmbeddingsField> embeddingsFields() { return kFields; }

std::variant<EmbeddingsRequest, ApiError>
parseEmbeddingsRequest(std::string_view body) {
  auto root = parseBody(body);
  if (const auto *error = std::get_if<ApiError>(&root))
    return *error;
  EmbeddingsRequest request;
  if (Problem found = readFields(embeddingsFields(), Endpoint::embeddings,
                                 std::get<JsonValue>(root), request))
    return *found;
  if (request.inputs.empty())
    return problem("input", "input is missing");
  return request;
}

std::string base64Of(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < count ? uint32_t(bytes[i + j]) : 0);
    for (std::size_t j = 0; j < 4; ++j)
      out += j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

// Embeddings are most of the response: the shortest decimals that read back as
// the same float are half as long as a double's.
std::string embeddingsAnswer(std::string_view model,
                             std::span<const float> vectors, int64_t width,
                             bool base64, int64_t tokens) {
  static_assert(std::endian::native == std::endian::little,
                "clients read base64 as little-endian floats");
  std::string out = R"({"object":"list","data":[)";
  auto to = std::back_inserter(out);
  const std::size_t count = vectors.size() / std::size_t(width);
  for (std::size_t i = 0; i < count; ++i) {
    auto vector = vectors.subspan(i * std::size_t(width), std::size_t(width));
    fmt::format_to(to, R"({}{{"object":"embedding","index":{},"embedding":)",
                   i ? "," : "", i);
    if (base64)
      fmt::format_to(to, "\"{}\"}}", base64Of(std::as_bytes(vector)));
    else
      fmt::format_to(to, "[{}]}}", fmt::join(vector, ","));
  }
  // A folder's name may not be UTF-8.
  std::string name = nlohmann::json(model).dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  fmt::format_to(to,
                 R"(],"model":{},"usage":{{"prompt_tokens":{},)"
                 R"("total_tokens":{}}}}})",
                 name, tokens, tokens);
  return out;
}

} // namespace tessera::serve
