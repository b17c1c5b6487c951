#include "runtime/eval/ChatServer.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

namespace tessera::eval {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kTogether = 8;
constexpr std::chrono::minutes kTimeout{30};
constexpr int kTries = 9; ///< two minutes: limits are often of a minute
constexpr std::chrono::milliseconds kFirstPause{500}; ///< doubled each time

bool isBusy(const client::ServerAnswer &answer) {
  return answer.status == 429 || (answer.status >= 502 && answer.status <= 504);
}

StatusOr<client::ServerAnswer> askPatiently(const client::ServerAddress &server,
                                            const std::string &body) {
  auto pause = kFirstPause;
  for (int tries = 1;; ++tries, pause *= 2) {
    auto answer = client::askServer(server, "POST", "/v1/chat/completions",
                                    body, kTimeout, [](std::string_view) {});
    if (!answer.ok() || !isBusy(*answer) || tries == kTries)
      return answer;
    std::this_thread::sleep_for(pause);
  }
}

/// The text of the message; empty if it has none, such as a refusal.
std::optional<std::string> contentOf(const std::string &body) {
  const Json json = Json::parse(body, nullptr, false);
  const auto at = Json::json_pointer("/choices/0/message/content");
  if (!json.is_object() || !json.contains(at))
    return std::nullopt;
  const Json &content = json[at];
  if (content.is_null())
    return "";
  return content.is_string() ? std::optional(content.get<std::string>())
                             : std::nullopt;
}

StatusOr<std::string> askOne(const ChatServer &server, const Prompt &prompt,
                             const GenerationLimits &limits) {
  Json fields = {{"model", server.model},
                 {"max_tokens", limits.maxTokens},
                 {"temperature", 0}};
  if (!limits.stop.empty())
    fields["stop"] = limits.stop;
  for (const Message &message : prompt.chat)
    fields["messages"].push_back(
        {{"role", message.role}, {"content", message.content}});
  auto answer =
      askPatiently(server.address,
                   fields.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!answer.ok())
    return Status::error("{}: {}: {}", prompt.where, server.title,
                         answer.message());
  if (answer->status != 200)
    return Status::error("{}: {} answers {}: {}", prompt.where, server.title,
                         answer->status, errorOf(*answer));
  auto text = contentOf(answer->body);
  if (!text)
    return Status::error("{}: the answer of {} has no message with content",
                         prompt.where, server.title);
  return std::move(*text);
}

} // namespace

std::string errorOf(const client::ServerAnswer &answer) {
  constexpr std::size_t kMostBytes = 400;
  const Json json = Json::parse(answer.body, nullptr, false);
  const auto message = Json::json_pointer("/error/message");
  if (json.is_object() && json.contains(message) && json[message].is_string())
    return oneLine(json[message].get<std::string>(), kMostBytes);
  return oneLine(answer.body);
}

StatusOr<std::vector<std::string>> askChats(const ChatServer &server,
                                            std::span<const Prompt> prompts,
                                            const GenerationLimits &limits) {
  std::vector<std::string> answers(prompts.size());
  std::vector<Status> errors(prompts.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  auto work = [&] {
    for (std::size_t i; !failed && (i = next++) < prompts.size();) {
      auto answer = askOne(server, prompts[i], limits);
      if (answer.ok())
        answers[i] = answer.take();
      else
        errors[i] = answer.status();
      failed = failed || !errors[i].ok();
    }
  };
  {
    std::vector<std::jthread> threads;
    while (threads.size() < std::min(kTogether, prompts.size()))
      threads.emplace_back(work);
  }
  auto first = std::ranges::find_if(
      errors, [](const Status &status) { return !status.ok(); });
  if (first != errors.end())
    return *first;
  return answers;
}

} // namespace tessera::eval
