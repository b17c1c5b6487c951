// Reading the keys of an index.json that a program of ours wrote.
#pragma once
#include "runtime/data/Json.h"

namespace tessera {

/// Reads the keys of one JSON object; the first failure sticks in `status`.
class IndexFields {
public:
  /// `where` begins errors and `advice` ends them.
  IndexFields(const JsonValue &object, std::string where, std::string advice)
      : object(object), where(std::move(where)), advice(std::move(advice)) {}

  template <typename T> T get(std::string_view key, const char *kind) {
    T value{};
    if (status.ok() && !object[key].get(value))
      fail(key, fmt::format("must be {}", kind));
    return value;
  }
  uint64_t integer(std::string_view key) {
    return get<uint64_t>(key, "an integer that is not negative");
  }
  double number(std::string_view key) { return get<double>(key, "a number"); }
  std::string text(std::string_view key) {
    return std::string(get<std::string_view>(key, "a string"));
  }
  /// 16 hexadecimal digits.
  uint64_t hash(std::string_view key);
  /// The name of a file that stays in the folder it is joined to.
  std::string fileName(std::string_view key);
  void fail(std::string_view key, std::string_view what) {
    if (status.ok())
      status = Status::error("{}: \"{}\" {}; {}", where, key, what, advice);
  }
  Status status;

private:
  const JsonValue &object;
  std::string where, advice;
};

/// A name that stays in the folder it is joined to.
bool isPlainName(std::string_view name);

} // namespace tessera
