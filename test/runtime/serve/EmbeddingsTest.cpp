#include "runtime/serve/Embeddings.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

EmbeddingsRequest mustParse(std::string_view body) {
  auto parsed = parseEmbeddingsRequest(body);
  if (const auto *error = std::get_if<ApiError>(&parsed))
    throw std::runtime_error(error->message);
  return std::get<EmbeddingsRequest>(parsed);
}

TEST(Embeddings, ReadsEveryField) {
  EmbeddingsRequest request = mustParse(
      R"({"model": "m", "input": ["a", [1, 2], ""], "dimensions": 8,
          "encoding_format": "base64", "truncate_prompt_tokens": -1,
          "user": "u", "unknown": null})");
  EXPECT_EQ(request.model, "m");
  ASSERT_EQ(request.inputs.size(), 3U);
  EXPECT_EQ(std::get<std::string>(request.inputs[0]), "a");
  EXPECT_EQ(std::get<1>(request.inputs[1]), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(std::get<std::string>(request.inputs[2]), "");
  EXPECT_TRUE(request.base64);
  EXPECT_EQ(request.dimensions, 8);
  EXPECT_EQ(request.truncate, -1);
}

TEST(Embeddings, OneInputIsATextOrTokens) {
  EmbeddingsRequest text = mustParse(R"({"model": "m", "input": "a b"})");
  ASSERT_EQ(text.inputs.size(), 1U);
  EXPECT_FALSE(text.base64);
  EXPECT_FALSE(text.dimensions || text.truncate);
  EmbeddingsRequest tokens = mustParse(R"({"model": "m", "input": [3, 4]})");
  ASSERT_EQ(tokens.inputs.size(), 1U);
  EXPECT_EQ(std::get<1>(tokens.inputs[0]), (std::vector<int32_t>{3, 4}));
}

TEST(Embeddings, RefusesByName) {
  const std::pair<const char *, const char *> cases[] = {
      {R"({"model": 3, "input": "a"})", "model"},
      {R"({"model": "m"})", "input"},
      {R"({"model": "m", "input": []})", "input"},
      {R"({"model": "m", "input": [[]]})", "input"},
      {R"({"model": "m", "input": [1, "a"]})", "input"},
      {R"({"model": "m", "input": ["a", 1]})", "input"},
      {R"({"model": "m", "input": [-1]})", "input"},
      {R"({"model": "m", "input": [2147483648]})", "input"},
      {R"({"model": "m", "input": {"a": 1}})", "input"},
      {R"({"model": "m", "input": "a", "encoding_format": "int8"})",
       "encoding_format"},
      {R"({"model": "m", "input": "a", "dimensions": 0})", "dimensions"},
      {R"({"model": "m", "input": "a", "dimensions": 1.5})", "dimensions"},
      {R"({"model": "m", "input": "a", "truncate_prompt_tokens": -2})",
       "truncate_prompt_tokens"},
      {R"({"model": "m", "input": "a", "inputs": "b"})", "inputs"}};
  for (auto [body, param] : cases) {
    auto parsed = parseEmbeddingsRequest(body);
    const auto *error = std::get_if<ApiError>(&parsed);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->param, param) << body;
    EXPECT_EQ(error->status, 400);
  }
  std::string many = R"({"model": "m", "input": ["a")";
  for (size_t i = 0; i < kMaxInputs; ++i)
    many += R"(,"a")";
  EXPECT_TRUE(
      std::holds_alternative<ApiError>(parseEmbeddingsRequest(many + "]}")));
}

// RFC 4648, section 10.
TEST(Embeddings, Base64) {
  const std::pair<const char *, const char *> cases[] = {
      {"", ""},
      {"f", "Zg=="},
      {"fo", "Zm8="},
      {"foo", "Zm9v"},
      {"foob", "Zm9vYg=="},
      {"fooba", "Zm9vYmE="},
      {"foobar", "Zm9vYmFy"}};
  for (auto [plain, coded] : cases)
    EXPECT_EQ(base64Of(std::as_bytes(std::span(std::string_view(plain)))),
              coded);
}

TEST(Embeddings, AnswersNumbersThatReadBackAsTheyWere) {
  const std::vector<float> vectors = {0.1F, -3.4028235e38F, 1e-45F, 0.F};
  auto answer = nlohmann::json::parse(
      embeddingsAnswer("a \"name\"", vectors, 2, false, 7));
  EXPECT_EQ(answer["model"], "a \"name\"");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(answer["usage"]["total_tokens"], 7);
  ASSERT_EQ(answer["data"].size(), 2U);
  for (size_t i = 0; i < vectors.size(); ++i)
    EXPECT_EQ(answer["data"][i / 2]["embedding"][i % 2].get<float>(),
              vectors[i]);
  EXPECT_EQ(answer["data"][1]["index"], 1);
  auto coded =
      nlohmann::json::parse(embeddingsAnswer("m", vectors, 2, true, 7));
  EXPECT_EQ(coded["data"][1]["embedding"], "AQAAAAAAAAA=");
}

} // namespace
} // namespace tessera::serve
