#include "runtime/train/Manifest.h"
#include "runtime/data/ShallowJson.h"
#include "runtime/support/Hash.h"

#include <charconv>

namespace tessera {
namespace {

using nlohmann::json;

constexpr const char *kFormat = "tessera-checkpoint";
constexpr unsigned kVersion = 1;
constexpr const char *kHashKey = "manifest_xxh3_64";

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

/// Keys come out sorted, so equal manifests are equal text.
std::string dump(const json &value) {
  return value.dump(1, ' ', false, json::error_handler_t::replace);
}

uint64_t hashOf(const std::string &text) {
  return hash64(std::as_bytes(std::span(text.data(), text.size())));
}

/// Reads fields of one object; the first that is missing or of another type is
/// remembered, and the caller asks once at the end.
class Fields {
public:
  explicit Fields(const json &object) : object(object) {}
  uint64_t number(const char *key) {
    const json *value = find(key);
    if (value && value->is_number_unsigned())
      return value->get<uint64_t>();
    return bad(key), 0;
  }
  int64_t integer(const char *key) {
    const json *value = find(key);
    if (value && value->is_number_integer())
      return value->get<int64_t>();
    return bad(key), 0;
  }
  std::string text(const char *key) {
    const json *value = find(key);
    if (value && value->is_string())
      return value->get<std::string>();
    return bad(key), std::string();
  }
  uint64_t hash(const char *key) {
    std::string digits = text(key);
    uint64_t value = 0;
    auto [end, code] = std::from_chars(
        digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 16 || code != std::errc() ||
        end != digits.data() + digits.size())
      bad(key);
    return value;
  }
  const json &list(const char *key) {
    static const json empty = json::array();
    const json *value = find(key);
    if (value && value->is_array())
      return *value;
    return bad(key), empty;
  }
  const std::string &missing() const { return wrong; }

private:
  const json *find(const char *key) {
    if (!object.is_object())
      return nullptr;
    auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }
  void bad(const char *key) {
    if (wrong.empty())
      wrong = key;
  }
  const json &object;
  std::string wrong;
};

bool isPlainName(const std::string &name) {
  return !name.empty() && name.front() != '.' && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

} // namespace

std::string printManifest(const CheckpointManifest &manifest) {
  json files = json::array();
  for (const CheckpointFile &file : manifest.files)
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"xxh3_64", hex(file.hash)}});
  json object = {{"format", kFormat},
                 {"version", kVersion},
                 {"step", manifest.position.step},
                 {"tokens", manifest.position.tokens},
                 {"data_cursor", manifest.position.dataCursor},
                 {"seed", manifest.position.seed},
                 {"program_hash", manifest.programHash},
                 {"compiler_version", manifest.compilerVersion},
                 {"model_config", manifest.modelConfig},
                 {"recipe", manifest.recipe},
                 {"files", std::move(files)}};
  object[kHashKey] = hex(hashOf(dump(object)));
  return dump(object) + "\n";
}

StatusOr<CheckpointManifest> parseManifest(std::string_view text,
                                           const std::string &where) {
  json object = parseShallowJson(text);
  if (!object.is_object())
    return Status::error("'{}' is not a json object; it is torn or not a "
                         "manifest",
                         where);
  Fields fields(object);
  uint64_t hash = fields.hash(kHashKey);
  if (!fields.missing().empty())
    return Status::error("'{}' has no hash of itself in '{}'", where, kHashKey);
  object.erase(kHashKey);
  if (hashOf(dump(object)) != hash)
    return Status::error("'{}' does not match its own hash; it was damaged or "
                         "edited",
                         where);
  if (fields.text("format") != kFormat || fields.number("version") != kVersion)
    return Status::error("'{}' is not a {} of version {}", where, kFormat,
                         kVersion);
  CheckpointManifest manifest;
  manifest.position.step = fields.number("step");
  manifest.position.tokens = fields.number("tokens");
  manifest.position.dataCursor = fields.number("data_cursor");
  manifest.position.seed = fields.integer("seed");
  manifest.programHash = fields.text("program_hash");
  manifest.compilerVersion = fields.text("compiler_version");
  manifest.modelConfig = fields.text("model_config");
  manifest.recipe = fields.text("recipe");
  for (const json &each : fields.list("files")) {
    Fields file(each);
    manifest.files.push_back(
        {file.text("name"), file.number("bytes"), file.hash("xxh3_64")});
    if (!file.missing().empty() || !isPlainName(manifest.files.back().name))
      return Status::error("'{}': files[{}] needs a plain name, bytes and "
                           "xxh3_64",
                           where, manifest.files.size() - 1);
  }
  if (!fields.missing().empty())
    return Status::error("'{}': key '{}' is missing or of the wrong type",
                         where, fields.missing());
  return manifest;
}

} // namespace tessera
