#include "runtime/serve/OpenApi.h"
#include "runtime/serve/Embeddings.h"
#include "runtime/serve/Ranking.h"
#include "runtime/serve/StoredQuery.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;

Json reference(std::string_view name) {
  return {{"$ref", fmt::format("#/components/schemas/{}", name)}};
}

//===--- requests ---------------------------------------------------------===//

template <typename Request>
Json boundOf(const FieldOf<Request> &field, double bound) {
  bool isWhole = field.schema.find("integer") != std::string_view::npos;
  return isWhole && bound < 0x1p63 ? Json(int64_t(bound)) : Json(bound);
}

std::vector<std::string_view> requiredOf(Endpoint endpoint) {
  if (endpoint == Endpoint::responses || endpoint == Endpoint::tokenize)
    return {};
  if (endpoint == Endpoint::rerank)
    return {"query", inputField(endpoint)};
  if (endpoint == Endpoint::score)
    return {"text_1", inputField(endpoint)};
  return {inputField(endpoint)};
}

template <typename Request>
Json schemaOf(const FieldOf<Request> &field, Endpoint endpoint,
              std::span<const std::string> models) {
  Json schema = Json::parse(field.schema);
  // Bounds of nested values are in the schema itself.
  bool isNumber = schema.value("type", "") == "integer" ||
                  schema.value("type", "") == "number";
  if (isNumber && field.least < field.most) {
    schema["minimum"] = boundOf(field, field.least);
    schema["maximum"] = boundOf(field, field.most);
  }
  // null means a missing field, except in required ones.
  bool isNeeded = std::ranges::count(requiredOf(endpoint), field.name) != 0;
  if (field.name == "model")
    schema["enum"] = models;
  if (!schema.empty() && !isNeeded)
    schema = {{"anyOf", Json::array({schema, {{"type", "null"}}})}};
  if (!field.about.empty())
    schema["description"] = field.about;
  return schema;
}

template <typename Request>
Json propertiesOf(std::span<const FieldOf<Request>> fields, Endpoint endpoint,
                  std::span<const std::string> models) {
  Json properties = Json::object();
  for (const FieldOf<Request> &field : fields)
    if ((field.endpoints & maskOf(endpoint)) != 0)
      properties[std::string(field.name)] = schemaOf(field, endpoint, models);
  return properties;
}

Json requestSchema(Endpoint endpoint, std::span<const std::string> models) {
  Json properties = isRanking(endpoint)
                        ? propertiesOf(rankingFields(), endpoint, models)
                    : endpoint == Endpoint::embeddings
                        ? propertiesOf(embeddingsFields(), endpoint, models)
                        : propertiesOf(apiFields(), endpoint, models);
  return {{"type", "object"},
          {"additionalProperties", false},
          {"required", requiredOf(endpoint)},
          {"properties", std::move(properties)}};
}

//===--- routes -----------------------------------------------------------===//

Json answersOf(const Route &route) {
  auto errorAnswer = [&](std::string_view description) -> Json {
    const bool isMessages = errorFormOf(route.path) == ErrorForm::messages;
    Json schema = reference(isMessages ? "MessagesError" : "Error");
    return {{"description", description},
            {"content", {{"application/json", {{"schema", schema}}}}}};
  };
  std::string type(route.type.substr(0, route.type.find(';')));
  Json schema =
      route.schema.empty() ? Json{{"type", "string"}} : reference(route.schema);
  Json content = {{type, {{"schema", schema}}}};
  bool isStream =
      route.body ? generates(*route.body) : route.id == RouteId::response;
  if (isStream)
    content["text/event-stream"] = {{"schema", reference("Event")}};
  Json answers = {
      {"200", {{"description", route.summary}, {"content", content}}},
      {"400", errorAnswer("The request is invalid")},
      {"401", errorAnswer("An API key is required")}};
  bool isNamed = route.path.find('{') != route.path.npos;
  if (route.body || isNamed)
    answers["404"] = errorAnswer(isAboutStored(route) ? "Not stored"
                                                      : "Unknown "
                                                        "model");
  if (isAboutStored(route))
    answers["429"] = errorAnswer("Too many unread bytes");
  if (route.id == RouteId::loadAdapter || route.id == RouteId::unloadAdapter)
    answers["403"] =
        errorAnswer("The server was started without --adapter-slots");
  if (route.id == RouteId::loadAdapter)
    answers["429"] = errorAnswer("Another adapter is being loaded");
  if (route.id == RouteId::unloadAdapter)
    answers["404"] = errorAnswer("Unknown adapter");
  if (isAboutTraining(route)) {
    answers["403"] = errorAnswer("The server was started without --train");
    answers["429"] = errorAnswer("Too many requests are waiting");
    answers["500"] = errorAnswer("The learner failed");
    if (isNamed)
      answers["404"] = errorAnswer("Unknown adapter");
  }
  if (route.method == "POST")
    answers["413"] = errorAnswer("The body is too large");
  bool isComputed = route.body && (generates(*route.body) ||
                                   *route.body == Endpoint::embeddings ||
                                   isRanking(*route.body));
  if (isComputed) {
    answers["429"] = errorAnswer("The queue is full");
    answers["500"] = errorAnswer("The engine failed");
    answers["504"] = errorAnswer("The request timed out");
  }
  if (isComputed || route.id == RouteId::health)
    answers["503"] =
        errorAnswer("The server is shutting down, or its engine has stopped");
  return answers;
}

