#include "bench/serve/ServeBench.h"
#include "runtime/client/HttpClient.h"
#include "runtime/support/SplitMix64.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include <nlohmann/json.hpp>

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using client::askServer, client::firstModel, client::parseServerUrl,
    client::ServerAddress;

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

/// Common words in another order for each request, so that no prompt is in the
/// prefix cache.
std::string promptOf(const BenchServeOptions &options, int64_t request) {
  static constexpr std::string_view words[] = {
      "the",  "command", "file",  "of", "a",    "option", "prints", "to",
      "each", "when",    "reads", "in", "name", "value",  "if",     "set"};
  SplitMix64 random(mix64(options.seed) + uint64_t(request));
  std::string prompt;
  for (int64_t i = 0; i < options.words; ++i)
    prompt += fmt::format("{}{}", i ? " " : "", words[random() % 16]);
  return prompt;
}

/// Arrival times of a Poisson process.
std::vector<Clock::duration> arrivals(const BenchServeOptions &options) {
  std::vector<Clock::duration> times;
  SplitMix64 random(options.seed);
  double at = 0;
  for (int64_t i = 0; i < options.requests; ++i) {
    times.push_back(std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(at)));
    double chance = double(random() >> 11) * 0x1p-53;
    at += options.rate > 0 ? -std::log1p(-chance) / options.rate : 0;
  }
  return times;
}

std::string bodyOf(const BenchServeOptions &options, const std::string &model,
                   int64_t request) {
  Json body = {
      {"model", model},     {"max_tokens", options.maxTokens},
      {"ignore_eos", true}, {"seed", options.seed + uint64_t(request)},
      {"stream", true},     {"stream_options", {{"include_usage", true}}}};
  std::string prompt = promptOf(options, request);
  if (options.chat)
    body["messages"] = {{{"role", "user"}, {"content", prompt}}};
  else
    body["prompt"] = prompt;
  return body.dump();
}

/// Members of a response, which may be missing or of another type.
std::string textOf(const Json &object, const char *name) {
  if (!object.is_object() || !object.contains(name) ||
      !object[name].is_string())
    return {};
  return object[name].get<std::string>();
}
int64_t numberOf(const Json &object, const char *name) {
  return object.contains(name) && object[name].is_number_integer()
             ? object[name].get<int64_t>()
             : 0;
}

/// The message of an error response, in one line; empty: it has none.
std::string messageOf(const Json &answer) {
  constexpr std::size_t kMost = 300; // bytes of a line
  if (!answer.is_object() || !answer.contains("error"))
    return {};
  return oneLine(textOf(answer["error"], "message"), kMost);
}

/// Times one request by its events.
class Watch {
public:
  explicit Watch(RequestTimes &times) : times(times) {}
  void event(std::string_view data) {
    if (data == "[DONE]") {
      done = true;
      return;
    }
    Json json = Json::parse(data, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object())
      return fail("an event is not valid JSON: " + quote(data));
    if (json.contains("error"))
      return fail("an error in the stream: " + messageOf(json));
    if (json.contains("usage") && json["usage"].is_object()) {
      times.promptTokens = numberOf(json["usage"], "prompt_tokens");
      times.generatedTokens = numberOf(json["usage"], "completion_tokens");
    }
    if (hasText(json))
      piece();
  }
  /// After the last event.
  void end() {
    times.total = milliseconds(Clock::now() - begin);
    if (!done)
      fail("the stream ended without [DONE]");
    else if (!last)
      fail("the stream has no output");
  }
  void fail(std::string message) {
    if (times.error.empty())
      times.error = std::move(message);
  }

private:
  /// The first event of a chat has only a role.
  static bool hasText(const Json &json) {
    if (!json.contains("choices") || !json["choices"].is_array())
      return false;
    for (const Json &choice : json["choices"])
      if (choice.is_object() && (!textOf(choice, "text").empty() ||
                                 (choice.contains("delta") &&
                                  !textOf(choice["delta"], "content").empty())))
        return true;
    return false;
  }
  void piece() {
    auto now = Clock::now();
    if (last)
      times.between.push_back(milliseconds(now - *last));
    else
      times.first = milliseconds(now - begin);
    last = now;
  }

  RequestTimes &times;
  Clock::time_point begin = Clock::now();
  std::optional<Clock::time_point> last;
  bool done = false;
};

void runOne(const BenchServeOptions &options, const ServerAddress &server,
            const std::string &model, int64_t request, RequestTimes &times) {
  std::string body = bodyOf(options, model, request);
  Watch watch(times);
  auto answer = askServer(
      server, "POST", options.chat ? "/v1/chat/completions" : "/v1/completions",
      body, std::chrono::seconds(options.timeoutSeconds),
      [&](std::string_view data) { watch.event(data); });
  if (!answer.ok())
    watch.fail(answer.message());
  else if (answer->status == 200)
    watch.end();
  else {
    std::string message = messageOf(
        Json::parse(answer->body, nullptr, /*allow_exceptions=*/false));
    watch.fail(fmt::format("{}: {}", answer->status,
                           message.empty() ? oneLine(answer->body) : message));
  }
}

} // namespace

StatusOr<LoadResult> runLoad(const BenchServeOptions &options) {
  auto server = parseServerUrl(options.url);
  if (!server.ok())
    return server.status();
  if (!options.key.empty())
    server->authorization = "Bearer " + options.key;
  LoadResult result;
  std::vector<std::string> models = options.models;
  if (models.empty()) {
    auto model = firstModel(*server);
    if (!model.ok())
      return model.status();
    models.push_back(*model);
  }
  result.model = fmt::format("{}", fmt::join(models, ","));
  result.requests.resize(std::size_t(options.requests));
  std::vector<Clock::duration> times = arrivals(options);
  std::atomic<int64_t> next = 0;
  auto begin = Clock::now();
  auto work = [&] {
    for (int64_t i; (i = next++) < options.requests;) {
      std::this_thread::sleep_until(begin + times[std::size_t(i)]);
      runOne(options, *server, models[std::size_t(i) % models.size()], i,
             result.requests[std::size_t(i)]);
    }
  };
  std::vector<std::thread> workers;
  for (int64_t i = 0; i < std::min(options.concurrency, options.requests); ++i)
    workers.emplace_back(work);
  for (std::thread &worker : workers)
    worker.join();
  result.seconds = milliseconds(Clock::now() - begin) / 1000;
  return result;
}

} // namespace tessera::bench
