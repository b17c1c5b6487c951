// Bodies that are read; those that are refused are in api.py and the corpus.
#include "runtime/serve/Api.h"
#include "runtime/serve/Chat.h"

#include <gtest/gtest.h>

#include <ctime>

namespace tessera::serve {
namespace {

TEST(ApiRequest, ReadsEveryFieldOfACompletion) {
  auto parsed = parseApiRequest(
      R"({"model":"m","prompt":["a",[1,2.0]],"max_tokens":8,"temperature":0.5,
          "top_p":0.25,"top_k":3,"min_p":0.125,"repetition_penalty":1.5,
          "presence_penalty":-1,"frequency_penalty":2,"n":2,"seed":-3,
          "stop":["x","y"],"logit_bias":{"5":-100},"logprobs":4,"stream":true,
          "stream_options":{"include_usage":true},"ignore_eos":true})",
      Endpoint::completions);
  ASSERT_TRUE(std::holds_alternative<ApiRequest>(parsed))
      << std::get<ApiError>(parsed).message;
  const auto &request = std::get<ApiRequest>(parsed);
  EXPECT_EQ(request.model, "m");
  ASSERT_EQ(request.prompts.size(), 2u);
  EXPECT_EQ(std::get<std::string>(request.prompts[0]), "a");
  EXPECT_EQ(std::get<std::vector<int32_t>>(request.prompts[1]),
            (std::vector<int32_t>{1, 2}));
  const SamplingOptions &sampling = request.sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.topP, 0.25f);
  EXPECT_EQ(sampling.topK, 3);
  EXPECT_EQ(sampling.minP, 0.125f);
  EXPECT_EQ(sampling.repetitionPenalty, 1.5f);
  EXPECT_EQ(sampling.presencePenalty, -1);
  EXPECT_EQ(sampling.frequencyPenalty, 2);
  EXPECT_EQ(sampling.bias,
            (std::vector<std::pair<int32_t, float>>{{5, -100.0f}}));
  EXPECT_EQ(request.maxTokens, 8);
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.seed, uint64_t(-3));
  EXPECT_EQ(request.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(request.logprobs, 4);
  EXPECT_TRUE(request.stream && request.includeUsage && request.ignoreEnd);
}

TEST(ApiRequest, ReadsMessages) {
  auto parsed = parseApiRequest(
      R"({"model":"m","messages":[{"role":"developer","content":"be kind"},
          {"role":"user","content":[{"type":"text","text":"a"},
                                    {"type":"text","text":"b"}]}],
          "max_completion_tokens":3,"logprobs":true,"top_logprobs":2})",
      Endpoint::chat);
  ASSERT_TRUE(std::holds_alternative<ApiRequest>(parsed))
      << std::get<ApiError>(parsed).message;
  const auto &request = std::get<ApiRequest>(parsed);
  EXPECT_EQ(request.maxTokens, 3);
  EXPECT_EQ(request.logprobs, 2);
  EXPECT_EQ(request.sampling.temperature, 1);
  std::string text;
  auto parts = chatMl().render(request.messages, {}, {});
  ASSERT_TRUE(parts.ok());
  for (const PromptPart &part : *parts)
    text += part.isUsers ? "[" + part.text + "]" : part.text;
  EXPECT_EQ(text, "<|im_start|>system\n[be kind]<|im_end|>\n"
                  "<|im_start|>user\n[ab]<|im_end|>\n"
                  "<|im_start|>assistant\n");
}

TEST(ApiRequest, ReadsAResponsesInput) {
  auto parsed = parseApiRequest(
      R"({"model":"m","instructions":"be kind","max_output_tokens":3,
          "input":[{"role":"user","content":"a"},
            {"type":"message","id":"msg_1","status":"completed",
             "role":"assistant","content":[{"type":"output_text","text":"b",
                                            "annotations":[]}]},
            {"role":"user","content":[{"type":"input_text","text":"c"}]}],
          "store":false,"tools":[],"tool_choice":"auto","text":{},
          "metadata":{"k":"v"}})",
      Endpoint::responses);
  ASSERT_TRUE(std::holds_alternative<ApiRequest>(parsed))
      << std::get<ApiError>(parsed).message;
  const auto &request = std::get<ApiRequest>(parsed);
  std::string text;
  for (const ChatMessage &message : request.messages)
    text += message.role + ":" + message.content + " ";
  EXPECT_EQ(text, "system:be kind user:a assistant:b user:c ");
  EXPECT_EQ(request.maxTokens, 3);
  EXPECT_EQ(request.metadata,
            (std::vector<std::pair<std::string, std::string>>{{"k", "v"}}));
}

std::string chatBody(const std::string &messages) {
  return R"({"model":"m","messages":[)" + messages + "]}";
}

std::string calling(const std::string &name) {
  return R"({"role":"assistant","content":null,"function_call":{"name":")" +
         name + R"(","arguments":"{}"}},)";
}

TEST(ApiRequest, FunctionsAnswerTheirLatestCall) {
  auto told = [](const std::string &name) {
    return R"({"role":"function","name":")" + name + R"(","content":"x"},)";
  };
  auto parsed = parseApiRequest(
      chatBody(calling("f") + told("f") + calling("g") + calling("f") +
               told("g") + told("f") + R"({"role":"user","content":"a"})"),
      Endpoint::chat);
  ASSERT_TRUE(std::holds_alternative<ApiRequest>(parsed))
      << std::get<ApiError>(parsed).message;
  std::vector<std::string> ids;
  for (const ChatMessage &each : std::get<ApiRequest>(parsed).messages)
    if (each.role == "tool")
      ids.push_back(each.callId);
  EXPECT_EQ(ids,
            (std::vector<std::string>{"000000000", "000000002", "000000003"}));
}

TEST(ApiRequest, ToolsAreBounded) {
  auto isRead = [](size_t bytes) {
    return std::holds_alternative<ApiRequest>(parseApiRequest(
        R"({"model":"m","messages":[{"role":"user","content":"a"}],
            "tools":[{"type":"function","function":{"name":"f",
            "description":")" +
            std::string(bytes, 'x') + R"("}}]})",
        Endpoint::chat));
  };
  EXPECT_TRUE(isRead(1'000'000));
  EXPECT_FALSE(isRead(1'100'000));
}

// A message costs the same, however many stand between it and the call.
TEST(ApiRequest, ManyFunctionMessagesAreReadInTime) {
  auto timeOf = [](const std::string &message) {
    std::string messages = calling("f");
    for (int i = 0; i < 30'000; ++i)
      messages += message + ",";
    std::string body = chatBody(messages + message);
    std::clock_t begin = std::clock();
    EXPECT_TRUE(std::holds_alternative<ApiRequest>(
        parseApiRequest(body, Endpoint::chat)));
    return double(std::clock() - begin);
  };
  double plain = timeOf(R"({"role":"user","name":"f","content":"x"})");
  EXPECT_LT(timeOf(R"({"role":"function","name":"f","content":"x"})"),
            8 * plain + CLOCKS_PER_SEC / 10);
}

} // namespace
} // namespace tessera::serve
