// The routes: what is asked over HTTP becomes requests of the engine, and
// their tokens answers.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/infer/engine/Engine.h"
#include "runtime/serve/Api.h"
#include "runtime/serve/Chat.h"
#include "runtime/serve/Health.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/serve/Routes.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::serve {

struct ServiceOptions {
  std::string model;                ///< the name that clients give
  std::string version;              ///< of the program
  std::vector<std::string> apiKeys; ///< none: whoever can connect is served
  std::chrono::seconds requestTime{600}; ///< until a request is given up
  /// What ends a text; none: the tokenizer's end-of-text token.
  std::vector<int32_t> endTokens;
  SamplingOptions sampling = usualSampling(); ///< where a request says nothing
  HealthTimes health;
};

class Service final : public HttpHandler {
public:
  /// All of them must outlive the service.
  Service(Engine &engine, const tokenizer::Tokenizer &tokenizer,
          const ChatRenderer &chat, ServiceOptions options);
  /// Before the server runs; the server must outlive the last request.
  void attach(HttpServer &to) { server = &to; }
  /// From here on nothing should be compiled; /metrics says so.
  void markReady();

  std::string refuse(const HttpRequest &head) override;
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  std::string describe(int status, std::string_view message) override;

private:
  class Generation;
  void generate(const HttpRequest &request, Endpoint endpoint,
                const std::shared_ptr<HttpReply> &reply);
  void get(RouteId route, std::string_view rest,
           const std::shared_ptr<HttpReply> &reply);
  void checkHealth(const std::shared_ptr<HttpReply> &reply);
  void sendText(const std::shared_ptr<HttpReply> &reply, std::string_view type,
                std::string body);
  void sendError(const std::shared_ptr<HttpReply> &reply, const ApiError &error,
                 std::string headers = {});
  std::string modelJson() const;
  std::optional<ApiError> makePrompts(const ApiRequest &request,
                                      std::vector<std::vector<int32_t>> &to);
  std::optional<ApiError> makeTokens(const PromptInput &prompt,
                                     std::vector<int32_t> &to);
  std::optional<ApiError> makeRequests(const ApiRequest &request,
                                       std::vector<EngineRequest> &to);
  /// Stops of the chat's template and of the client, and tokens that end.
  std::vector<std::string> stopsOf(const ApiRequest &request,
                                   std::vector<int32_t> &tokens) const;
  std::string metrics() const;

  Engine &engine;
  const tokenizer::Tokenizer &tokenizer;
  const ChatRenderer &chat;
  const ServiceOptions options;
  tokenizer::Encoder encoder;
  HttpServer *server = nullptr;
  int64_t started; ///< seconds since 1970
  uint64_t lastId = 0, compiledBefore = 0;
  Health health;
  std::map<int, uint64_t> answers; ///< by status
};

/// Whether the request gives one of the keys, or none is needed.
bool hasKey(const HttpRequest &head, const std::vector<std::string> &keys);
/// Its answer where it does not.
ApiError keyMissing();

/// Compares in a time that depends on the lengths alone.
bool equalSecrets(std::string_view given, std::string_view secret);

} // namespace tessera::serve
