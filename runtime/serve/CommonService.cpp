#include "runtime/serve/CommonService.h"
#include "runtime/serve/OpenApi.h"
#include "runtime/serve/Page.h"
#include "runtime/serve/ProcessMetrics.h"
#include "runtime/support/CompilationCount.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {

//===--- keys -------------------------------------------------------------===//

bool equalSecrets(std::string_view given, std::string_view secret) {
  // Constant time: the whole given key is compared.
  auto apart = unsigned(given.size() != secret.size());
  for (std::size_t i = 0; i < given.size(); ++i)
    apart |= unsigned(static_cast<unsigned char>(
        given[i] ^ (secret.empty() ? 0 : secret[i % secret.size()])));
  return apart == 0;
}

/// The credentials of "Bearer", or the password of "Basic", for which browsers
/// ask their user.
static std::string secretOf(std::string_view authorization) {
  constexpr std::string_view bearer = "Bearer ", basic = "Basic ";
  if (authorization.starts_with(bearer))
    return std::string(authorization.substr(bearer.size()));
  if (!authorization.starts_with(basic))
    return {};
  std::string pair = base64Decoded(authorization.substr(basic.size()));
  std::size_t colon = pair.find(':');
  return colon == std::string::npos ? std::string() : pair.substr(colon + 1);
}

/// The index of the given key; the number of keys if it is none of them.
static std::size_t findKey(const HttpRequest &head,
                           const std::vector<std::string> &keys) {
  std::string given =
      head.authorization.empty() ? head.apiKey : secretOf(head.authorization);
  std::size_t known = keys.size();
  for (std::size_t i = 0; i < keys.size(); ++i) // always all of them
    if (equalSecrets(given, keys[i]))
      known = i;
  return known;
}

std::size_t CommonService::keyOf(const HttpRequest &request) const {
  return findKey(request, options.apiKeys);
}

std::string CommonService::refuse(const HttpRequest &head) {
  if (options.apiKeys.empty() || keyOf(head) < options.apiKeys.size())
    return {};
  ++answers[401];
  return ApiError{401, "an API key is required: Authorization: Bearer KEY", "",
                  "invalid_api_key"}
      .json(errorFormOf(head.path));
}

//===--- answers ----------------------------------------------------------===//

CommonService::CommonService(ModelKind kind, const EngineThread &engine,
                             HealthProbe probe, ServiceOptions options)
    : kind(kind), options(std::move(options)), started(std::time(nullptr)),
      health(engine, std::move(probe), this->options.health) {}

void CommonService::markReady() { compiledBefore = compilationCount; }

std::string CommonService::describe(int status, std::string_view message,
                                    std::string_view path) {
  ++answers[status];
  const char *code = status == 503 ? "too_many_connections" : "bad_request";
  return ApiError{status, std::string(message), "", code}.json(
      errorFormOf(path));
}

void CommonService::sendError(const Reply &reply, const ApiError &error,
                              ErrorForm form, std::string headers) {
  ++answers[error.status];
  if (error.status == 429 || error.status == 503)
    headers += "Retry-After: 1\r\n";
  reply->send(error.status, "application/json", error.json(form), headers);
}

void CommonService::sendText(const Reply &reply, std::string_view type,
                             std::string body) {
  ++answers[200];
  reply->send(200, type, std::move(body));
}

void CommonService::sendJson(const Reply &reply, std::string body) {
  sendText(reply, "application/json", std::move(body));
}

bool CommonService::isServed(std::string_view model) const {
  return std::ranges::count(options.models, model) != 0 ||
         options.adapters->find(model);
}

std::vector<std::string> CommonService::names() const {
  std::vector<std::string> all = options.models;
  for (const Adapters::Entry &entry : options.adapters->entries())
    all.push_back(entry.name);
  return all;
}

ApiError CommonService::otherModel() const {
  return {404,
          fmt::format("unknown model; this server has {}",
                      fmt::join(names(), " or ")),
          "model", "model_not_found"};
}

ApiError CommonService::shuttingDown() {
  return {503, "the server is shutting down", "", "shutting_down"};
}

void CommonService::markEnding() {
  isEnding = true;
  health.end();
}

void CommonService::checkHealth(const Reply &reply) {
  health.ask(*server, [this, reply](const std::string &problem) {
    if (problem == Health::kEnding)
      return sendError(reply, shuttingDown());
    if (!problem.empty())
      return sendError(reply, {503, problem, "", "unhealthy"});
    sendJson(reply, R"({"status":"ok"})");
  });
}

//===--- routes -----------------------------------------------------------===//

/// The error for an endpoint that the model does not support.
static ApiError otherKind(ModelKind kind) {
  const char *message =
      kind == ModelKind::embeds
          ? "this model is an encoder: it computes embeddings "
            "(/v1/embeddings), generates no text and ranks no documents, which "
            "a cross-encoder does"
      : kind == ModelKind::ranks
          ? "this model scores pairs (/v1/rerank, /score); it generates no "
            "text and has no embeddings"
          : "this model generates text: it has no embeddings, which an encoder "
            "has, and ranks no documents, which a cross-encoder does";
  return {400, message, "model", "not_supported"};
}

