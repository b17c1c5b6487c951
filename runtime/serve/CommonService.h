// What every model's server does, whatever the model does with texts: keys,
// paths, the routes that tell about the server, errors.
#pragma once
#include "runtime/serve/AnswerStore.h"
#include "runtime/serve/Api.h"
#include "runtime/serve/Health.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/serve/Routes.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::serve {

struct ServiceOptions {
  /// The names that clients may give, at least one; answers have the first.
  std::vector<std::string> models;
  std::string version;              ///< of the program
  std::vector<std::string> apiKeys; ///< none: whoever can connect is served
  std::chrono::seconds requestTime{600}; ///< until a request is given up
  /// What ends a text; none: the tokenizer's end-of-text token.
  std::vector<int32_t> endTokens;
  /// What an empty prompt begins with where the tokenizer has no token for it.
  std::optional<int32_t> startToken;
  SamplingOptions sampling = usualSampling(); ///< where a request says nothing
  HealthTimes health;
  StoreLimits store; ///< of answers, of all keys together
};

class CommonService : public HttpHandler {
public:
  /// Whether it is healthy, `engine` and what `probe` sends it say.
  CommonService(ModelKind kind, const EngineThread &engine, HealthProbe probe,
                ServiceOptions options);
  /// Before the server runs; the server must outlive the last request.
  void attach(HttpServer &to) { server = &to; }
  /// From here on nothing should be compiled; /metrics says so.
  void markReady();
  /// In the server's thread: /health says from here on that the server ends,
  /// to those who wait for it, too.
  void markEnding();

  std::string refuse(const HttpRequest &head) override;
  std::size_t groupOf(const HttpRequest &head) const override {
    return keyOf(head);
  }
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  std::string describe(int status, std::string_view message) override;

protected:
  using Reply = std::shared_ptr<HttpReply>;
  /// A body for an endpoint that models of this kind have.
  virtual void post(const HttpRequest &request, Endpoint endpoint,
                    const Reply &reply) = 0;
  /// About an answer that may be stored.
  virtual void askStored(const RouteMatch &match, const HttpRequest &request,
                         const Reply &reply);
  virtual std::string engineMetrics() const = 0;
  virtual int64_t context() const = 0; ///< tokens

  void sendText(const Reply &reply, std::string_view type, std::string body);
  void sendJson(const Reply &reply, std::string body);
  void sendError(const Reply &reply, const ApiError &error,
                 std::string headers = {});
  bool isServed(std::string_view model) const;
  ApiError otherModel() const; ///< where it is not
  static ApiError shuttingDown();
  const std::string &name() const { return options.models.front(); }
  /// The number of the key that a request gives; 0 if none is needed.
  std::size_t keyOf(const HttpRequest &request) const;

  const ModelKind kind;
  const ServiceOptions options;
  HttpServer *server = nullptr;
  const int64_t started;           ///< seconds since 1970
  std::map<int, uint64_t> answers; ///< by status

private:
  void get(const RouteMatch &match, const Reply &reply);
  void listModels(const Reply &reply);
  void checkHealth(const Reply &reply);
  std::string modelJson(const std::string &name) const;

  uint64_t compiledBefore = 0;
  bool isEnding = false;
  Health health;
};

/// Compares in a time that depends on the lengths alone.
bool equalSecrets(std::string_view given, std::string_view secret);

} // namespace tessera::serve
