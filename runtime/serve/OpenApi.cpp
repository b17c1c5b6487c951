#include "runtime/serve/OpenApi.h"
#include "runtime/serve/Embeddings.h"

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

template <typename Request>
Json schemaOf(const FieldOf<Request> &field, Endpoint endpoint) {
  Json schema = Json::parse(field.schema);
  // Bounds of what stands inside of the value are in the schema itself.
  bool isNumber = schema.value("type", "") == "integer" ||
                  schema.value("type", "") == "number";
  if (isNumber && field.least < field.most) {
    schema["minimum"] = boundOf(field, field.least);
    schema["maximum"] = boundOf(field, field.most);
  }
  // A null is a field that is not there, except of the two that must be.
  if (!schema.empty() && field.name != "model" &&
      field.name != inputField(endpoint))
    schema = {{"anyOf", Json::array({schema, {{"type", "null"}}})}};
  if (!field.about.empty())
    schema["description"] = field.about;
  return schema;
}

template <typename Request>
Json propertiesOf(std::span<const FieldOf<Request>> fields, Endpoint endpoint) {
  Json properties = Json::object();
  for (const FieldOf<Request> &field : fields)
    if ((field.endpoints & maskOf(endpoint)) != 0)
      properties[std::string(field.name)] = schemaOf(field, endpoint);
  return properties;
}

Json requestSchema(Endpoint endpoint, std::span<const std::string> models) {
  Json properties = endpoint == Endpoint::embeddings
                        ? propertiesOf(embeddingsFields(), endpoint)
                        : propertiesOf(apiFields(), endpoint);
  properties["model"]["enum"] = models;
  return {{"type", "object"},
          {"additionalProperties", false},
          {"required", {"model", inputField(endpoint)}},
          {"properties", std::move(properties)}};
}

//===--- answers ----------------------------------------------------------===//

// What every answer has; clients are to expect more members.
constexpr std::string_view kSchemas = R"({
"Content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {
  "type": "object", "required": ["type", "text"], "properties": {
    "type": {"const": "text"}, "text": {"type": "string"}}}}]},
"ToolCalls": {"type": "array", "minItems": 1, "items": {
  "type": "object", "required": ["id", "type", "function"],
  "additionalProperties": false, "properties": {
    "id": {"type": "string"}, "type": {"const": "function"},
    "function": {"type": "object", "required": ["name", "arguments"],
      "additionalProperties": false, "properties": {
        "name": {"type": "string"},
        "arguments": {"type": "string", "description": "JSON of an object"}}}}}},
"Messages": {"type": "array", "minItems": 1, "items": {"anyOf": [
  {"type": "object", "required": ["role", "content"], "additionalProperties": false,
    "properties": {
      "role": {"enum": ["system", "developer", "user", "assistant"]},
      "name": {"type": ["string", "null"]},
      "content": {"$ref": "#/components/schemas/Content"}}},
  {"type": "object", "required": ["role", "tool_calls"], "additionalProperties": false,
    "properties": {
      "role": {"const": "assistant"}, "name": {"type": ["string", "null"]},
      "content": {"anyOf": [{"$ref": "#/components/schemas/Content"}, {"type": "null"}]},
      "tool_calls": {"$ref": "#/components/schemas/ToolCalls"}}},
  {"type": "object", "required": ["role", "content", "tool_call_id"],
    "additionalProperties": false, "properties": {
      "role": {"const": "tool"}, "name": {"type": ["string", "null"]},
      "tool_call_id": {"type": "string"},
      "content": {"$ref": "#/components/schemas/Content"}}}]}},
"InputMessages": {"type": "array", "minItems": 1, "items": {
  "type": "object", "required": ["role", "content"], "additionalProperties": false,
  "properties": {
    "type": {"enum": ["message", null]}, "id": {"type": ["string", "null"]},
    "status": {"type": ["string", "null"]},
    "role": {"enum": ["system", "developer", "user", "assistant"]},
    "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {
      "type": "object", "required": ["type", "text"], "properties": {
        "type": {"enum": ["input_text", "output_text"]},
        "text": {"type": "string"}}}}]}}}},
"Usage": {"type": "object",
  "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
  "properties": {"prompt_tokens": {"type": "integer"},
    "completion_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
    "prompt_tokens_details": {"type": "object",
      "properties": {"cached_tokens": {"type": "integer"}}}}},
"Completion": {"type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {"id": {"type": "string"}, "object": {"const": "text_completion"},
    "created": {"type": "integer"}, "model": {"type": "string"},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "choices": {"type": "array", "items": {"type": "object",
      "required": ["index", "text", "logprobs", "finish_reason"], "properties": {
        "index": {"type": "integer"}, "text": {"type": "string"},
        "logprobs": {"type": ["object", "null"]},
        "finish_reason": {"enum": ["stop", "length"]}}}}}},
