// /openapi.json against what reads requests: the same fields, bounds and paths.
#include "runtime/serve/OpenApi.h"
#include "runtime/serve/Embeddings.h"
#include "runtime/serve/Ranking.h"

#include <algorithm>
#include <map>
#include <regex>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Json = nlohmann::json;
using nlohmann::literals::operator""_json_pointer;

const std::vector<std::string> kNames = {"m", "other/name"};
constexpr ModelKind kKinds[] = {ModelKind::generates, ModelKind::embeds,
                                ModelKind::ranks};

const Json &document(ModelKind kind) {
  static const std::map<ModelKind, Json> parsed = [] {
    std::map<ModelKind, Json> all;
    for (ModelKind each : kKinds)
      all[each] = Json::parse(openApiJson("1.2", kNames, each));
    return all;
  }();
  return parsed.at(kind);
}

const Json &documentOf(Endpoint endpoint) {
  return document(isRanking(endpoint)                ? ModelKind::ranks
                  : endpoint == Endpoint::embeddings ? ModelKind::embeds
                                                     : ModelKind::generates);
}

/// What the schema says of the body of an endpoint.
const Json &bodyOf(Endpoint endpoint) {
  for (const Route &route : routes())
    if (route.body == endpoint) {
      const Json &all = documentOf(endpoint);
      const Json &operation = all["paths"][std::string(route.path)]["post"];
      std::string name = operation["requestBody"]["content"]["application/json"]
                                  ["schema"]["$ref"];
      return all["components"]["schemas"][name.substr(name.rfind('/') + 1)];
    }
  static const Json none;
  return none;
}

/// A body with what must be there, and one field more.
Json bodyWith(Endpoint endpoint, const std::string &name, const Json &value) {
  Json body = {{"model", "m"}};
  // One of prompt and messages must be there.
  const bool needsChat =
      endpoint == Endpoint::tokenize && name == "prompt" && value.is_null();
  const bool isMessages =
      endpoint == Endpoint::messages || endpoint == Endpoint::countTokens;
  if (endpoint == Endpoint::chat || isMessages || needsChat)
    body["messages"] = {{{"role", "user"}, {"content", "a"}}};
  else if (endpoint == Endpoint::detokenize)
    body["tokens"] = {1};
  else if (endpoint != Endpoint::tokenize || name != "messages")
    body[std::string(inputField(endpoint))] = "a";
  if (endpoint == Endpoint::rerank)
    body.update({{"query", "x"}, {"documents", {"x"}}});
  if (endpoint == Endpoint::score)
    body["text_1"] = "x";
  if (name == "top_logprobs" && endpoint == Endpoint::chat)
    body["logprobs"] = true;
  if (name == "best_of" && value != 0)
    body["n"] = value;
  if (name == "tool_choice" && endpoint == Endpoint::chat)
    body["tools"] =
        Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  if (name == "tool_choice" && endpoint == Endpoint::responses)
    body["tools"] = Json::parse(R"([{"type": "function", "name": "f"}])");
  if (name == "tool_choice" && isMessages)
    body["tools"] = Json::parse(R"([{"name": "f", "input_schema": {}}])");
  if (name == "function_call")
    body["functions"] = Json::parse(R"([{"name": "f"}])");
  body[name] = value;
  return body;
}

/// Empty if it is read, else the field that is to blame.
std::string refusal(Endpoint endpoint, const Json &body) {
  auto paramOf = [](const auto &parsed) {
    const auto *error = std::get_if<ApiError>(&parsed);
    return error ? error->param : "";
  };
  return isRanking(endpoint)
             ? paramOf(parseRankingRequest(body.dump(), endpoint))
         : endpoint == Endpoint::embeddings
             ? paramOf(parseEmbeddingsRequest(body.dump()))
             : paramOf(parseApiRequest(body.dump(), endpoint));
}

constexpr Endpoint kEndpoints[] = {
    Endpoint::completions, Endpoint::chat,        Endpoint::responses,
    Endpoint::embeddings,  Endpoint::tokenize,    Endpoint::detokenize,
    Endpoint::messages,    Endpoint::countTokens, Endpoint::rerank,
    Endpoint::score,
};

