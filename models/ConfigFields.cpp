// Bounded JSON parsing and typed access to its keys.
#include "models/ConfigFields.h"

#include <cmath>

#include "runtime/support/Text.h"

namespace tessera::models {
namespace {

constexpr size_t maxDepth = 32; // real configs nest 4 deep

/// Builds the document from parse events. nlohmann's event parser does not
/// recurse, so depth is bounded here before it is bounded by the stack.
class BoundedDocument final : public nlohmann::json_sax<Json> {
public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t &) override {
    return add(value);
  }
  bool string(string_t &value) override { return add(std::move(value)); }
  bool binary(binary_t &) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t &value) override {
    Frame &top = frames.back();
    if (top.value.contains(value)) {
      problem = fmt::format("duplicate key {}; keep one", quote(value));
      return false;
    }
    top.key = std::move(value);
    return true;
  }
  bool parse_error(size_t position, const std::string &,
                   const nlohmann::detail::exception &cause) override {
    byte = position;
    // "[json.exception...] parse error at line 1, column 2: <what>"
    std::string_view what = cause.what();
    if (size_t column = what.find("column "); column != what.npos)
      if (size_t colon = what.find(": ", column); colon != what.npos)
        what.remove_prefix(colon + 2);
    problem = fmt::format("is not valid JSON: {}", oneLine(what));
    return false;
  }

  Json root;
  std::string problem;
  size_t byte = 0; ///< 1-based offset of a syntax error; 0: not one

private:
  struct Frame {
    Json value;
    std::string key;
  };
  bool add(Json value) {
    if (frames.empty())
      root = std::move(value);
    else if (frames.back().value.is_array())
      frames.back().value.push_back(std::move(value));
    else
      frames.back().value[frames.back().key] = std::move(value);
    return true;
  }
  bool open(Json container) {
    if (frames.size() == maxDepth) {
      problem = fmt::format("nests deeper than {} levels", maxDepth);
      return false;
    }
    frames.push_back({std::move(container), {}});
    return true;
  }
  bool close() {
    Json done = std::move(frames.back().value);
    frames.pop_back();
    return add(std::move(done));
  }
  std::vector<Frame> frames;
};

/// "FILE:LINE:COLUMN" of a byte offset (1-based).
std::string position(const std::string &file, std::string_view text,
                     size_t byte) {
  std::string_view before = text.substr(0, byte > 0 ? byte - 1 : 0);
  size_t line = 1, column = 1;
  for (char each : before) {
    column = each == '\n' ? 1 : column + 1;
    line += each == '\n';
  }
  return fmt::format("{}:{}:{}", file, line, column);
}

} // namespace

/// Python writes infinities as bare words, which JSON does not have. Each
/// becomes a string of the same length, which no key takes for another value.
static std::string withoutBareInfinities(std::string_view text) {
  constexpr std::string_view word = "Infinity", string = "\"\\u221e\"";
  static_assert(word.size() == string.size());
  std::string result(text);
  bool isString = false;
  for (size_t at = 0; at < result.size(); ++at) {
    if (result[at] == '"')
      isString = !isString;
    else if (isString && result[at] == '\\')
      ++at;
    else if (!isString && std::string_view(result).substr(at).starts_with(word))
      result.replace(at, word.size(), string), at += word.size() - 1;
  }
  return result;
}

static StatusOr<Json> parseDocument(std::string_view text,
                                    const std::string &file) {
  BoundedDocument document;
  if (!Json::sax_parse(withoutBareInfinities(text), &document)) {
    std::string where =
        document.byte > 0 ? position(file, text, document.byte) : file;
    return Status::error("{}: {}", where, document.problem);
  }
  return std::move(document.root);
}

StatusOr<Json> parseConfigObject(std::string_view text,
                                 const std::string &file) {
  StatusOr<Json> root = parseDocument(text, file);
  if (root.ok() && !root->is_object())
    return Status::error("{}: is {}, expected a JSON object {{...}}", file,
                         shown(*root));
  return root;
}

StatusOr<Json> parseConfigList(std::string_view text, const std::string &file) {
  StatusOr<Json> root = parseDocument(text, file);
  if (root.ok() && !root->is_array())
    return Status::error("{}: is {}, expected a JSON list [...]", file,
                         shown(*root));
  return root;
}

std::string shown(const Json &value) {
  if (value.is_object() || value.is_array())
    return fmt::format("a {} of {}", value.is_object() ? "section" : "list",
                       value.size());
  if (value.is_string())
    return quote(value.get_ref<const std::string &>());
  return value.dump();
}

ConfigFields::ConfigFields(const Json &object, std::string file,
                           std::string prefix)
    : object(object), fileName(std::move(file)), prefix(std::move(prefix)) {}

void ConfigFields::fail(std::string_view key, const std::string &what) {
  if (error.ok())
    error = Status::error("{}: key {}: {}", fileName,
                          quote(prefix + std::string(key)), what);
}

void ConfigFields::adopt(const Status &other) {
  if (error.ok())
    error = other;
}

void ConfigFields::failMissing(Key key) {
  if (error.ok())
    error = Status::error("{}: key {} is missing; add it", fileName,
                          quote(prefix + std::string(key.name)));
}

