// The part that servers of all models share: keys, paths, routes about the
// server, errors.
#pragma once
#include "runtime/serve/Adapters.h"
#include "runtime/serve/AnswerStore.h"
#include "runtime/serve/Api.h"
#include "runtime/serve/Health.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/serve/Routes.h"
#include "runtime/serve/Training.h"
#include "runtime/serve/telemetry/TraceExporter.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::serve {

struct ServiceOptions {
  /// The names that clients may use, at least one; responses have the first.
  std::vector<std::string> models;
  /// Names of adapters, which clients may use as well.
  std::shared_ptr<Adapters> adapters = std::make_shared<Adapters>();
  bool changesAdapters = false; ///< by requests, while serving
  /// Trains adapters; null: the server only serves.
  std::shared_ptr<TrainingHandler> training = {};
  std::string version;                   ///< of the program
  std::vector<std::string> apiKeys;      ///< empty: no key is required
  bool priorities = false;               ///< requests may set `priority`
  std::chrono::seconds requestTime{600}; ///< after which a request is cancelled
  /// Tokens that end the output; empty: the tokenizer's end-of-text token.
  std::vector<int32_t> endTokens;
  /// First token of an empty prompt if the tokenizer has none.
  std::optional<int32_t> startToken;
  SamplingOptions sampling = usualSampling(); ///< defaults of requests
  HealthTimes health;
  StoreLimits store; ///< of stored answers, for all keys together
  std::shared_ptr<TraceExporter> traces = {}; ///< null: none
};

class CommonService : public HttpHandler {
public:
  /// `engine` and the result of `probe` decide whether it is healthy.
  CommonService(ModelKind kind, const EngineThread &engine, HealthProbe probe,
                ServiceOptions options);
  /// Call before the server runs; the server must outlive the last request.
  void attach(HttpServer &to) { server = &to; }
  /// Marks the end of start-up; /metrics counts kernels compiled later.
  void markReady();
  /// In the server's thread: from here on /health reports the shutdown, also to
  /// waiting clients.
  void markEnding();

  /// When the last requests of the engine have ended, on a thread of its own:
  /// the server still runs, and ends after this.
  virtual void beforeEnd() {}

  std::string refuse(const HttpRequest &head) override;
  std::size_t groupOf(const HttpRequest &head) const override {
    return keyOf(head);
  }
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  std::string describe(int status, std::string_view message,
                       std::string_view path) override;

protected:
  using Reply = std::shared_ptr<HttpReply>;
  /// Handles a body for an endpoint of this kind of model.
  virtual void post(const HttpRequest &request, Endpoint endpoint,
                    const Reply &reply) = 0;
  /// Handles a route about stored answers.
  virtual void askStored(const RouteMatch &match, const HttpRequest &request,
                         const Reply &reply);
  /// Handles a route about adapters.
  virtual void changeAdapters(const RouteMatch &match,
                              const HttpRequest &request, const Reply &reply);
  /// Handles a route about training adapters.
  virtual void train(const RouteMatch &match, const HttpRequest &request,
                     const Reply &reply);
  virtual std::string engineMetrics() const = 0;
  virtual int64_t context() const = 0; ///< tokens
  std::string traceMetrics() const {
    return options.traces ? options.traces->metrics() : "";
  }

  void sendText(const Reply &reply, std::string_view type, std::string body);
  void sendJson(const Reply &reply, std::string body);
  void sendError(const Reply &reply, const ApiError &error,
                 ErrorForm form = ErrorForm::openAi, std::string headers = {});
  bool isServed(std::string_view model) const;
  /// Of the model, then of its adapters.
  std::vector<std::string> names() const;
  ApiError otherModel() const; ///< the error for another name
  static ApiError shuttingDown();
  const std::string &name() const { return options.models.front(); }
  /// The index of a request's API key; 0 if none is required.
  std::size_t keyOf(const HttpRequest &request) const;

  const ModelKind kind;
  const ServiceOptions options;
  HttpServer *server = nullptr;
  const int64_t started;           ///< seconds since 1970
  std::map<int, uint64_t> answers; ///< number by status

private:
  void get(const RouteMatch &match, const HttpRequest &request,
           const Reply &reply);
  void sendPage(std::string_view name, const HttpRequest &request,
                const Reply &reply);
  void listModels(const Reply &reply);
  void checkHealth(const Reply &reply);
  std::string modelJson(const std::string &name) const;

  uint64_t compiledBefore = 0;
  bool isEnding = false;
  Health health;
};

/// Compares in a time that depends only on the lengths.
bool equalSecrets(std::string_view given, std::string_view secret);

} // namespace tessera::serve