TEST(OpenApi, BoundsAreTheParsers) {
  int bounds = 0;
  for (Endpoint endpoint : kEndpoints)
    for (const auto &[name, field] : bodyOf(endpoint)["properties"].items()) {
      const Json schema = field.contains("anyOf") ? field["anyOf"][0] : field;
      if (!schema.contains("maximum") || name == "seed" ||
          name == "best_of") // the value of n
        continue;
      for (const char *bound : {"minimum", "maximum"}) {
        const Json &edge = schema[bound];
        EXPECT_EQ(refusal(endpoint, bodyWith(endpoint, name, edge)), "")
            << name << edge;
        double off = std::string_view(bound) == "minimum" ? -1 : 1;
        Json beyond = edge.is_number_integer()
                          ? Json(edge.get<int64_t>() + int64_t(off))
                          : Json(edge.get<double>() + off);
        EXPECT_EQ(refusal(endpoint, bodyWith(endpoint, name, beyond)), name)
            << beyond;
        ++bounds;
      }
      const Json halves = 0.5;
      EXPECT_EQ(refusal(endpoint, bodyWith(endpoint, name, halves)),
                schema["type"] == "integer" ? name : "");
    }
  EXPECT_GT(bounds, 50);
}

/// The schema of the first pattern that a name has; null: none has it.
const Json *patternOf(const Json &patterns, const std::string &name) {
  for (const auto &[pattern, schema] : patterns.items())
    if (std::regex_search(name, std::regex(pattern)))
      return &schema;
  return nullptr;
}

/// Values of which the parser takes some and refuses others: what the schema
/// says of each must be the same. A few types are all that schemas have here.
bool matches(const Json &schema, const Json &value, Endpoint endpoint) {
  if (schema.contains("anyOf")) {
    Json others = schema; // all of which must hold, too
    others.erase("anyOf");
    return std::any_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                       [&](const Json &each) {
                         return matches(each, value, endpoint);
                       }) &&
           matches(others, value, endpoint);
  }
  if (schema.contains("const"))
    return schema["const"] == value;
  if (schema.contains("enum"))
    return schema["enum"].end() !=
           std::find(schema["enum"].begin(), schema["enum"].end(), value);
  if (schema.contains("$ref")) {
    std::string name = schema["$ref"];
    return matches(documentOf(endpoint)["components"]["schemas"]
                                       [name.substr(name.rfind('/') + 1)],
                   value, endpoint);
  }
  if (schema.contains("type") && schema["type"].is_array()) {
    Json one = schema;
    for (const Json &each : schema["type"])
      if (one["type"] = each; matches(one, value, endpoint))
        return true;
    return false;
  }
  std::string type = schema.value("type", "");
  if (type == "array")
    return value.is_array() && value.size() >= schema.value("minItems", 0u) &&
           std::all_of(value.begin(), value.end(), [&](const Json &each) {
             return matches(schema["items"], each, endpoint);
           });
  if (type == "object") {
    if (!value.is_object())
      return false;
    for (const Json &name : schema.value("required", Json::array()))
      if (!value.contains(name))
        return false;
    const Json patterns = schema.value("patternProperties", Json::object());
    std::regex names(schema.value("/propertyNames/pattern"_json_pointer, ".*"));
    for (const auto &[name, member] : value.items())
      if (!std::regex_match(name, names))
        return false;
      else if (const Json *own = patternOf(patterns, name)) {
        if (!matches(*own, member, endpoint))
          return false;
      } else if (schema.contains("properties") &&
                 schema["properties"].contains(name)) {
        if (!matches(schema["properties"][name], member, endpoint))
          return false;
      } else if (schema.value("additionalProperties", Json(true)) == false) {
        return false;
      } else if (schema.contains("additionalProperties") &&
                 schema["additionalProperties"].is_object() &&
                 !matches(schema["additionalProperties"], member, endpoint)) {
        return false;
      }
    return true;
  }
  if (type == "integer" || type == "number")
    return (type == "number" ? value.is_number() : value.is_number_integer()) &&
           value.get<double>() >= schema.value("minimum", -1e300) &&
           value.get<double>() <= schema.value("maximum", 1e300);
  return type.empty() ||
         (type == "string" && value.is_string() &&
          value.get<std::string>().size() >= schema.value("minLength", 0u)) ||
         (type == "boolean" && value.is_boolean()) ||
         (type == "null" && value.is_null());
}