void CommonService::handle(HttpRequest request, Reply reply) {
  // HEAD is GET; the connection omits the body.
  bool isHead = request.method == "HEAD";
  const ErrorForm form = errorFormOf(request.path);
  RouteMatch match = findRoute(isHead ? "GET" : request.method, request.path);
  if (!match.route && !match.allowed.empty())
    return sendError(reply,
                     {405, fmt::format("this path supports {}", match.allowed),
                      "", "method_not_allowed"},
                     form, fmt::format("Allow: {}\r\n", match.allowed));
  if (!match.route)
    return sendError(reply, {404, "unknown path", "", "not_found"}, form);
  bool isStored = isAboutStored(*match.route),
       isOfAdapters = isAboutAdapters(*match.route),
       isOfTraining = isAboutTraining(*match.route);
  if (!match.route->body && !isStored && !isOfAdapters && !isOfTraining)
    return get(match, request, reply);
  // Browsers send saved credentials with requests from any site's page.
  if (request.isForeign)
    return sendError(reply,
                     {403, "requests from pages of other sites are rejected",
                      "", "cross_site"},
                     form);
  if (!serve::isServed(*match.route, kind))
    return sendError(reply, otherKind(kind), form);
  if (isStored)
    return askStored(match, request, reply);
  if (isOfAdapters)
    return changeAdapters(match, request, reply);
  if (isOfTraining)
    return train(match, request, reply);
  post(request, *match.route->body, reply);
}

void CommonService::askStored(const RouteMatch &, const HttpRequest &,
                              const Reply &reply) {
  sendError(reply, otherKind(kind));
}

void CommonService::changeAdapters(const RouteMatch &, const HttpRequest &,
                                   const Reply &reply) {
  sendError(reply, otherKind(kind));
}

void CommonService::train(const RouteMatch &, const HttpRequest &,
                          const Reply &reply) {
  sendError(reply, otherKind(kind));
}

void CommonService::get(const RouteMatch &match, const HttpRequest &request,
                        const Reply &reply) {
  switch (match.route->id) {
  case RouteId::models:
    return listModels(reply);
  case RouteId::model: {
    std::string asked = percentDecoded(match.rest);
    return isServed(asked) ? sendJson(reply, modelJson(asked))
                           : sendError(reply, otherModel());
  }
  case RouteId::health:
    return isEnding ? sendError(reply, shuttingDown()) : checkHealth(reply);
  case RouteId::metrics:
    return sendText(reply, match.route->type,
                    engineMetrics() + answerMetrics(answers) +
                        processMetrics(options.version, compiledBefore));
  case RouteId::version:
    return sendJson(reply, nlohmann::json{{"version", options.version}}.dump());
  case RouteId::openApi:
    return sendJson(reply, openApiJson(options.version, names(), kind));
  case RouteId::page:
    return sendPage("index.html", request, reply);
  case RouteId::pageFile:
    return sendPage(match.rest, request, reply);
  case RouteId::completions:
  case RouteId::chat:
  case RouteId::responses:
  case RouteId::embeddings:
  case RouteId::rerank:
  case RouteId::rerankV2:
  case RouteId::rerankPlain:
  case RouteId::score:
  case RouteId::scoreV1:
  case RouteId::tokenize:
  case RouteId::detokenize:
  case RouteId::messages:
  case RouteId::countTokens:
    return; // post()
  case RouteId::response:
  case RouteId::deleteResponse:
  case RouteId::cancelResponse:
  case RouteId::inputItems:
  case RouteId::listChats:
  case RouteId::storedChat:
  case RouteId::updateChat:
  case RouteId::deleteChat:
  case RouteId::chatMessages:
    return; // askStored()
  case RouteId::loadAdapter:
  case RouteId::unloadAdapter:
    return; // changeAdapters()
  case RouteId::createAdapter:
  case RouteId::trainedAdapters:
  case RouteId::deleteAdapter:
  case RouteId::forwardBackward:
  case RouteId::optimStep:
  case RouteId::saveAdapter:
  case RouteId::restoreAdapter:
    return; // train()
  }
}

void CommonService::sendPage(std::string_view name, const HttpRequest &request,
                             const Reply &reply) {
  const PageFile *file = findPageFile(name);
  if (!file)
    return sendError(reply,
                     {404, "the page has no such file", "", "not_found"});
  bool isKnown = request.ifNoneMatch.find(file->etag) != std::string::npos;
  int status = isKnown ? 304 : 200;
  ++answers[status];
  reply->send(status, file->type, isKnown ? "" : std::string(file->text),
              fmt::format("ETag: {}\r\n{}", file->etag, kPageHeaders));
}

void CommonService::listModels(const Reply &reply) {
  std::vector<std::string> list;
  for (const std::string &each : names())
    list.push_back(modelJson(each));
  sendJson(reply, fmt::format(R"({{"object":"list","data":[{}]}})",
                              fmt::join(list, ",")));
}

std::string CommonService::modelJson(const std::string &name) const {
  nlohmann::ordered_json model = {{"id", name},
                                  {"object", "model"},
                                  {"created", started},
                                  {"owned_by", "tessera"},
                                  {"max_model_len", context()}};
  if (const Adapters::Entry *adapter = options.adapters->find(name)) {
    if (!adapter->directory.empty()) // it is in memory, and trained
      model["root"] = adapter->directory;
    model["parent"] = this->name();
  }
  // A folder's name may not be UTF-8.
  return model.dump(-1, ' ', false,
                    nlohmann::ordered_json::error_handler_t::replace);
}

} // namespace tessera::serve
