// The metadata of a GGUF file, read key by key. Errors name the key, and unread
// keys can be reported at the end.
#pragma once
#include "runtime/data/gguf/Gguf.h"
#include "runtime/support/Text.h"

#include <set>
#include <string>

namespace tessera::models {

/// The shortest decimal number that reads as this f32: 1e-5, as in the original
/// config.json, and not 9.99999974e-06.
double shortest(float value);

class GgufKeys {
public:
  explicit GgufKeys(const GgufFile &file) : file(file) {}

  /// Sets `to` and returns true if the key exists. A wrong type or a number
  /// above `most` is an error.
  bool get(const std::string &key, int64_t &to, int64_t most);
  bool get(const std::string &key, double &to);
  bool get(const std::string &key, bool &to);
  bool get(const std::string &key, std::string_view &to);
  /// A whole number, or an array with the same number for each layer.
  bool getUniform(const std::string &key, int64_t &to, int64_t most);
  /// The array; null, with an error, if it is not an array of such elements.
  const GgufValue *array(const std::string &key, GgufKind element);
  /// Null if absent.
  const GgufValue *find(const std::string &key);
  /// A required whole number.
  int64_t need(const std::string &key, int64_t most);

  template <typename... Args>
  void fail(std::string_view key, fmt::format_string<Args...> format,
            Args &&...args) {
    if (first.ok())
      first = Status::error("{}: key {}: {}", file.where(), quote(key),
                            fmt::format(format, std::forward<Args>(args)...));
  }
  /// An error for any unread key with this prefix.
  void refuseUnread(std::string_view prefix);
  /// The first error.
  const Status &status() const { return first; }
  bool ok() const { return first.ok(); }
  const GgufFile &of() const { return file; }

private:
  const GgufFile &file;
  std::set<std::string, std::less<>> read;
  Status first;
};

} // namespace tessera::models
