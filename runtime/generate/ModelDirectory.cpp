#include "runtime/generate/ModelDirectory.h"
#include "runtime/data/Json.h"
#include "runtime/support/Text.h"
#include "runtime/train/RunDirectory.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace tessera {
namespace {

constexpr int64_t kMostConfigBytes = 1 << 20;

/// An object of a file, read key by key.
class Fields {
public:
  Fields(const JsonValue &object, std::string file)
      : object(object), file(std::move(file)) {}

  template <typename... Args>
  Status error(std::string_view key, fmt::format_string<Args...> format,
               Args &&...args) const {
    return Status::error("{}: key '{}': {}", file, key,
                         fmt::format(format, std::forward<Args>(args)...));
  }

  /// Null counts as absent.
  Status number(std::string_view key, std::optional<float> &to) const {
    double value = 0;
    if (object[key].isNull())
      return Status::success();
    if (!object[key].get(value) || !std::isfinite(value))
      return error(key, "must be a number");
    to = static_cast<float>(value);
    return Status::success();
  }

  template <typename To>
  Status count(std::string_view key, std::optional<To> &to) const {
    uint64_t value = 0;
    if (object[key].isNull())
      return Status::success();
    if (!object[key].get(value) || value > INT32_MAX)
      return error(key, "must be a whole number from 0 to {}", INT32_MAX);
    to = static_cast<To>(value);
    return Status::success();
  }

  /// One token or a list of them.
  Status tokens(std::string_view key, std::vector<int32_t> &to) const {
    const JsonValue &value = object[key];
    if (value.isNull())
      return Status::success();
    const JsonValue *all = &value;
    std::size_t size = 1;
    if (value.isArray()) {
      all = value.elements().data();
      size = value.elements().size();
    }
    for (std::size_t i = 0; i < size; ++i) {
      uint64_t token = 0;
      if (!all[i].get(token) || token > INT32_MAX)
        return error(key, "must be a token or a list of tokens");
      to.push_back(static_cast<int32_t>(token));
    }
    return Status::success();
  }

  const JsonValue &object;
  const std::string file;
};

StatusOr<JsonValue> parseObject(std::string_view text,
                                const std::string &where) {
  StatusOr<JsonValue> value = JsonValue::parse(text, where);
  if (value.ok() && !value->isObject())
    return Status::error("{}: must be a JSON object", where);
  return value;
}

/// Other options of the reference's generation_config.json, with the values
/// that disable them.
struct OtherKey {
  std::string_view name;
  double neutral;
};
constexpr OtherKey kOtherKeys[] = {{"num_beams", 1},
                                   {"num_beam_groups", 1},
                                   {"penalty_alpha", 0},
                                   {"typical_p", 1},
                                   {"epsilon_cutoff", 0},
                                   {"eta_cutoff", 0},
                                   {"top_h", 0},
                                   {"no_repeat_ngram_size", 0},
                                   {"min_length", 0},
                                   {"min_new_tokens", 0},
                                   {"guidance_scale", 1},
                                   {"bad_words_ids", 0},
                                   {"force_words_ids", 0},
                                   {"suppress_tokens", 0},
                                   {"sequence_bias", 0},
                                   {"forced_bos_token_id", 0},
                                   {"stop_strings", 0},
                                   {"begin_suppress_tokens", 0},
                                   {"watermarking_config", 0},
                                   {"exponential_decay_length_penalty", 0},
                                   {"forced_eos_token_id", 0}};

bool asksForNothing(const JsonValue &value, double neutral) {
  double number = 0;
  bool flag = false;
  return value.isNull() || (value.get(number) && number == neutral) ||
         (value.get(flag) && !flag) ||
         (value.isArray() && value.elements().empty());
}

} // namespace

//===--- where it is ------------------------------------------------------===//

namespace fs = std::filesystem;

// A run has a config.json, too, and so has each of its checkpoints.
static bool isModelDirectory(const fs::path &path) {
  std::error_code code;
  return fs::exists(path / "config.json", code) &&
         !fs::exists(path / kProgramFile, code) &&
         !fs::exists(path / "manifest.json", code);
}

