// A JSON object that is read key by key and remembers which keys were read, so
// that no key that could change a model is ignored silently.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/support/Status.h"

namespace tessera::models {

using Json = nlohmann::json;

/// Parses `text` with its nesting bounded, strict UTF-8, no duplicate keys and
/// nothing but one object. Errors name `file` and, if known, line and column.
StatusOr<Json> parseConfigObject(std::string_view text,
                                 const std::string &file);
/// The same for exactly one list.
StatusOr<Json> parseConfigList(std::string_view text, const std::string &file);

/// A key and its alternative name, if the dialects differ. Both may be given if
/// they agree.
struct Key {
  std::string_view name;
  std::string_view other = {};
  Key(const char *name) : name(name) {}
  Key(std::string_view name) : name(name) {}
  Key(const char *name, const char *other) : name(name), other(other) {}
};

/// Typed, bounded access. The first error sticks and is what status() returns;
/// after it, getters return their fallback (sizes: 1), so that a reader needs
/// no check after each key. Null counts as absent.
class ConfigFields {
public:
  /// `object` must outlive this; `prefix` precedes keys in errors
  /// ("rope_scaling.").
  ConfigFields(const Json &object, std::string file, std::string prefix = "");

  const Status &status() const { return error; }
  bool ok() const { return error.ok(); }
  const std::string &file() const { return fileName; }

  /// Marks the key as understood; null if absent or null, or if two names of it
  /// disagree (an error).
  const Json *find(Key key);
  /// Whether the object has the key, even as null.
  bool written(std::string_view key) const { return object.contains(key); }

  /// An integer in [1, most]; required unless there is a fallback.
  int64_t size(Key key, int64_t most, std::optional<int64_t> fallback = {});
  /// A finite number in [least, most]; required unless there is a fallback.
  double number(Key key, double least, double most,
                std::optional<double> fallback = {});
  std::optional<double> maybeNumber(Key key, double least, double most);
  bool flag(Key key, bool fallback);
  std::string text(Key key, std::string fallback);
  std::vector<double> numbers(Key key, double least, double most);
  /// An integer or, if `list`, a list of integers; empty when absent.
  std::vector<int64_t> integers(Key key, bool list);
  std::vector<std::string> strings(Key key);
  /// A nested object, null when absent.
  const Json *section(Key key);

  /// Keys that cannot change the mathematics.
  void ignore(std::span<const std::string_view> keys);
  /// A key that is accepted only with its neutral value.
  void requireNeutral(std::string_view key, const Json &neutral,
                      std::string_view why);
  /// Rejects every key that was not read: "is unknown", with the closest known
  /// key or else `advice`.
  void finish(std::string_view advice);

  /// Records "FILE: key 'PREFIXkey': ..." unless an error is there already.
  void fail(std::string_view key, const std::string &what);
  void adopt(const Status &other);

private:
  std::optional<int64_t> integer(const Json &value, std::string_view key,
                                 int64_t least, int64_t most);
  std::optional<double> real(const Json &value, std::string_view key,
                             double least, double most);
  void failMissing(Key key);

  const Json &object;
  std::string fileName, prefix;
  std::set<std::string, std::less<>> understood;
  Status error;
};

/// A JSON value for an error message: one line, truncated.
std::string shown(const Json &value);

} // namespace tessera::models
