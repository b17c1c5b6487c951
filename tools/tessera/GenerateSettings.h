// Settings of `tessera generate` and `tessera chat`, and the source of each: a
// flag takes precedence over the environment (TESSERA_TEMPERATURE and so on),
// then generation_config.json, then the default. A recipe configures programs,
// not sampling.
#pragma once
#include "compiler/api/OpenedModel.h"
#include "runtime/generate/Generate.h"
#include "runtime/generate/ModelDirectory.h"
#include "tools/tessera/CacheOptions.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace tessera {

class GenerateSettings {
public:
  /// Adds the options to `command`; they write into this object, which must not
  /// move. `words` are the arguments and must outlive it.
  void addTo(CLI::App &command, const std::vector<std::string> &words);

  /// Reads settings that were not given from a model directory, checks all
  /// settings and reports what was applied.
  Status takeAndSay(const GenerationConfig &config, const TextSink &note);
  /// The same without a report; a run has no such file.
  void take(const GenerationConfig &config);
  /// Changes a setting by the name of its option, such as "top-k". Errors: an
  /// unknown name, a value out of range.
  Status change(const std::string &name, const std::string &value);
  /// Names that change() accepts.
  std::vector<std::string_view> names() const;
  /// The model of `tessera COMMAND`, with a batch of one.
  ModelChoice choice(const std::string &command) const;
  /// "temperature 0.6 (generation_config.json), top-k 5 (given), defaults
  /// otherwise".
  std::string describe() const;
  /// A line for each setting, with its value and source.
  std::string list() const;

  std::string place; ///< a run or a model directory
  GenerateOptions options;
  std::string adapter;          ///< a directory, or empty
  std::string recipe;           ///< of inference programs
  std::vector<std::string> set; ///< overrides, "inference.context=512"
  std::string cache = "on";
  uint64_t cacheGib = kCacheGib;
  uint64_t keptGib = kKeptGib; ///< 0: do not read the weight cache
  bool quiet = false;

private:
  void addSampling(CLI::App &command);
  /// Also reads the option from TESSERA_NAME.
  CLI::Option *shared(CLI::Option *option, const std::string &name);
  template <typename T>
  void takeOne(const std::string &name, const std::optional<T> &from, T &to);

  std::map<std::string, CLI::Option *> known; ///< shared options by name
  std::vector<std::string> sampled;           ///< names of sampling parameters
  std::map<std::string, std::function<std::string()>> values; ///< of sampled
  std::map<std::string, std::string>
      sources; ///< of settings that are not defaults
  const std::vector<std::string> *typed = nullptr;
};

} // namespace tessera
