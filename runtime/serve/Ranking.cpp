#include "runtime/serve/Ranking.h"

#include <algorithm>
#include <ctime>
#include <numeric>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using RankingField = FieldOf<RankingRequest>;

constexpr std::size_t kMostPairs = 2048;

Problem readModel(const RankingField &field, const JsonValue &value,
                  RankingRequest &request) {
  return readText(field.name, value, request.model);
}

Problem readEach(std::string_view name, const JsonValue &value,
                 std::vector<std::string> &to) {
  std::string_view text;
  if (!value.get(text))
    return problem(name, "each of {} must be a string", name);
  to.emplace_back(text);
  return std::nullopt;
}

/// A string, or {"text": string}.
Problem readDocument(std::string_view name, const JsonValue &value,
                     std::vector<std::string> &to) {
  constexpr std::string_view kMembers[] = {"text"};
  std::string_view text;
  if (!value.get(text) && !value["text"].get(text))
    return problem(name,
                   "each of {} must be a string, or an object with a string "
                   "\"text\"",
                   name);
  to.emplace_back(text);
  return checkMembers(name, "a document", value, kMembers);
}

Problem readList(std::string_view name, const JsonValue &value,
                 decltype(readEach) &read, std::vector<std::string> &to) {
  const JsonValue::Array &parts = value.elements();
  if (parts.empty())
    return problem(name, "{} must be strings, and not empty", name);
  if (parts.size() > kMostPairs)
    return problem(name, "{} may have at most {} strings", name, kMostPairs);
  for (const JsonValue &part : parts)
    if (Problem found = read(name, part, to))
      return found;
  return std::nullopt;
}

/// A string, or strings.
Problem readStrings(std::string_view name, const JsonValue &value,
                    std::vector<std::string> &to) {
  return value.isArray() ? readList(name, value, readEach, to)
                         : readEach(name, value, to);
}

Problem readQuery(const RankingField &field, const JsonValue &value,
                  RankingRequest &request) {
  return readText(field.name, value, request.firsts.emplace_back());
}

Problem readDocuments(const RankingField &field, const JsonValue &value,
                      RankingRequest &request) {
  return readList(field.name, value, readDocument, request.seconds);
}

Problem readFirsts(const RankingField &field, const JsonValue &value,
                   RankingRequest &request) {
  return readStrings(field.name, value, request.firsts);
}

Problem readSeconds(const RankingField &field, const JsonValue &value,
                    RankingRequest &request) {
  return readStrings(field.name, value, request.seconds);
}

Problem readTop(const RankingField &field, const JsonValue &value,
                RankingRequest &request) {
  return readWhole(field, value, request.top);
}

Problem readReturns(const RankingField &field, const JsonValue &value,
                    RankingRequest &request) {
  return readBool(field.name, value, request.returnsDocuments);
}

Problem readTruncate(const RankingField &field, const JsonValue &value,
                     RankingRequest &request) {
  return readTruncation(field.name, value, request.truncate);
}

Problem ignoreUser(const RankingField &field, const JsonValue &value,
                   RankingRequest &) {
  std::string ignored;
  return readText(field.name, value, ignored);
}

constexpr const char *kStrings =
    R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1,
        "maxItems": 2048, "items": {"type": "string"}}]})";

constexpr RankingField kFields[] = {
    {"model", kRanking, readModel, R"({"type": "string", "minLength": 1})", 0,
     0, "a name of the served model; default: the model"},
    {"query", kRerank, readQuery, R"({"type": "string"})"},
    {"documents", kRerank, readDocuments,
     R"({"type": "array", "minItems": 1, "maxItems": 2048,
         "items": {"anyOf": [{"type": "string"}, {"type": "object",
           "required": ["text"], "additionalProperties": false,
           "properties": {"text": {"type": "string"}}}]}})"},
    {"top_n", kRerank, readTop, R"({"type": "integer"})", 0, INT32_MAX,
     "so many results, of the most relevant documents; 0, the default: all"},
    {"return_documents", kRerank, readReturns, R"({"type": "boolean"})", 0, 0,
     "whether results have the documents; default: true"},
    {"text_1", kScore, readFirsts, kStrings, 0, 0,
     "one text, or as many as text_2"},
    {"text_2", kScore, readSeconds, kStrings, 0, 0, "strings to compare with"},
    {"truncate_prompt_tokens", kRanking, readTruncate,
     R"({"anyOf": [{"type": "integer", "minimum": 1}, {"const": -1}]})", 0, 0,
     "an extension: truncates longer pairs to so many tokens; -1: to the "
     "context of the model"},
    {"user", kRanking, ignoreUser, R"({"type": "string"})"},
};

using Json = nlohmann::ordered_json;

Json rerankResults(const RankingRequest &request,
                   std::span<const double> scores) {
  std::vector<std::size_t> order = byRelevance(scores);
  if (request.top > 0 && std::size_t(request.top) < order.size())
    order.resize(std::size_t(request.top));
  Json results = Json::array();
  for (std::size_t index : order) {
    Json &result = results.emplace_back(Json{{"index", index}});
    if (request.returnsDocuments)
      result["document"] = {{"text", request.seconds[index]}};
    result["relevance_score"] = scores[index];
  }
  return results;
}

} // namespace

std::span<const RankingField> rankingFields() { return kFields; }

std::vector<std::size_t> byRelevance(std::span<const double> scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t index) {
    return std::pair(-scores[index], index);
  });
  return order;
}

std::variant<RankingRequest, ApiError>
parseRankingRequest(std::string_view body, Endpoint endpoint) {
  auto root = parseBody(body);
  if (const auto *error = std::get_if<ApiError>(&root))
    return *error;
  RankingRequest request;
  if (Problem found = readFields(rankingFields(), endpoint,
                                 std::get<JsonValue>(root), request))
    return *found;
  const bool ranks = endpoint == Endpoint::rerank;
  if (request.firsts.empty())
    return problem(ranks ? "query" : "text_1", "{} is missing",
                   ranks ? "query" : "text_1");
  if (request.seconds.empty())
    return problem(ranks ? "documents" : "text_2", "{} is missing",
                   ranks ? "documents" : "text_2");
  if (request.firsts.size() != 1 &&
      request.firsts.size() != request.seconds.size())
    return problem("text_1",
                   "text_1 has {} strings and text_2 has {}; give one, or as "
                   "many",
                   request.firsts.size(), request.seconds.size());
  return request;
}

std::string rankingAnswer(Endpoint endpoint, const RankingRequest &request,
                          std::string_view model,
                          std::span<const double> scores, int64_t tokens,
                          const std::string &id) {
  Json answer;
  if (endpoint == Endpoint::rerank)
    answer = {{"id", id},
              {"model", model},
              {"results", rerankResults(request, scores)}};
  else {
    Json data = Json::array();
    for (std::size_t i = 0; i < scores.size(); ++i)
      data.push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
    answer = {{"id", id},
              {"object", "list"},
              {"created", int64_t(std::time(nullptr))},
              {"model", model},
              {"data", std::move(data)}};
  }
  answer["usage"] = {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  // A folder's name may not be UTF-8.
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace tessera::serve
