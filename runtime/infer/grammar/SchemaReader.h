// Reads the schemas of JsonSchema.h.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/infer/grammar/StringPattern.h"

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::grammar {

/// Whether the object has a member of that name, null or not.
bool has(const JsonValue &schema, std::string_view name);

/// A schema, and its location.
struct SchemaPlace {
  const JsonValue &schema;
  std::string path; ///< "#/properties/a"
};

/// Reads schemas into rules of a grammar; the schema and the grammar must
/// outlive it.
class SchemaReader {
public:
  SchemaReader(const JsonValue &root, Grammar &grammar)
      : root(root), grammar(grammar), json(grammar), patterns(grammar, json) {}

  /// Adds the schema and all rules that it needs; returns the node after it.
  StatusOr<uint32_t> addTo(uint32_t from);

private:
  using Rule = StatusOr<uint32_t>;

  /// The rule of a schema, which is defined later, so schemas may refer to
  /// themselves and the reader does not recurse into them.
  Rule ruleOf(const SchemaPlace &place);

  Status define(const SchemaPlace &place, uint32_t rule);
  Status checkKeywords(const SchemaPlace &place) const;
  Status checkList(const SchemaPlace &place, std::string_view keyword) const;
  Status defineTypes(const SchemaPlace &place, uint32_t from, uint32_t to);
  Status addAlternatives(const SchemaPlace &place, std::string_view keyword,
                         uint32_t from, uint32_t to);
  uint32_t addLiteral(const JsonValue &value, uint32_t from);
  Status addLiterals(const SchemaPlace &place, uint32_t from, uint32_t to);
  Status addType(const SchemaPlace &place, std::string_view type, uint32_t from,
                 uint32_t to);
  Status addInteger(const SchemaPlace &place, uint32_t from, uint32_t to);
  Status addNumber(const SchemaPlace &place, uint32_t from, uint32_t to);
  Status addString(const SchemaPlace &place, uint32_t from, uint32_t to);
  Status addPattern(const SchemaPlace &place, uint32_t from, uint32_t to);
  Status addArray(const SchemaPlace &place, uint32_t from, uint32_t to);
  Status addObject(const SchemaPlace &place, uint32_t from, uint32_t to);
  StatusOr<uint32_t> referred(const SchemaPlace &place,
                              std::string_view pointer);
  StatusOr<std::optional<uint64_t>> count(const SchemaPlace &place,
                                          std::string_view keyword) const;
  Rule ruleOfRest(const SchemaPlace &place, std::string_view keyword,
                  bool &allowed);

  template <typename... Args>
  static Status problem(const SchemaPlace &place,
                        fmt::format_string<Args...> format, Args &&...args) {
    return Status::error("{}: {}", place.path,
                         fmt::format(format, std::forward<Args>(args)...));
  }

  struct Pending {
    const JsonValue *schema;
    std::string path;
    uint32_t rule;
  };

  const JsonValue &root;
  Grammar &grammar;
  JsonText json;
  StringPattern patterns;
  std::unordered_map<const JsonValue *, uint32_t> rules;
  std::vector<Pending> pending;
};

} // namespace tessera::grammar