TEST(OpenApi, AFieldIsReadAsItIsDescribed) {
  const Json values = Json::parse(R"([null, true, false, 0, 1, -1, 7, 0.5, "",
      "x", "none", "auto", "disabled", [], ["x"], ["text"], [1, 2], [[1]], {},
      {"x": 1}, {"x": 0}, {"x": "y"}, {"1": 5}, {"1": 101}, {"include_usage": false},
      {"include_obfuscation": false}, {"type": "text"}, "medium", "minimal",
      {"effort": "none"}, {"effort": "high"}, {"effort": null}, {"summary": "x"},
      {"type": "content", "content": "x"}, {"type": "content"},
      {"type": "content", "content": [{"type": "text", "text": "x"}]},
      ["reasoning.encrypted_content"], {"verbosity": "medium"},
      {"verbosity": "low"},
      {"format": {"type": "text"}}, {"format": {"type": "json_object"}},
      [{"role": "user", "content": "x"}], [{"role": "robot", "content": "x"}],
      [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
      [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}],
      [{"role": "user", "content": [{"type": "image_url"}]}],
      [{"role": "tool", "content": "x"}],
      [{"role": "tool", "content": "x", "tool_call_id": "1"}],
      [{"role": "assistant", "content": null, "tool_calls": [{"id": "1",
        "type": "function", "function": {"name": "f", "arguments": "{}"}}]}],
      [{"role": "assistant", "tool_calls": []}],
      [{"type": "function", "function": {"name": "f"}}],
      [{"type": "function", "function": {"name": "f", "strict": 1}}],
      [{"type": "function", "function": {"name": "f", "parameters": {}}}],
      [{"type": "web_search"}], "required", "low", {"name": "f"},
      {"type": "function", "name": "f"},
      {"type": "function", "function": {"name": "f"}}, {"summary": "auto"},
      [{"name": "f"}], [{"name": "f", "strict": true}],
      [{"type": "function", "name": "f"}],
      [{"type": "function", "name": "f", "strict": true, "parameters": {}}],
      {"include_obfuscation": true},
      [{"type": "function_call", "call_id": "1", "name": "f",
        "arguments": "{}"}],
      [{"type": "function_call", "name": "f", "arguments": "{}"}],
      [{"type": "function_call_output", "call_id": "1", "output": "x"}],
      [{"type": "function_call_output", "output": "x"}],
      [{"role": "assistant", "function_call": {"name": "f",
        "arguments": "{}"}}, {"role": "function", "name": "f",
        "content": "x"}],
      [{"role": "function", "content": "x"}], {"regex": "x"},
      {"regex": null}, {"json_object": true}, {"json_object": false},
      {"type": "auto"}, {"type": "any", "disable_parallel_tool_use": true},
      {"type": "tool", "name": "f"}, {"type": "tool"}, {"type": "none", "name":
      "f"}, {"type": "disabled"}, {"type": "enabled", "budget_tokens": 1024},
      {"type": "enabled", "budget_tokens": 1023}, {"type": "ephemeral"},
      {"type": "ephemeral", "ttl": "2h"}, {"user_id": "x"}, {"user_id": 1},
      "standard_only", [{"name": "f", "input_schema": {"type": "object"}}],
      [{"type": "custom", "name": "f", "input_schema": {}, "strict": false}],
      [{"type": "bash_20250124", "name": "bash"}],
      [{"role": "user", "content": [{"type": "tool_result",
        "tool_use_id": "1", "content": [{"type": "text", "text": "x"}]}]}],
      [{"role": "user", "content": [{"type": "tool_result"}]}],
      [{"role": "assistant", "content": [{"type": "thinking", "thinking": "x",
        "signature": ""}, {"type": "tool_use", "id": "1", "name": "f",
        "input": {}}]}, {"role": "user", "content": "x"}],
      [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
      {"choice": ["x"], "disable_fallback": false}, {"disable_fallback": false},
      {"grammar": null, "json": {"type": "string"}}])");
  int read = 0, refused = 0;
  for (Endpoint endpoint : kEndpoints)
    for (const auto &[name, schema] : bodyOf(endpoint)["properties"].items())
      for (const Json &value : values) {
        std::string blamed = refusal(endpoint, bodyWith(endpoint, name, value));
        // What one field asks of another is said by no schema, and what model
        // there is not by the parser.
        if (name == "stream_options" || name == "best_of" || name == "model")
          continue;
        // Nor does one say which texts are grammars, or objects schemas.
        bool isForm = name == "grammar" || name == "ebnf" ||
                      name == "guided_grammar" || name == "guided_json";
        if (isForm && (value.is_string() || value.is_object()))
          continue;
        // What logprobs and n forbid together with it is not its own fault.
        bool taken = blamed.empty() || blamed != name;
        EXPECT_EQ(taken, matches(schema, value, endpoint))
            << name << " " << value << " " << int(endpoint);
        ++(taken ? read : refused);
      }
  EXPECT_GT(read, 300);
  EXPECT_GT(refused, 500);
}

