// Query parameters of the routes of stored answers: the list by which they are
// read and described.
#pragma once
#include "runtime/serve/ApiFields.h"
#include "runtime/serve/Routes.h"

namespace tessera::serve {

struct StoredQuery {
  int64_t limit = 20;
  std::optional<bool> ascending; ///< nothing: the route's default
  std::string after;             ///< an id
  std::string model;
  Metadata metadata;
  bool stream = false, obfuscate = false;
  std::optional<int64_t> startingAfter; ///< number of an event
};

struct QueryField {
  /// Reads a decoded value; `inside` is the part of the name in brackets.
  using Reader = Problem (*)(const QueryField &, std::string_view inside,
                             const std::string &value, StoredQuery &);
  std::string_view name;
  unsigned routes; ///< bits of RouteId
  Reader read;
  std::string_view schema;
  double least = 0, most = 0;
  std::string_view about = {};
};

inline constexpr unsigned bitOf(RouteId id) { return 1u << unsigned(id); }

std::span<const QueryField> queryFields();

/// An unknown parameter of the route is an error that names it.
std::variant<StoredQuery, ApiError> parseQuery(RouteId route,
                                               std::string_view query);

} // namespace tessera::serve
