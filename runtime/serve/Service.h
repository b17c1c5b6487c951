// The routes: what is asked over HTTP becomes requests of the engine, and
// their tokens answers.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/infer/engine/Engine.h"
#include "runtime/serve/Api.h"
#include "runtime/serve/Chat.h"
#include "runtime/serve/HttpServer.h"

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
};

class Service final : public HttpHandler {
public:
  /// All of them must outlive the service.
  Service(Engine &engine, const tokenizer::Tokenizer &tokenizer,
          const ChatTemplate &chat, ServiceOptions options);
  /// Before the server runs; the server must outlive the last request.
  void attach(HttpServer &to) { server = &to; }

  std::string refuse(const HttpRequest &head) override;
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  std::string describe(int status, std::string_view message) override;

  /// The request of one token that shows whether the engine works.
  EngineRequest probe(std::shared_ptr<RequestSink> sink) const;

private:
  class Generation;
  void generate(const HttpRequest &request, Endpoint endpoint,
                const std::shared_ptr<HttpReply> &reply);
  void health(const std::shared_ptr<HttpReply> &reply);
  void models(const HttpRequest &request,
              const std::shared_ptr<HttpReply> &reply);
  void sendError(const std::shared_ptr<HttpReply> &reply,
                 const ApiError &error);
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
  const ChatTemplate &chat;
  const ServiceOptions options;
  tokenizer::Encoder encoder;
  HttpServer *server = nullptr;
  int64_t started; ///< seconds since 1970
  uint64_t lastId = 0;
  EngineClock::time_point lastToken; ///< when one went round
  std::map<int, uint64_t> answers;   ///< by status
};

/// Whether the request gives one of the keys, or none is needed.
bool hasKey(const HttpRequest &head, const std::vector<std::string> &keys);
/// Its answer where it does not.
ApiError keyMissing();

/// Compares in a time that depends on the lengths alone.
bool equalSecrets(std::string_view given, std::string_view secret);

} // namespace tessera::serve
