#include "runtime/serve/Embeddings.h"
#include "runtime/data/Json.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Problem = std::optional<ApiError>;

template <typename... Args>
ApiError problem(std::string_view param, fmt::format_string<Args...> format,
                 Args &&...args) {
  return {400, fmt::format(format, std::forward<Args>(args)...),
          std::string(param), "invalid_value"};
}

Problem readTokens(const JsonValue::Array &values, PromptInput &to) {
  std::vector<int32_t> tokens;
  for (const JsonValue &value : values) {
    uint64_t token = 0;
    if (!value.get(token) || token > uint64_t(INT32_MAX))
      return problem("input", "a token of an input must be a natural number");
    tokens.push_back(int32_t(token));
  }
  if (tokens.empty())
    return problem("input", "a list of tokens must not be empty");
  to = std::move(tokens);
  return std::nullopt;
}

Problem readInput(const JsonValue &value, EmbeddingsRequest &request) {
  std::string_view text;
  if (value.get(text)) {
    request.inputs.emplace_back(std::string(text));
    return std::nullopt;
  }
  const JsonValue::Array &parts = value.elements();
  if (parts.empty())
    return problem("input", "input must be a text, texts, tokens, or lists of "
                            "tokens, and not empty");
  uint64_t token = 0;
  if (parts.front().get(token))
    return readTokens(parts, request.inputs.emplace_back());
  if (parts.size() > kMaxInputs)
    return problem("input", "at most {} inputs are read at once", kMaxInputs);
  for (const JsonValue &part : parts) {
    PromptInput &input = request.inputs.emplace_back();
    if (part.get(text))
      input = std::string(text);
    else if (!part.isArray())
      return problem("input", "an input must be a text or a list of tokens");
    else if (Problem found = readTokens(part.elements(), input))
      return found;
  }
  return std::nullopt;
}

Problem readModel(const JsonValue &value, EmbeddingsRequest &request) {
  std::string_view text;
  if (!value.get(text))
    return problem("model", "model must be a text");
  request.model = text;
  return std::nullopt;
}

Problem readEncoding(const JsonValue &value, EmbeddingsRequest &request) {
  std::string_view text;
  if (!value.get(text) || (text != "float" && text != "base64"))
    return problem("encoding_format",
                   "encoding_format must be float or base64");
  request.base64 = text == "base64";
  return std::nullopt;
}

Problem readDimensions(const JsonValue &value, EmbeddingsRequest &request) {
  if (!value.get(request.dimensions.emplace()) || *request.dimensions < 1)
    return problem("dimensions", "dimensions must be a whole number from 1 on");
  return std::nullopt;
}

Problem readTruncate(const JsonValue &value, EmbeddingsRequest &request) {
  int64_t &most = request.truncate.emplace();
  if (!value.get(most) || (most < 1 && most != -1))
    return problem("truncate_prompt_tokens",
                   "truncate_prompt_tokens must be a whole number from 1 on, "
                   "or -1 for as many as the model takes");
  return std::nullopt;
}

Problem ignore(const JsonValue &, EmbeddingsRequest &) { return std::nullopt; }

struct Field {
  std::string_view name;
  Problem (*read)(const JsonValue &, EmbeddingsRequest &);
};
constexpr Field kFields[] = {{"model", readModel},
                             {"input", readInput},
                             {"encoding_format", readEncoding},
                             {"dimensions", readDimensions},
                             {"truncate_prompt_tokens", readTruncate},
                             {"user", ignore}};

} // namespace

std::variant<EmbeddingsRequest, ApiError>
parseEmbeddingsRequest(std::string_view body) {
  StatusOr<JsonValue> root = JsonValue::parse(body, "body");
  if (!root.ok())
    return ApiError{400, root.message(), "", "invalid_json"};
  if (!root->isObject())
    return ApiError{400, "the body must be a JSON object", "", "invalid_json"};
  for (const JsonValue::Member &member : root->members())
    if (!member.value.isNull() &&
        std::ranges::find(kFields, member.name, &Field::name) ==
            std::end(kFields))
      return problem(oneLine(member.name), "the field {} is not served",
                     quote(member.name));
  EmbeddingsRequest request;
  for (const Field &field : kFields) {
    const JsonValue &value = (*root)[field.name];
    if (value.isNull())
      continue;
    if (Problem found = field.read(value, request))
      return *found;
  }
  if (request.model.empty())
    return problem("model", "model is missing");
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

// Vectors are most of the answer, and a number's shortest text that reads back
// as the same float is half as long as that of the same double.
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
  // A folder's name need not be UTF-8.
  std::string name = nlohmann::json(model).dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  fmt::format_to(to,
                 R"(],"model":{},"usage":{{"prompt_tokens":{},)"
                 R"("total_tokens":{}}}}})",
                 name, tokens, tokens);
  return out;
}

ApiError noEmbeddings() {
  return {400,
          "this model generates text and has no embeddings; serve an encoder, "
          "such as a BERT model",
          "model", "not_supported"};
}

} // namespace tessera::serve