TEST(OpenApi, OtherFieldsAreRefused) {
  for (Endpoint endpoint : kEndpoints) {
    const Json &body = bodyOf(endpoint);
    EXPECT_EQ(body["additionalProperties"], false);
    // All that the others know, and one that nobody does.
    for (Endpoint other : kEndpoints)
      for (const auto &[name, schema] : bodyOf(other)["properties"].items())
        if (!body["properties"].contains(name))
          EXPECT_EQ(refusal(endpoint, bodyWith(endpoint, name, "x")), name);
    EXPECT_EQ(refusal(endpoint, bodyWith(endpoint, "temprature", 1)),
              "temprature");
    for (const Json &name : body["required"]) {
      Json without = bodyWith(endpoint, "n", nullptr);
      without.erase(name.get<std::string>());
      EXPECT_EQ(refusal(endpoint, without), name.get<std::string>());
    }
  }
}

TEST(OpenApi, HasEveryRouteOfItsKind) {
  for (ModelKind kind : kKinds) {
    long operations = 0;
    for (const auto &[path, methods] : document(kind)["paths"].items())
      for (const auto &[method, operation] : methods.items()) {
        ++operations;
        std::string asked = path;
        if (size_t brace = asked.find('{'); brace != std::string::npos)
          asked.replace(brace, asked.find('}') + 1 - brace,
                        asked.ends_with("{model}") ? "some/name" : "some-id");
        const Route *route = findRoute(method == "get"      ? "GET"
                                       : method == "delete" ? "DELETE"
                                                            : "POST",
                                       asked)
                                 .route;
        ASSERT_NE(route, nullptr) << path;
        EXPECT_TRUE(isServed(*route, kind)) << path;
        EXPECT_TRUE(operation["responses"].contains("200")) << path;
      }
    EXPECT_EQ(operations, std::ranges::count_if(routes(), [&](const Route &r) {
                return isServed(r, kind);
              }));
  }
}

TEST(OpenApi, EveryNameMayBeAsked) {
  for (Endpoint endpoint : kEndpoints) {
    const Json &model = bodyOf(endpoint)["properties"]["model"];
    EXPECT_EQ(model["anyOf"][0]["enum"], Json(kNames));
  }
}

TEST(OpenApi, ReferencesAreThere) {
  const std::string prefix = "#/components/schemas/";
  for (ModelKind kind : kKinds) {
    std::string text = document(kind).dump();
    int found = 0;
    for (size_t at = text.find(prefix); at != std::string::npos;
         at = text.find(prefix, at + 1), ++found) {
      size_t begin = at + prefix.size();
      std::string name = text.substr(begin, text.find('"', begin) - begin);
      EXPECT_TRUE(document(kind)["components"]["schemas"].contains(name))
          << name;
    }
    EXPECT_GT(found, 20);
  }
}

TEST(Routes, PathsAreFound) {
  EXPECT_EQ(findRoute("GET", "/v1/models/a/b").rest, "a/b");
  EXPECT_EQ(findRoute("GET", "/v1/models/").route, nullptr);
  EXPECT_EQ(findRoute("POST", "/health").allowed, "GET, HEAD");
  EXPECT_EQ(findRoute("GET", "/healthy").allowed, "");
  EXPECT_EQ(findRoute("PUT", "/v1/responses/a").allowed, "GET, HEAD, DELETE");
  EXPECT_EQ(findRoute("GET", "/v1/responses/a").rest, "a");
  EXPECT_EQ(findRoute("GET", "/v1/responses/a/b").route, nullptr);
  EXPECT_EQ(findRoute("GET", "/v1/responses/").route, nullptr);
  EXPECT_EQ(findRoute("GET", "/v1/responses//input_items").route, nullptr);
  EXPECT_EQ(findRoute("GET", "/v1/responses/a/input_items").route->id,
            RouteId::inputItems);
  EXPECT_EQ(findRoute("POST", "/v1/chat/completions").route->id, RouteId::chat);
}

TEST(Routes, CodesAreDecoded) {
  EXPECT_EQ(percentDecoded("a%2Fb%20%zz%4"), "a/b %zz%4");
  EXPECT_EQ(percentDecoded("%41%"), "A%");
  EXPECT_EQ(base64Decoded("dXNlcjprZXk="), "user:key");
  EXPECT_EQ(base64Decoded("dXNlcjprZQ=="), "user:ke");
  EXPECT_EQ(base64Decoded(""), "");
  EXPECT_EQ(base64Decoded("A"), "");
  EXPECT_EQ(base64Decoded("//8=\n//8="), "\xFF\xFF");
}

} // namespace
} // namespace tessera::serve
