// What `tessera generate` and `tessera chat` are told, by whom, and what holds
// where nobody says anything: flag before environment (TESSERA_TEMPERATURE and
// so on) before generation_config.json before default. A recipe says what
// programs are made for and nothing of sampling.
#pragma once
#include "runtime/generate/Generate.h"
#include "runtime/generate/ModelDirectory.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/OpenedModel.h"

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
  /// Adds the options to the command that reads into this object, which must
  /// stay where it is; so must `words`, which are typed.
  void addTo(CLI::App &command, const std::vector<std::string> &words);

  /// Takes what nobody has said from a model directory, checks all of it and
  /// says what was applied.
  Status takeAndSay(const GenerationConfig &config, const TextSink &note);
  /// Takes the same and says nothing; of a run there is none.
  void take(const GenerationConfig &config);
  /// Changes a setting by the name of its option, "top-k"; the error says what
  /// is wrong with the value.
  Status change(const std::string &name, const std::string &value);
  /// Names that change() takes.
  std::vector<std::string_view> names() const;
  /// The model of `tessera COMMAND`, for one text at a time.
  ModelChoice choice(const std::string &command) const;
  /// "temperature 0.6 (generation_config.json), top-k 5 (given), other settings
  /// by default".
  std::string describe() const;
  /// A line for each setting, with its value and who gave it.
  std::string list() const;

  std::string place; ///< a run or a model directory
  GenerateOptions options;
  std::string recipe;           ///< of a model directory's programs
  std::vector<std::string> set; ///< on top of it, "inference.context=512"
  std::string cache = "on";
  uint64_t cacheGib = kCacheGib;
  uint64_t keptGib = kKeptGib; ///< 0: weights that serve kept are not read
  bool quiet = false;

private:
  void addSampling(CLI::App &command);
  /// Lets TESSERA_NAME give the option, too.
  CLI::Option *shared(CLI::Option *option, const std::string &name);
  template <typename T>
  void takeOne(const std::string &name, const std::optional<T> &from, T &to);

  std::map<std::string, CLI::Option *> known; ///< shared options by name
  std::vector<std::string> sampled; ///< those of them that say how is drawn
  std::map<std::string, std::function<std::string()>> values; ///< of sampled
  std::map<std::string, std::string> sources; ///< of what is no default
  const std::vector<std::string> *typed = nullptr;
};

} // namespace tessera
