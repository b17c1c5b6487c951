// The metadata of a GGUF file read key by key: errors name the key, and in the
// end it is known which keys nobody asked for.
#pragma once
#include "runtime/data/gguf/Gguf.h"
#include "runtime/support/Text.h"

#include <set>
#include <string>

namespace tessera::models {

/// The shortest decimal number that reads as this f32: 1e-5 and not
/// 9.99999974e-06, which is what a config.json had before it was one.
double shortest(float value);

class GgufKeys {
public:
  explicit GgufKeys(const GgufFile &file) : file(file) {}

  /// Sets `to` and says so if the key is there; of the wrong kind, it is an
  /// error, and so is a number above `most`.
  bool get(const std::string &key, int64_t &to, int64_t most);
  bool get(const std::string &key, double &to);
  bool get(const std::string &key, bool &to);
  bool get(const std::string &key, std::string_view &to);
  /// A whole number, or an array of one for each layer, if all are the same.
  bool getUniform(const std::string &key, int64_t &to, int64_t most);
  /// The array; null, and an error if it is no array of such elements.
  const GgufValue *array(const std::string &key, GgufKind element);
  /// Null if it is not there.
  const GgufValue *find(const std::string &key);
  /// A whole number that must be there.
  int64_t need(const std::string &key, int64_t most);

  template <typename... Args>
  void fail(std::string_view key, fmt::format_string<Args...> format,
            Args &&...args) {
    if (first.ok())
      first = Status::error("{}: key {}: {}", file.where(), quote(key),
                            fmt::format(format, std::forward<Args>(args)...));
  }
  /// An error if a key with this beginning was not asked for.
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