Json parametersOf(const Route &route, std::span<const std::string> models) {
  Json list = Json::array();
  if (std::size_t brace = route.path.find('{'); brace != route.path.npos) {
    std::string_view name = route.path.substr(brace + 1);
    name = name.substr(0, name.find('}'));
    list.push_back({{"name", name},
                    {"in", "path"},
                    {"required", true},
                    {"schema", name == "model" ? Json{{"enum", models}}
                                               : Json{{"type", "string"}}}});
  }
  for (const QueryField &field : queryFields()) {
    if ((field.routes & bitOf(route.id)) == 0)
      continue;
    Json schema = Json::parse(field.schema);
    if (field.least < field.most) {
      schema["minimum"] = int64_t(field.least);
      schema["maximum"] = int64_t(field.most);
    }
    bool isList = field.name == "include";
    if (isList)
      schema["items"]["enum"] = includables();
    Json one = {{"name", std::string(field.name) + (isList ? "[]" : "")},
                {"in", "query"},
                {"schema", std::move(schema)}};
    if (field.name == "metadata")
      one["style"] = "deepObject";
    if (!field.about.empty())
      one["description"] = field.about;
    list.push_back(std::move(one));
  }
  return list;
}

Json operationOf(const Route &route, std::span<const std::string> models) {
  Json operation = {{"summary", route.summary}};
  if (Json list = parametersOf(route, models); !list.empty())
    operation["parameters"] = std::move(list);
  std::string asks = route.body ? std::string(route.schema) + "Request"
                                : std::string(route.asks);
  if (!asks.empty())
    operation["requestBody"] = {
        {"required", true},
        {"content", {{"application/json", {{"schema", reference(asks)}}}}}};
  operation["responses"] = answersOf(route);
  return operation;
}

} // namespace

std::string openApiJson(const std::string &version,
                        std::span<const std::string> models, ModelKind kind) {
  Json schemas = Json::parse(openApiSchemas()), paths = Json::object();
  for (const Route &route : routes()) {
    if (!isServed(route, kind))
      continue;
    std::string method = route.method == "POST"     ? "post"
                         : route.method == "DELETE" ? "delete"
                                                    : "get";
    paths[std::string(route.path)][method] = operationOf(route, models);
    if (route.body)
      schemas[std::string(route.schema) + "Request"] =
          requestSchema(*route.body, models);
  }
  Json document = {
      {"openapi", "3.1.0"},
      {"info", {{"title", "Tessera"}, {"version", version}}},
      {"paths", std::move(paths)},
      {"components",
       {{"schemas", std::move(schemas)},
        {"securitySchemes",
         {{"key", {{"type", "http"}, {"scheme", "bearer"}}},
          {"header",
           {{"type", "apiKey"}, {"in", "header"}, {"name", "X-Api-Key"}}}}}}},
      {"security", Json::array({Json::object(),
                                {{"key", Json::array()}},
                                {{"header", Json::array()}}})}};
  // A folder's name may not be UTF-8.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace tessera::serve