const Json *ConfigFields::find(Key key) {
  const Json *found = nullptr;
  for (std::string_view name : {key.name, key.other}) {
    if (name.empty())
      continue;
    understood.emplace(name);
    auto it = object.find(name);
    if (it == object.end())
      continue;
    if (it->is_null())
      continue;
    if (found && *found != *it) {
      fail(name, fmt::format("{} conflicts with {} = {}; keep one of the two",
                             shown(*it), quote(key.name), shown(*found)));
      return nullptr;
    }
    found = &*it;
  }
  return found;
}

std::optional<int64_t> ConfigFields::integer(const Json &value,
                                             std::string_view key,
                                             int64_t least, int64_t most) {
  if (!value.is_number_integer()) {
    fail(key, fmt::format("must be an integer, got {}", shown(value)));
    return {};
  }
  bool huge = value.is_number_unsigned() &&
              value.get<uint64_t>() > static_cast<uint64_t>(most);
  if (huge || value.get<int64_t>() < least || value.get<int64_t>() > most) {
    fail(key, fmt::format("must be between {} and {}, got {}", least, most,
                          shown(value)));
    return {};
  }
  return value.get<int64_t>();
}

std::optional<double> ConfigFields::real(const Json &value,
                                         std::string_view key, double least,
                                         double most) {
  if (!value.is_number()) {
    fail(key, fmt::format("must be a number, got {}", shown(value)));
    return {};
  }
  double number = value.get<double>();
  if (!(number >= least && number <= most)) {
    fail(key, fmt::format("must be between {} and {}, got {}", least, most,
                          shown(value)));
    return {};
  }
  return number;
}

int64_t ConfigFields::size(Key key, int64_t most,
                           std::optional<int64_t> fallback) {
  const Json *value = find(key);
  if (!value) {
    if (!fallback)
      failMissing(key);
    return fallback.value_or(1);
  }
  return integer(*value, key.name, 1, most).value_or(fallback.value_or(1));
}

double ConfigFields::number(Key key, double least, double most,
                            std::optional<double> fallback) {
  std::optional<double> value = maybeNumber(key, least, most);
  if (!value && !fallback)
    failMissing(key);
  return value.value_or(fallback.value_or(least));
}

std::optional<double> ConfigFields::maybeNumber(Key key, double least,
                                                double most) {
  const Json *value = find(key);
  return value ? real(*value, key.name, least, most) : std::nullopt;
}

bool ConfigFields::flag(Key key, bool fallback) {
  const Json *value = find(key);
  if (!value)
    return fallback;
  if (!value->is_boolean()) {
    fail(key.name, fmt::format("must be true or false, got {}", shown(*value)));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigFields::text(Key key, std::string fallback) {
  const Json *value = find(key);
  if (!value)
    return fallback;
  if (!value->is_string()) {
    fail(key.name, fmt::format("must be a string, got {}", shown(*value)));
    return fallback;
  }
  return value->get<std::string>();
}

std::vector<double> ConfigFields::numbers(Key key, double least, double most) {
  std::vector<double> result;
  const Json *value = find(key);
  if (!value) {
    failMissing(key);
    return result;
  }
  if (!value->is_array())
    fail(key.name,
         fmt::format("must be a list of numbers, got {}", shown(*value)));
  else
    for (const Json &each : *value)
      result.push_back(real(each, key.name, least, most).value_or(least));
  return result;
}

std::vector<int64_t> ConfigFields::integers(Key key, bool list) {
  constexpr int64_t most = INT32_MAX;
  std::vector<int64_t> result;
  const Json *value = find(key);
  if (!value)
    return result;
  if (list && value->is_array()) {
    for (const Json &each : *value)
      result.push_back(integer(each, key.name, -1, most).value_or(0));
  } else if (auto single = integer(*value, key.name, -1, most)) {
    result.push_back(*single);
  }
  return result;
}

std::vector<std::string> ConfigFields::strings(Key key) {
  std::vector<std::string> result;
  const Json *value = find(key);
  if (!value)
    return result;
  bool good = value->is_array();
  for (const Json &each : *value)
    good = good && each.is_string();
  if (!good)
    fail(key.name,
         fmt::format("must be a list of strings, got {}", shown(*value)));
  else
    result = value->get<std::vector<std::string>>();
  return result;
}

const Json *ConfigFields::section(Key key) {
  const Json *value = find(key);
  if (!value || value->is_object())
    return value;
  fail(key.name,
       fmt::format("must be a section {{...}} or null, got {}", shown(*value)));
  return nullptr;
}

void ConfigFields::ignore(std::span<const std::string_view> keys) {
  understood.insert(keys.begin(), keys.end());
}

void ConfigFields::requireNeutral(std::string_view key, const Json &neutral,
                                  std::string_view why) {
  const Json *value = find(key);
  if (value && *value != neutral)
    fail(key, fmt::format("{} is not supported: {}", shown(*value), why));
}

void ConfigFields::finish(std::string_view advice) {
  std::vector<std::string_view> known(understood.begin(), understood.end());
  for (const auto &[key, value] : object.items()) {
    if (value.is_null() || understood.contains(key))
      continue;
    std::string meant = suggestion(key, known);
    fail(key, fmt::format("is unknown{}",
                          meant.empty() ? std::string(advice) : meant));
    return;
  }
}

} // namespace tessera::models
