#include "runtime/eval/ServerModel.h"
#include "runtime/eval/ChatServer.h"
#include "runtime/serve/Choice.h"
#include "runtime/support/Text.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tessera::eval {
namespace {

using Json = nlohmann::json;

/// Prompts of one request, which the server computes together.
constexpr std::size_t kTogether = 8;
constexpr std::chrono::minutes kTimeout{30};

/// The sum over tokens that begin at characters [begin, end) of the echoed
/// prompt, which is followed by one generated token.
StatusOr<Likelihood> likelihoodOf(const Json &choice, int64_t begin,
                                  int64_t end) {
  const Json logprobs = choice.value("logprobs", Json());
  if (!logprobs.is_object() || !logprobs.contains("token_logprobs") ||
      !logprobs.contains("text_offset"))
    return Status::error("the server gives no logprobs of prompts (echo with "
                         "logprobs)");
  const Json &values = logprobs["token_logprobs"],
             &offsets = logprobs["text_offset"];
  if (!values.is_array() || !offsets.is_array() ||
      values.size() != offsets.size())
    return Status::error("token_logprobs and text_offset differ in length");
  Likelihood sum;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!offsets[i].is_number_integer())
      return Status::error("text_offset has an element that is not an integer");
    const auto at = offsets[i].get<int64_t>();
    if (at < begin || at >= end)
      continue;
    if (i == 0 && values[i].is_null())
      continue; // nothing precedes the first token
    if (!values[i].is_number())
      return Status::error("token_logprobs has no number at {}", i);
    sum.logprob += values[i].get<double>();
    ++sum.tokens;
  }
  if (sum.tokens == 0)
    return Status::error("the server scores no token of the text");
  return sum;
}

/// choices[i].index == i; an error if one is missing.
StatusOr<Json> inOrder(const Json &answer, std::size_t count) {
  Json ordered = Json::array();
  const Json choices =
      answer.is_object() ? answer.value("choices", Json()) : Json();
  for (std::size_t i = 0; i < count && choices.is_array(); ++i)
    for (const Json &choice : choices)
      if (choice.is_object() && choice.value("index", Json()) == Json(i) &&
          ordered.size() == i)
        ordered.push_back(choice);
  if (ordered.size() != count)
    return Status::error("the server's answer lacks choices of {} prompts",
                         count);
  return ordered;
}

} // namespace

StatusOr<Json> ServerModel::complete(std::span<const std::string> prompts,
                                     Json fields,
                                     const std::string &where) const {
  fields["model"] = name;
  fields["prompt"] = prompts;
  fields["temperature"] = 0;
  auto answer = client::askServer(
      server, "POST", "/v1/completions",
      fields.dump(-1, ' ', false, Json::error_handler_t::replace), kTimeout,
      [](std::string_view) {});
  if (!answer.ok())
    return answer.status();
  if (answer->status != 200)
    return Status::error("{}: the server answers {}: {}", where, answer->status,
                         errorOf(*answer));
  auto choices =
      inOrder(Json::parse(answer->body, nullptr, false), prompts.size());
  if (!choices.ok())
    return Status::error("{}: {}", where, choices.message());
  return choices;
}

StatusOr<std::vector<Likelihood>>
ServerModel::score(std::span<const Continuation> inputs) const {
  std::vector<Likelihood> scores;
  for (std::size_t at = 0; at < inputs.size(); at += kTogether) {
    auto some = inputs.subspan(at, std::min(kTogether, inputs.size() - at));
    std::vector<std::string> prompts;
    for (const Continuation &input : some)
      prompts.push_back(input.context + input.text);
    // Many servers generate at least one token.
    auto choices =
        complete(prompts, {{"echo", true}, {"logprobs", 1}, {"max_tokens", 1}},
                 some.front().where);
    if (!choices.ok())
      return choices.status();
    for (std::size_t i = 0; i < some.size(); ++i) {
      const std::size_t kept =
          some[i].context.find_last_not_of(" \t\n\v\f\r") + 1;
      auto score =
          likelihoodOf((*choices)[i],
                       serve::charactersOf(
                           std::string_view(some[i].context).substr(0, kept)),
                       serve::charactersOf(prompts[i]));
      if (!score.ok())
        return Status::error("{}: {}", some[i].where, score.message());
      scores.push_back(*score);
    }
  }
  return scores;
}

StatusOr<std::vector<Likelihood>>
ServerModel::scoreContinuations(std::span<const Continuation> inputs) {
  for (const Continuation &input : inputs)
    if (!input.chat.empty())
      return Status::error("{}: chat: a server gives no log-likelihoods of "
                           "chats; leave it out, or give the model itself",
                           input.where);
  return score(inputs);
}

StatusOr<std::vector<Likelihood>>
ServerModel::scoreDocuments(std::span<const Document> inputs, int64_t window) {
  if (window != 0)
    return Status::error("window: a server reads documents whole; leave it "
                         "out, or give the model itself");
  std::vector<Continuation> whole;
  for (const Document &input : inputs)
    whole.push_back({input.where, "", input.text});
  return score(whole);
}

StatusOr<std::vector<std::string>>
ServerModel::generate(std::span<const Prompt> prompts,
                      const GenerationLimits &limits) {
  if (!prompts.empty() && !prompts.front().chat.empty()) // then all are chats
    return askChats({server, name, "the server"}, prompts, limits);
  std::vector<std::string> outputs;
  Json fields = {{"max_tokens", limits.maxTokens}};
  if (!limits.stop.empty())
    fields["stop"] = limits.stop;
  for (std::size_t at = 0; at < prompts.size(); at += kTogether) {
    auto some = prompts.subspan(at, std::min(kTogether, prompts.size() - at));
    std::vector<std::string> strings;
    for (const Prompt &prompt : some)
      strings.push_back(prompt.text);
    auto choices = complete(strings, fields, some.front().where);
    if (!choices.ok())
      return choices.status();
    for (const Json &choice : *choices) {
      if (!choice.value("text", Json()).is_string())
        return Status::error("{}: the server's answer has no text",
                             some.front().where);
      outputs.push_back(choice["text"].get<std::string>());
    }
  }
  return outputs;
}

} // namespace tessera::eval
