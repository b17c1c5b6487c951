#include "runtime/serve/telemetry/TraceExporter.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {

static uint64_t randomBits() {
  static thread_local std::mt19937_64 generator(
      (uint64_t(std::random_device()()) << 32) ^ std::random_device()());
  return generator();
}

StatusOr<client::ServerAddress> parseCollectorUrl(std::string_view url) {
  constexpr std::string_view scheme = "http://";
  const std::size_t slash = std::min(url.find('/', scheme.size()), url.size());
  std::string server(url.substr(0, slash));
  // The port of OTLP over HTTP. An IPv6 address has colons, in brackets.
  if (const auto colon = server.rfind(':');
      colon < scheme.size() || server.ends_with(']'))
    server += ":4318";
  StatusOr<client::ServerAddress> parsed = client::parseServerUrl(server);
  if (!parsed.ok())
    return Status::error("traces are sent over HTTP, to "
                         "http://HOST:PORT/v1/traces, got: '{}'",
                         url);
  client::ServerAddress address = parsed.take();
  const std::string_view path = url.substr(slash);
  address.path = path.empty() || path == "/" ? "/v1/traces" : path;
  return address;
}

TraceExporter::TraceExporter(client::ServerAddress collector,
                             std::string service, std::string version)
    : collector(std::move(collector)), service(std::move(service)),
      version(std::move(version)),
      thread([this](const std::stop_token &stop) { run(stop); }) {}

TraceExporter::~TraceExporter() {
  thread.request_stop();
  thread.join();
}

void TraceExporter::add(RequestTrace request) {
  if (request.context && !request.context->isSampled)
    return;
  std::lock_guard lock(mutex);
  if (waiting.size() == kMostWaiting) {
    ++dropped;
    return;
  }
  waiting.push_back(std::move(request));
  if (waiting.size() >= kMostOfBatch)
    wake.notify_all();
}

std::string TraceExporter::metrics() const {
  std::lock_guard lock(mutex);
  return fmt::format(
      "# HELP tessera:traces_exported_total Requests whose trace was sent.\n"
      "# TYPE tessera:traces_exported_total counter\n"
      "tessera:traces_exported_total {}\n"
      "# HELP tessera:traces_dropped_total Requests whose trace was dropped.\n"
      "# TYPE tessera:traces_dropped_total counter\n"
      "tessera:traces_dropped_total {}\n",
      exported, dropped);
}

std::vector<RequestTrace> TraceExporter::take(const std::stop_token &stop) {
  std::unique_lock lock(mutex);
  wake.wait_for(lock, stop, kInterval,
                [&] { return waiting.size() >= kMostOfBatch; });
  const auto count = std::ptrdiff_t(std::min(waiting.size(), kMostOfBatch));
  const auto end = waiting.begin() + count;
  std::vector<RequestTrace> batch(std::make_move_iterator(waiting.begin()),
                                  std::make_move_iterator(end));
  waiting.erase(waiting.begin(), end);
  return batch;
}

void TraceExporter::run(const std::stop_token &stop) {
  std::optional<std::chrono::steady_clock::time_point> last;
  auto isOver = [&] {
    const auto now = std::chrono::steady_clock::now();
    if (stop.stop_requested() && !last)
      last = now + kLastTime;
    return last && now >= *last;
  };
  while (true) {
    const std::vector<RequestTrace> batch = take(stop);
    if (batch.empty() && stop.stop_requested())
      return;
    if (!batch.empty())
      send(batch, isOver);
  }
}

std::string TraceExporter::body(const std::vector<RequestTrace> &batch) const {
  using nlohmann::json;
  json spans = json::array();
  for (const RequestTrace &request : batch)
    addSpans(request, randomBits, spans);
  auto attribute = [](std::string_view key, const std::string &value) {
    return json{{"key", key}, {"value", {{"stringValue", value}}}};
  };
  const json scope = {{"scope", {{"name", "tessera"}, {"version", version}}},
                      {"spans", std::move(spans)}};
  const json attributes = json::array({attribute("service.name", service),
                                       attribute("service.version", version)});
  const json resource = {{"resource", {{"attributes", attributes}}},
                         {"scopeSpans", json::array({scope})}};
  const json all = {{"resourceSpans", json::array({resource})}};
  // Names of models may be any bytes.
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

// An error is said once, until the collector answers again.
void TraceExporter::send(const std::vector<RequestTrace> &batch,
                         const std::function<bool()> &isOver) {
  StatusOr<client::ServerAnswer> answer =
      Status::error("the server has ended before they were sent");
  if (!isOver())
    answer = client::askServer(
        collector, "POST", "", body(batch), kTimeout, [](std::string_view) {},
        isOver);
  std::string problem;
  if (!answer.ok())
    problem = answer.message();
  else if (answer->status / 100 != 2)
    problem =
        fmt::format("{}:{}{} answers {}: {}", collector.host, collector.port,
                    collector.path, answer->status, oneLine(answer->body));
  {
    std::lock_guard lock(mutex);
    (problem.empty() ? exported : dropped) += batch.size();
  }
  if (!problem.empty() && !hasFailed)
    std::fprintf(stderr, "tessera: traces are dropped: %s\n", problem.c_str());
  hasFailed = !problem.empty();
}

} // namespace tessera::serve
