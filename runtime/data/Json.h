// JSON that is read once and trusted in nothing: of any size, with as many
// members as the file has. (ShallowJson.h is for small files.)
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

/// A value of a document; the document owns all strings.
class JsonValue {
public:
  struct Member;
  using Array = std::vector<JsonValue>;
  using Object = std::vector<Member>;

  /// Strict JSON in UTF-8, nested at most kMaxDepth deep. `where` begins
  /// errors.
  static StatusOr<JsonValue> parse(std::string_view text,
                                   std::string_view where);
  static constexpr std::size_t kMaxDepth = 256;

  /// Values that are made rather than parsed; the name says which.
  static JsonValue boolean(bool value);
  static JsonValue string(std::string value);
  static JsonValue array(Array elements);
  static JsonValue object(Object members);

  bool isObject() const { return std::holds_alternative<Object>(data); }
  bool isArray() const { return std::holds_alternative<Array>(data); }
  /// As is a member that an object does not have.
  bool isNull() const { return std::holds_alternative<std::nullptr_t>(data); }

  /// Sets `to` if the value is of that type, and says so. An integer is a
  /// double as well; a text lives as long as the document.
  bool get(bool &to) const { return copy(to); }
  bool get(std::uint64_t &to) const { return copy(to); }
  bool get(std::int64_t &to) const; ///< of an integer that fits
  bool get(double &to) const;
  bool get(std::string_view &to) const { return copy<std::string>(to); }

  /// Equal, if neither is an array or an object; 1 and 1.0 are not.
  bool isSameScalar(const JsonValue &other) const;

  /// Of an array in the order of the file; otherwise none.
  const Array &elements() const;
  /// Of an object in the order of the file, names that stand twice included;
  /// otherwise none.
  const Object &members() const;
  /// The first member of that name, null if there is none.
  const JsonValue &operator[](std::string_view name) const;

private:
  friend class JsonBuilder;
  template <typename Type, typename To> bool copy(To &to) const {
    const Type *held = std::get_if<Type>(&data);
    if (held)
      to = *held;
    return held;
  }
  template <typename To> bool copy(To &to) const { return copy<To, To>(to); }

  std::variant<std::nullptr_t, bool, std::uint64_t, std::int64_t, double,
               std::string, Array, Object>
      data;
};

struct JsonValue::Member {
  std::string name;
  JsonValue value;
};

} // namespace tessera
