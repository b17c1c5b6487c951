// What a chat template computes with: Python's values, as far as templates use
// them, with Python's rules for printing, equality and order.
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

/// Ends the rendering; never leaves this folder.
struct TemplateError {
  std::string message;
};

class Value;
struct Dict;
struct Function;
using List = std::vector<Value>;

/// Copies are cheap: strings and containers are shared, and constant but for
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
  // These throw where values would be nested more than maxValueDepth deep, so
  // that nothing that walks them, not even their end, needs a deep stack.
  // Namespaces stand in variables alone: one within itself would never end.
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

  /// About as many bytes as the value would take if nothing in it were shared:
  /// what walking it costs. Lists that have lists several times may have a
  /// weight beyond all memory.
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
  uint16_t depthOf = 0;     ///< containers within containers
  uint64_t containedOf = 0; ///< weight of what is in it
  std::variant<std::monostate, bool, int64_t, double,
               std::shared_ptr<const std::string>, std::shared_ptr<const List>,
               std::shared_ptr<Dict>, std::shared_ptr<const Function>>
      data;
};

/// Members in the order in which they came; names are strings.
struct Dict {
  std::vector<std::pair<std::string, Value>> members;
  const Value *find(const std::string &name) const;
  void set(const std::string &name, Value value);

private:
  std::unordered_map<std::string, size_t> places;
};

/// Less than zero, zero or more: the order of numbers, strings and lists.
/// Throws where Python has none.
int compare(const Value &left, const Value &right);

/// How deep containers may be within each other.
inline constexpr size_t maxValueDepth = 300;

/// str(value) and repr(value).
std::string toText(const Value &value);
std::string toRepr(const Value &value);

/// json.dumps(value, …), as transformers gives it to templates: characters
/// stay as they are unless `ascii`.
struct JsonStyle {
  bool ascii = false;
  int64_t indent = -1; // below 0: on one line
  bool sortKeys = false;
  std::string itemSeparator = ", ", keySeparator = ": ";
};
std::string toJson(const Value &value, const JsonStyle &style);

/// What a text in a list takes besides its bytes.
inline constexpr size_t perText = 128;
/// How many code points valid UTF-8 has.
size_t characters(std::string_view text);
/// The code points of valid UTF-8.
std::u32string codePoints(std::string_view text);
std::string fromCodePoints(std::u32string_view points);

} // namespace tessera::chat
