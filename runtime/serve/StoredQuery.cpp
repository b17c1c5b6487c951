#include "runtime/serve/StoredQuery.h"
#include "runtime/serve/Choice.h"

#include <algorithm>
#include <charconv>

namespace tessera::serve {
namespace {

Problem readNumber(const QueryField &field, const std::string &value,
                   int64_t &to) {
  const char *end = value.data() + value.size();
  auto [stop, code] = std::from_chars(value.data(), end, to);
  if (code != std::errc() || stop != end || to < int64_t(field.least) ||
      to > int64_t(field.most))
    return problem(field.name, "{} must be a whole number from {} to {}",
                   field.name, int64_t(field.least), int64_t(field.most));
  return std::nullopt;
}

Problem readTruth(const QueryField &field, const std::string &value, bool &to) {
  if (value != "true" && value != "false")
    return problem(field.name, "{} must be true or false", field.name);
  to = value == "true";
  return std::nullopt;
}

Problem readLimit(const QueryField &field, std::string_view,
                  const std::string &value, StoredQuery &query) {
  return readNumber(field, value, query.limit);
}

Problem readOrder(const QueryField &field, std::string_view,
                  const std::string &value, StoredQuery &query) {
  if (value != "asc" && value != "desc")
    return problem(field.name, "order must be asc or desc");
  query.ascending = value == "asc";
  return std::nullopt;
}

Problem readAfter(const QueryField &, std::string_view,
                  const std::string &value, StoredQuery &query) {
  query.after = value;
  return std::nullopt;
}

Problem readModel(const QueryField &, std::string_view,
                  const std::string &value, StoredQuery &query) {
  query.model = value;
  return std::nullopt;
}

Problem readMetadata(const QueryField &field, std::string_view inside,
                     const std::string &value, StoredQuery &query) {
  if (inside.empty() || query.metadata.size() == 16 ||
      charactersOf(inside) > 64 || charactersOf(value) > 512)
    return problem(field.name, "metadata must be metadata[NAME]=VALUE, at most "
                               "16, of 512 characters with names of 64");
  query.metadata.emplace_back(inside, value);
  return std::nullopt;
}

Problem readStream(const QueryField &field, std::string_view,
                   const std::string &value, StoredQuery &query) {
  return readTruth(field, value, query.stream);
}

Problem readObfuscation(const QueryField &field, std::string_view,
                        const std::string &value, StoredQuery &query) {
  return readTruth(field, value, query.obfuscate);
}

Problem readStart(const QueryField &field, std::string_view,
                  const std::string &value, StoredQuery &query) {
  return readNumber(field, value, query.startingAfter.emplace());
}

Problem readIncluded(const QueryField &field, std::string_view,
                     const std::string &value, StoredQuery &) {
  if (std::ranges::count(includables(), value) == 0)
    return problem(field.name, "include may be of {}",
                   fmt::join(includables(), ", "));
  return std::nullopt;
}

constexpr unsigned kPages =
                       bitOf(RouteId::listChats) | bitOf(RouteId::chatMessages),
                   kItems = bitOf(RouteId::inputItems),
                   kOne = bitOf(RouteId::response);

constexpr std::string_view kWhole = R"({"type": "integer"})",
                           kTruth = R"({"type": "boolean"})",
                           kText = R"({"type": "string"})";

constexpr QueryField kFields[] = {
    {"limit", kPages | kItems, readLimit, kWhole, 0, 100,
     "most items of a page; default: 20"},
    {"order", kPages | kItems, readOrder, R"({"enum": ["asc", "desc"]})", 0, 0,
     "by time; default: asc for chats and their messages, desc for input "
     "items"},
    {"after", kPages | kItems, readAfter, kText, 0, 0,
     "the id of the last item of the previous page"},
    {"model", bitOf(RouteId::listChats), readModel, kText},
    {"metadata", bitOf(RouteId::listChats), readMetadata,
     R"({"type": "object", "maxProperties": 16,
         "propertyNames": {"minLength": 1, "maxLength": 64},
         "additionalProperties": {"type": "string", "maxLength": 512}})",
     0, 0, "filters chats, each as metadata[NAME]=VALUE"},
    {"stream", kOne, readStream, kTruth, 0, 0,
     "streams the events of the response"},
    {"starting_after", kOne, readStart, kWhole, 0, 0x1p53,
     "the number of the last event to skip"},
    {"include_obfuscation", kOne, readObfuscation, kTruth},
    {"include", kOne | kItems, readIncluded, R"({"type": "array"})", 0, 0,
     "extends items of a type that no response has here"},
};

/// The part of a name in brackets: "a" of "metadata[a]", "" of "include[]".
bool isName(std::string_view asked, const QueryField &field,
            std::string_view &inside) {
  if (!asked.starts_with(field.name))
    return false;
  std::string_view rest = asked.substr(field.name.size());
  inside = {};
  if (rest.empty())
    return true;
  bool mayHave = field.name == "metadata" || rest == "[]";
  if (!mayHave || rest.size() < 2 || rest.front() != '[' || rest.back() != ']')
    return false;
  inside = rest.substr(1, rest.size() - 2);
  return true;
}

std::string decoded(std::string_view text) {
  std::string spaced(text);
  std::ranges::replace(spaced, '+', ' ');
  return percentDecoded(spaced);
}

} // namespace

std::span<const QueryField> queryFields() { return kFields; }

std::variant<StoredQuery, ApiError> parseQuery(RouteId route,
                                               std::string_view query) {
  StoredQuery to;
  while (!query.empty()) {
    std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(one.size() + 1, query.size()));
    if (one.empty())
      continue;
    std::size_t equals = std::min(one.find('='), one.size());
    std::string name = decoded(one.substr(0, equals));
    std::string value = decoded(one.substr(std::min(equals + 1, one.size())));
    std::string_view inside;
    auto found = std::ranges::find_if(kFields, [&](const QueryField &field) {
      return (field.routes & bitOf(route)) != 0 && isName(name, field, inside);
    });
    if (found == std::end(kFields))
      return problem(oneLine(name), "the parameter {} is not supported",
                     quote(name));
    if (Problem wrong = found->read(*found, inside, value, to))
      return *wrong;
  }
  return to;
}

} // namespace tessera::serve
