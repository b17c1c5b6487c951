// Sends traces of requests to an OpenTelemetry collector: OTLP over HTTP, in
// JSON, from a thread of its own.
#pragma once
#include "runtime/client/HttpClient.h"
#include "runtime/serve/telemetry/RequestTrace.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tessera::serve {

/// Thread-safe. Requests never wait for it: what the collector does not take in
/// time is dropped and counted.
class TraceExporter {
public:
  /// `service`: the name and the version in the traces.
  TraceExporter(client::ServerAddress collector, std::string service,
                std::string version);
  /// Sends what is left, for at most kLastTime.
  ~TraceExporter();

  /// Nothing if the client says that it does not record the request's trace.
  void add(RequestTrace request);
  std::string metrics() const; ///< in Prometheus' text format

private:
  static constexpr std::size_t kMostWaiting = 2048, kMostOfBatch = 256;
  static constexpr std::chrono::seconds kInterval{2}, kTimeout{10},
      kLastTime{3};

  void run(const std::stop_token &stop);
  /// A batch, when it is full or after the interval.
  std::vector<RequestTrace> take(const std::stop_token &stop);
  /// Drops the batch if it `isOver` before it is sent.
  void send(const std::vector<RequestTrace> &batch,
            const std::function<bool()> &isOver);
  std::string body(const std::vector<RequestTrace> &batch) const;

  const client::ServerAddress collector;
  const std::string service, version;
  mutable std::mutex mutex;
  std::condition_variable_any wake;
  std::vector<RequestTrace> waiting;
  uint64_t exported = 0, dropped = 0; ///< requests
  bool hasFailed = false; ///< the last call; used by the thread alone
  std::jthread thread;
};

/// Where traces are sent, of "http://HOST[:PORT][/PATH]". Without a path it is
/// OTLP's, /v1/traces.
StatusOr<client::ServerAddress> parseCollectorUrl(std::string_view url);

} // namespace tessera::serve
