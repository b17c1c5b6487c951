// The values of chat templates: Python's, as far as templates use them, with
// Python's rules for printing, equality and order.
#pragma once
#include "runtime/data/Json.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::chat {

/// Ends the rendering; never leaves this library.
struct TemplateError {
  std::string message;
};

class Value;
struct Dict;
struct Function;
using List = std::vector<Value>;

/// Copies are cheap: strings and containers are shared, and immutable except
/// namespaces.
class Value {
public:
  enum class Kind : uint8_t {
    Undefined,
    None,
    Bool,
    Int,
    Float,
    String,
    List,
    Tuple,
    Dict,
    Namespace,
    Function
  };

  Value() = default; // undefined
  Value(bool value) : kindOf(Kind::Bool), data(value) {}
  Value(int64_t value) : kindOf(Kind::Int), data(value) {}
  Value(double value) : kindOf(Kind::Float), data(value) {}
  Value(std::string text)
      : kindOf(Kind::String),
        data(std::make_shared<const std::string>(std::move(text))) {}
  Value(const char *) = delete; // would be a bool
  // These throw if values would be nested more than maxValueDepth deep, so that
  // traversal and destruction need no deep stack. Only variables may hold a
  // namespace: one within itself would never be freed.
  Value(List list, Kind kind = Kind::List);
  Value(std::shared_ptr<Dict> dict, Kind kind = Kind::Dict);
  Value(std::shared_ptr<const Function> function);
  static Value none() {
    Value value;
    value.kindOf = Kind::None;
    return value;
  }
  /// An undefined value that says in errors what it is.
  static Value undefined(std::string name) {
    Value value{std::move(name)};
    value.kindOf = Kind::Undefined;
    return value;
  }
  /// The value of parsed JSON.
  static Value fromJson(const JsonValue &json);

  Kind kind() const { return kindOf; }
  bool is(Kind kind) const { return kindOf == kind; }
  bool isNumber() const {
    return is(Kind::Int) || is(Kind::Float) || is(Kind::Bool);
  }
  bool isList() const { return is(Kind::List) || is(Kind::Tuple); }
  // Only for values of that kind.
  bool boolean() const { return std::get<bool>(data); }
  int64_t integer() const;
  double number() const;
  const std::string &text() const {
    return *std::get<std::shared_ptr<const std::string>>(data);
  }
  const List &list() const {
    return *std::get<std::shared_ptr<const List>>(data);
  }
  Dict &dict() const { return *std::get<std::shared_ptr<Dict>>(data); }
  const Function &function() const {
    return *std::get<std::shared_ptr<const Function>>(data);
  }

  /// About as many bytes as the value would take without sharing: the cost of
  /// traversing it. Lists that contain lists several times may have a weight
  /// beyond all memory.
  uint64_t weight() const;
  size_t depth() const { return depthOf; }
  bool truthy() const;
  /// "'x' is undefined", for an undefined value.
  [[noreturn]] void failUndefined() const;
  /// Python's name of the type, for errors.
  std::string_view typeName() const;
  bool operator==(const Value &other) const;

private:
  void include(const Value &element);
  Kind kindOf = Kind::Undefined;
  uint16_t depthOf = 0;     ///< of nested containers
  uint64_t containedOf = 0; ///< weight of the contents
  std::variant<std::monostate, bool, int64_t, double,
               std::shared_ptr<const std::string>, std::shared_ptr<const List>,
               std::shared_ptr<Dict>, std::shared_ptr<const Function>>
      data;
};

/// Members in insertion order; names are strings.
struct Dict {
  std::vector<std::pair<std::string, Value>> members;
  const Value *find(const std::string &name) const;
  void set(const std::string &name, Value value);

private:
  std::unordered_map<std::string, size_t> indices;
};

/// Less than zero, zero or more: the order of numbers, strings and lists.
/// Throws where Python does.
int compare(const Value &left, const Value &right);

/// Limit of nested containers.
inline constexpr size_t maxValueDepth = 300;

/// str(value) and repr(value).
std::string toText(const Value &value);
std::string toRepr(const Value &value);

/// json.dumps(value, …), as transformers offers it to templates: characters are
/// not escaped unless `ascii`.
struct JsonStyle {
  bool ascii = false;
  int64_t indent = -1; // below 0: on one line
  bool sortKeys = false;
  std::string itemSeparator = ", ", keySeparator = ": ";
};
std::string toJson(const Value &value, const JsonStyle &style);

/// Bytes of a string in a list besides its contents.
inline constexpr size_t perText = 128;
/// The number of code points of valid UTF-8.
size_t characters(std::string_view text);
/// The code points of valid UTF-8.
std::u32string codePoints(std::string_view text);
std::string fromCodePoints(std::u32string_view points);

} // namespace tessera::chat