/// Where the hub's client caches models; empty if no variable says.
static fs::path hubCache() {
  auto variable = [](const char *name) -> fs::path {
    const char *value = std::getenv(name);
    return value ? value : "";
  };
  if (fs::path hub = variable("HF_HUB_CACHE"); !hub.empty())
    return hub;
  if (fs::path home = variable("HF_HOME"); !home.empty())
    return home / "hub";
  if (fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache / "huggingface/hub";
  fs::path home = variable("HOME");
  return home.empty() ? home : home / ".cache/huggingface/hub";
}

/// A single path component that does not leave its folder.
static bool isPlainName(std::string_view name) {
  return !name.empty() && name.front() != '.' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789._-") == name.npos;
}

std::optional<std::string> findModelDirectory(const std::string &place) {
  if (isModelDirectory(place))
    return place;
  const std::size_t slash = place.find('/');
  if (slash == place.npos || hubCache().empty())
    return std::nullopt;
  const std::string owner = place.substr(0, slash),
                    name = place.substr(slash + 1);
  if (!isPlainName(owner) || !isPlainName(name))
    return std::nullopt;
  const fs::path model =
      hubCache() / fmt::format("models--{}--{}", owner, name);
  constexpr int64_t mostBytes = 256;
  StatusOr<std::string> revision =
      readTextFile((model / "refs/main").string(), mostBytes);
  if (!revision.ok())
    return std::nullopt;
  const std::string commit =
      revision->substr(0, revision->find_last_not_of("\r\n") + 1);
  const fs::path found = model / "snapshots" / commit;
  if (!isPlainName(commit) || !isModelDirectory(found))
    return std::nullopt;
  return found.string();
}

//===--- what it says -----------------------------------------------------===//

StatusOr<GenerationConfig> loadGenerationConfig(const ModelFiles &files) {
  constexpr std::string_view name = "generation_config.json";
  if (!files.has(name))
    return GenerationConfig();
  StatusOr<std::string> text = files.read(name, kMostConfigBytes);
  if (!text.ok())
    return text.status();
  return parseGenerationConfig(*text, files.where(name));
}

StatusOr<GenerationConfig> parseGenerationConfig(std::string_view text,
                                                 const std::string &where) {
  StatusOr<JsonValue> file = parseObject(text, where);
  if (!file.ok())
    return file.status();
  GenerationConfig config;
  Fields fields(*file, where);
  TESSERA_RETURN_IF_ERROR(fields.number("temperature", config.temperature));
  TESSERA_RETURN_IF_ERROR(fields.count("top_k", config.topK));
  TESSERA_RETURN_IF_ERROR(fields.number("top_p", config.topP));
  TESSERA_RETURN_IF_ERROR(fields.number("min_p", config.minP));
  TESSERA_RETURN_IF_ERROR(
      fields.number("repetition_penalty", config.repetitionPenalty));
  TESSERA_RETURN_IF_ERROR(fields.count("max_new_tokens", config.maxTokens));
  TESSERA_RETURN_IF_ERROR(fields.tokens("eos_token_id", config.endTokens));
  const JsonValue &samples = (*file)["do_sample"];
  bool sampled = true;
  if (!samples.isNull() && !samples.get(sampled))
    return fields.error("do_sample", "must be true or false");
  if (!sampled)
    config.temperature = 0;
  for (const OtherKey &each : kOtherKeys)
    if (!asksForNothing((*file)[each.name], each.neutral))
      config.unused.emplace_back(each.name);
  return config;
}

StatusOr<std::vector<int32_t>> endTokensOf(const ModelFiles &files,
                                           const GenerationConfig &config) {
  if (!config.endTokens.empty())
    return config.endTokens;
  constexpr std::string_view name = "config.json";
  const std::string path = files.where(name);
  StatusOr<std::string> text = files.read(name, kMostConfigBytes);
  if (!text.ok())
    return text.status();
  StatusOr<JsonValue> file = parseObject(*text, path);
  if (!file.ok())
    return file.status();
  std::vector<int32_t> tokens;
  TESSERA_RETURN_IF_ERROR(Fields(*file, path).tokens("eos_token_id", tokens));
  return tokens;
}

} // namespace tessera