"ChatCompletion": {"type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {"id": {"type": "string"}, "object": {"const": "chat.completion"},
    "created": {"type": "integer"}, "model": {"type": "string"},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "choices": {"type": "array", "items": {"type": "object",
      "required": ["index", "message", "logprobs", "finish_reason"], "properties": {
        "index": {"type": "integer"},
        "message": {"type": "object", "required": ["role", "content"],
          "properties": {"role": {"const": "assistant"},
            "content": {"type": ["string", "null"]},
            "tool_calls": {"$ref": "#/components/schemas/ToolCalls"}}},
        "logprobs": {"type": ["object", "null"]},
        "finish_reason": {"enum": ["stop", "length", "tool_calls"]}}}}}},
"Response": {"type": "object",
  "required": ["id", "object", "created_at", "status", "model", "output", "usage"],
  "properties": {"id": {"type": "string"}, "object": {"const": "response"},
    "created_at": {"type": "integer"}, "model": {"type": "string"},
    "status": {"enum": ["completed", "incomplete"]},
    "incomplete_details": {"type": ["object", "null"]},
    "output": {"type": "array", "items": {"type": "object",
      "required": ["type", "id", "status", "role", "content"]}},
    "usage": {"type": "object",
      "required": ["input_tokens", "output_tokens", "total_tokens"]}}},
"Tokens": {"type": "array", "minItems": 1,
  "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}},
"Embeddings": {"type": "object", "required": ["object", "data", "model", "usage"],
  "properties": {"object": {"const": "list"}, "model": {"type": "string"},
    "data": {"type": "array", "items": {"type": "object",
      "required": ["object", "index", "embedding"], "properties": {
        "object": {"const": "embedding"}, "index": {"type": "integer"},
        "embedding": {"anyOf": [{"type": "string"},
          {"type": "array", "items": {"type": "number"}}]}}}},
    "usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"],
      "properties": {"prompt_tokens": {"type": "integer"},
        "total_tokens": {"type": "integer"}}}}},
"Model": {"type": "object", "required": ["id", "object", "created", "owned_by"],
  "properties": {"id": {"type": "string"}, "object": {"const": "model"},
    "created": {"type": "integer"}, "owned_by": {"type": "string"},
    "max_model_len": {"type": "integer"}}},
"Models": {"type": "object", "required": ["object", "data"],
  "properties": {"object": {"const": "list"}, "data": {"type": "array",
    "items": {"$ref": "#/components/schemas/Model"}}}},
"Health": {"type": "object", "required": ["status"],
  "properties": {"status": {"const": "ok"}}},
"Version": {"type": "object", "required": ["version"],
  "properties": {"version": {"type": "string"}}},
"Description": {"type": "object", "required": ["openapi", "info", "paths"]},
"Event": {"type": "object", "required": ["data"],
  "description": "One of the events of a stream",
  "properties": {"data": {"type": "string"}, "event": {"type": "string"}}},
"Error": {"type": "object", "required": ["error"], "properties": {"error": {
  "type": "object", "required": ["message", "type", "param", "code"],
  "properties": {"message": {"type": "string"}, "type": {"type": "string"},
    "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}}}
})";

//===--- routes -----------------------------------------------------------===//

Json errorAnswer(std::string_view description) {
  return {
      {"description", description},
      {"content", {{"application/json", {{"schema", reference("Error")}}}}}};
}

Json answersOf(const Route &route) {
  std::string type(route.type.substr(0, route.type.find(';')));
  Json schema =
      route.schema.empty() ? Json{{"type", "string"}} : reference(route.schema);
  Json content = {{type, {{"schema", schema}}}};
  if (route.body && route.body != Endpoint::embeddings)
    content["text/event-stream"] = {{"schema", reference("Event")}};
  Json answers = {
      {"200", {{"description", route.summary}, {"content", content}}},
      {"400", errorAnswer("What can never be served")},
      {"401", errorAnswer("A key is needed")}};
  if (route.body || route.path.ends_with('}'))
    answers["404"] = errorAnswer("There is no such model");
  if (route.body) {
    answers["413"] = errorAnswer("The body is too large");
    answers["429"] = errorAnswer("Too much is waiting");
    answers["500"] = errorAnswer("The engine failed");
    answers["504"] = errorAnswer("The request took too long");
  }
  if (route.body || route.id == RouteId::health)
    answers["503"] = errorAnswer("The server ends, or its engine does nothing");
  return answers;
}

Json operationOf(const Route &route, std::span<const std::string> models) {
  Json operation = {{"summary", route.summary}};
  if (route.path.ends_with('}'))
    operation["parameters"] = Json::array({{{"name", "model"},
                                            {"in", "path"},
                                            {"required", true},
                                            {"schema", {{"enum", models}}}}});
  if (route.body)
    operation["requestBody"] = {
        {"required", true},
        {"content",
         {{"application/json",
           {{"schema", reference(std::string(route.schema) + "Request")}}}}}};
  operation["responses"] = answersOf(route);
  return operation;
}

} // namespace

std::string openApiJson(const std::string &version,
                        std::span<const std::string> models, ModelKind kind) {
  Json schemas = Json::parse(kSchemas), paths = Json::object();
  for (const Route &route : routes()) {
    if (!isServed(route, kind))
      continue;
    std::string method = route.method == "POST" ? "post" : "get";
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
         {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
      {"security", Json::array({Json::object(), {{"key", Json::array()}}})}};
  // A folder's name need not be UTF-8.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace tessera::serve
