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
  StatusOr<client::ServerAddress> parsed = client::parseServerUrl(url);
  if (!parsed.ok())
    return Status::error("traces are sent over HTTP, to "
                         "http://HOST:PORT/v1/traces, got: '{}'",
                         url);
  client::ServerAddress address = parsed.take();
  if (address.path.empty())
    address.path = "/v1/traces";
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

void TraceExporter::run(const std::stop_token &stop) {
  std::chrono::steady_clock::time_point last{};
  while (true) {
    std::vector<RequestTrace> batch;
    {
      std::unique_lock lock(mutex);
      wake.wait_for(lock, stop, kInterval,
                    [&] { return waiting.size() >= kMostOfBatch; });
      const auto count = std::min(waiting.size(), kMostOfBatch);
      const auto end = waiting.begin() + std::ptrdiff_t(count);
      batch.assign(std::make_move_iterator(waiting.begin()),
                   std::make_move_iterator(end));
      waiting.erase(waiting.begin(), end);
    }
    const auto now = std::chrono::steady_clock::now();
    std::chrono::milliseconds timeout = kTimeout;
    if (stop.stop_requested()) {
      if (last == std::chrono::steady_clock::time_point{})
        last = now + kLastTime;
      timeout =
          std::chrono::duration_cast<std::chrono::milliseconds>(last - now);
      if (batch.empty() || timeout.count() <= 0)
        return;
    }
    if (!batch.empty())
      send(batch, timeout);
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
                         std::chrono::milliseconds timeout) {
  auto answer = client::askServer(collector, "POST", "", body(batch), timeout,
                                  [](std::string_view) {});
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
