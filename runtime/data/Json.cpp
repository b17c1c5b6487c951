#include "runtime/data/Json.h"

#include <nlohmann/json.hpp>

namespace tessera {

/// What nlohmann's parser calls; it does not recurse. A function that returns
/// false ends it.
class JsonBuilder {
public:
  JsonValue root;
  std::string problem;

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string &) { return add(value); }
  bool string(std::string &value) { return add(std::move(value)); }
  bool binary(std::vector<std::uint8_t> &) { return false; } // JSON has none
  bool key(std::string &text) {
    name = std::move(text);
    return true;
  }
  bool start_object(std::size_t) { return open(JsonValue::Object()); }
  bool start_array(std::size_t) { return open(JsonValue::Array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool parse_error(std::size_t, const std::string &,
                   const nlohmann::json::exception &error) {
    // "[json.exception…] what and where; last read: …"
    const std::string_view text = error.what();
    const std::size_t prefix = text.find("] ");
    problem = text.substr(prefix == text.npos ? 0 : prefix + 2);
    problem.resize(std::min(problem.find("; last read"), problem.size()));
    return false;
  }

private:
  template <typename T> bool add(T value) {
    place().data = std::move(value);
    return true;
  }
  /// Where the next value goes.
  JsonValue &place() {
    if (parents.empty())
      return root;
    if (auto *array = std::get_if<JsonValue::Array>(&parents.back()->data))
      return array->emplace_back();
    auto &object = std::get<JsonValue::Object>(parents.back()->data);
    object.push_back({std::move(name), JsonValue()});
    return object.back().value;
  }
  template <typename T> bool open(T container) {
    if (parents.size() == JsonValue::kMaxDepth) {
      problem = fmt::format("nested deeper than {}", JsonValue::kMaxDepth);
      return false;
    }
    JsonValue &value = place();
    value.data = std::move(container);
    parents.push_back(&value);
    return true;
  }
  bool close() {
    parents.pop_back();
    return true;
  }

  /// Begun and not ended; each is the last value of the one before it, which
  /// does not move meanwhile.
  std::vector<JsonValue *> parents;
  std::string name; ///< of the next member
};

StatusOr<JsonValue> JsonValue::parse(std::string_view text,
                                     std::string_view where) {
  JsonBuilder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
    return Status::error("{}: not valid JSON: {}", where, builder.problem);
  return std::move(builder.root);
}

JsonValue JsonValue::boolean(bool value) {
  JsonValue made;
  made.data = value;
  return made;
}

JsonValue JsonValue::string(std::string value) {
  JsonValue made;
  made.data = std::move(value);
  return made;
}

JsonValue JsonValue::array(Array elements) {
  JsonValue made;
  made.data = std::move(elements);
  return made;
}

JsonValue JsonValue::object(Object members) {
  JsonValue made;
  made.data = std::move(members);
  return made;
}

bool JsonValue::isSameScalar(const JsonValue &other) const {
  return std::visit(
      [&](const auto &value) {
        using Type = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Type, Array> ||
                      std::is_same_v<Type, Object>) {
          return false;
        } else {
          const auto *held = std::get_if<Type>(&other.data);
          return held && *held == value;
        }
      },
      data);
}

bool JsonValue::get(double &to) const {
  return copy(to) || copy<std::uint64_t>(to) || copy<std::int64_t>(to);
}

bool JsonValue::get(std::int64_t &to) const {
  std::uint64_t natural = 0;
  if (!get(natural))
    return copy(to); // the builder makes these of negative numbers only
  to = static_cast<std::int64_t>(natural);
  return natural <= std::uint64_t{INT64_MAX};
}

const JsonValue::Array &JsonValue::elements() const {
  static const Array none;
  const Array *array = std::get_if<Array>(&data);
  return array ? *array : none;
}

const JsonValue::Object &JsonValue::members() const {
  static const Object none;
  const Object *object = std::get_if<Object>(&data);
  return object ? *object : none;
}

const JsonValue &JsonValue::operator[](std::string_view name) const {
  static const JsonValue absent;
  for (const Member &member : members())
    if (member.name == name)
      return member.value;
  return absent;
}

} // namespace tessera
