#include "runtime/eval/TaskFile.h"
#include "runtime/client/HttpClient.h"
#include "runtime/eval/Examples.h"
#include "runtime/eval/Extract.h"
#include "runtime/recipe/YamlDocument.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <variant>

namespace tessera::eval {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr int64_t kMaxShots = 1000;
constexpr std::string_view kTopKeys[] = {"tasks", "gates"};

/// A key of a task: where its value goes, and the kinds that have it.
struct Key {
  std::string_view name;
  std::variant<std::string Task::*, std::vector<std::string> Task::*,
               int64_t Task::*, bool Task::*, TakenMatch Task::*>
      member;
  std::vector<TaskKind> kinds; ///< empty: all
  int64_t least = 1;           ///< of a number
};

const std::vector<Key> &keys() {
  using enum TaskKind;
  static const std::vector<Key> all = {
      {"name", &Task::name, {}},
      {"data", &Task::data, {}},
      {"limit", &Task::limit, {}},
      {"text", &Task::text, {perplexity}},
      {"split_by", &Task::splitBy, {}},
      {"window", &Task::window, {perplexity}, 2},
      {"prompt", &Task::prompt, {multipleChoice, exactMatch, prompts, winRate}},
      {"chat", &Task::chat, {multipleChoice, exactMatch, prompts, winRate}},
      {"system", &Task::system, {multipleChoice, exactMatch, prompts, winRate}},
      {"choices", &Task::choices, {multipleChoice}},
      {"answer", &Task::answer, {multipleChoice, exactMatch}},
      {"delimiter", &Task::delimiter, {multipleChoice, exactMatch}},
      {"shots", &Task::shots, {multipleChoice, exactMatch}},
      {"shots_data", &Task::shotsData, {multipleChoice, exactMatch}},
      {"shots_seed", &Task::shotsSeed, {multipleChoice, exactMatch}, 0},
      {"shot_delimiter", &Task::shotDelimiter, {multipleChoice, exactMatch}},
      {"stop", &Task::stop, {exactMatch, prompts, winRate}},
      {"max_tokens", &Task::maxTokens, {exactMatch, prompts, winRate}},
      {"extract", &Task::extract, {exactMatch}},
      {"match", &Task::match, {exactMatch}},
      {"trim", &Task::trim, {exactMatch}},
      {"ignore_case", &Task::ignoreCase, {exactMatch}},
      {"ignore_punctuation", &Task::ignorePunctuation, {exactMatch}},
      {"forbid", &Task::forbid, {prompts}},
      {"require", &Task::require, {prompts}},
      {"against", &Task::against, {winRate}},
      {"against_samples", &Task::againstSamples, {winRate}},
      {"judge", &Task::judge, {winRate}},
      {"judge_model", &Task::judgeModel, {winRate}},
      {"judge_prompt", &Task::judgePrompt, {winRate}},
      {"judge_max_tokens", &Task::judgeMaxTokens, {winRate}},
      {"verdict", &Task::verdict, {winRate}},
  };
  return all;
}

bool applies(const Key &key, TaskKind kind) {
  return key.kinds.empty() || std::ranges::count(key.kinds, kind) > 0;
}

/// Reads one task; errors name the position in the file.
class TaskReader {
public:
  explicit TaskReader(const std::string &file) : file(file) {}

  StatusOr<Task> read(const YAML::Node &node) {
    if (!node.IsMap())
      return at(node, "a task must be a mapping with name, kind and data");
    TESSERA_RETURN_IF_ERROR(readKind(node));
    for (const auto &entry : node) {
      if (!entry.first.IsScalar())
        return at(entry.first, "keys must be plain words");
      const std::string &name = entry.first.Scalar();
      if (!seen.insert(name).second)
        return at(entry.first, quote(name) + " is given twice; keep one");
      if (name != "kind")
        TESSERA_RETURN_IF_ERROR(readKey(entry.first, entry.second));
    }
    TESSERA_RETURN_IF_ERROR(complete(node));
    return std::move(task);
  }

  Status at(const YAML::Node &node, const std::string &what) const {
    return Status::error("{}:{}:{}: {}", file, node.Mark().line + 1,
                         node.Mark().column + 1, what);
  }

private:
  Status readKind(const YAML::Node &node) {
    const YAML::Node kind = node["kind"];
    if (!kind)
      return at(node, "the task has no kind; give one of " +
                          tessera::choices(kTaskKinds));
    const std::string word = kind.IsScalar() ? kind.Scalar() : "";
    auto found = std::ranges::find(kTaskKinds, word);
    if (found == kTaskKinds.end())
      return at(kind, fmt::format("unknown kind {}{}; known kinds: {}",
                                  quote(word), suggestion(word, kTaskKinds),
                                  tessera::choices(kTaskKinds)));
    task.kind = TaskKind(found - kTaskKinds.begin());
    return Status::success();
  }

  Status readKey(const YAML::Node &keyNode, const YAML::Node &node) {
    const std::string &name = keyNode.Scalar();
    std::vector<std::string_view> known = {"kind"};
    for (const Key &key : keys()) {
      if (!applies(key, task.kind))
        continue;
      if (key.name == name)
        return store(key, node);
      known.push_back(key.name);
    }
    return at(keyNode,
              fmt::format("unknown key {} of a {} task{}; known keys: "
                          "{}",
                          quote(name), kTaskKinds[int(task.kind)],
                          suggestion(name, known), tessera::choices(known)));
  }

  Status store(const Key &key, const YAML::Node &node) {
    auto wrong = [&](std::string_view wanted) {
      return at(node, fmt::format("{} must be {}", key.name, wanted));
    };
    if (const auto *to = std::get_if<std::string Task::*>(&key.member))
      return node.IsScalar() ? keep(task.**to, node.Scalar())
                             : wrong("a string");
    if (const auto *to =
            std::get_if<std::vector<std::string> Task::*>(&key.member))
      return storeList(task.**to, node) ? Status::success()
                                        : wrong("a string or a list of them");
    const std::string word = node.IsScalar() ? node.Scalar() : "";
    if (const auto *to = std::get_if<int64_t Task::*>(&key.member)) {
      int64_t number = 0;
      auto [end, code] =
          std::from_chars(word.data(), word.data() + word.size(), number);
      if (code != std::errc() || end != word.data() + word.size() ||
          number < key.least)
        return wrong(fmt::format("a whole number of at least {}, got {}",
                                 key.least, quote(word)));
      return keep(task.**to, number);
    }
    if (const auto *to = std::get_if<bool Task::*>(&key.member))
      return word == "true" || word == "false" ? keep(task.**to, word == "true")
                                               : wrong("true or false");
    if (word != "first" && word != "last")
      return wrong("first or last");
    return keep(task.match,
                word == "first" ? TakenMatch::first : TakenMatch::last);
  }

  template <typename T> static Status keep(T &to, T value) {
    to = std::move(value);
    return Status::success();
  }

  static bool storeList(std::vector<std::string> &to, const YAML::Node &node) {
    to.clear();
    if (node.IsScalar()) {
      to = {node.Scalar()};
      return true;
    }
    if (!node.IsSequence())
      return false;
    for (const auto &each : node) {
      if (!each.IsScalar())
        return false;
      to.push_back(each.Scalar());
    }
    return true;
  }

  /// What no single key can say.
  Status complete(const YAML::Node &node) {
    auto isWord = [](char c) {
      return std::isalnum(uint8_t(c)) || c == '_' || c == '-';
    };
    if (task.name.empty() || !std::ranges::all_of(task.name, isWord))
      return at(node, "a task needs a name of a-z, A-Z, 0-9, '_' and '-'");
    if (task.data.empty())
      return at(node, "the task has no data; give a .jsonl file" +
                          std::string(task.kind == TaskKind::perplexity
                                          ? " or a text file"
                                          : ""));
    if (task.kind == TaskKind::prompts && task.prompt.empty())
      task.prompt = "{prompt}";
    else if (task.kind != TaskKind::perplexity && task.prompt.empty())
      return at(node, "the task has no prompt, such as \"{question}\"");
    for (const auto &[key, list] : {std::pair("extract", &task.extract),
                                    {"forbid", &task.forbid},
                                    {"require", &task.require},
                                    {"verdict", &task.verdict}})
      for (const std::string &pattern : *list)
        if (Status status = checkPattern(pattern); !status.ok())
          return at(node[key], status.message());
    if (std::ranges::count(task.stop, "") > 0)
      return at(node["stop"], "stop must not have an empty string");
    TESSERA_RETURN_IF_ERROR(completePrompt(node));
    if (task.kind == TaskKind::winRate)
      TESSERA_RETURN_IF_ERROR(completeJudge(node));
    auto folder = std::filesystem::path(file).parent_path();
    for (std::string *path :
         {&task.data, &task.shotsData, &task.againstSamples})
      if (!path->empty())
        *path = (folder / *path).string();
    return Status::success();
  }

  /// Chat and shots: a key that would have no effect is refused.
  Status completePrompt(const YAML::Node &node) {
    if (task.shots > kMaxShots)
      return at(node["shots"],
                fmt::format("shots must be at most {}", kMaxShots));
    if (!task.chat && seen.contains("system"))
      return at(node["system"], "system needs chat: true");
    if (task.shots == 0)
      for (const char *key : {"shots_data", "shots_seed", "shot_delimiter"})
        if (seen.contains(key))
          return at(node[key], fmt::format("{} needs shots", key));
    if (task.chat && seen.contains("shot_delimiter"))
      return at(node["shot_delimiter"],
                "shot_delimiter has no effect in a chat, where shots are "
                "turns; leave it out");
    const bool isMatch = task.kind == TaskKind::exactMatch;
    if (isMatch && seen.contains("delimiter") && (task.chat || task.shots == 0))
      return at(node["delimiter"],
                "delimiter of an exact_match task needs shots, and has "
                "no effect in a chat");
    if (!isMatch && task.chat && !seen.contains("delimiter"))
      task.delimiter.clear();
    return Status::success();
  }

  Status completeJudge(const YAML::Node &node) const {
    if (task.against.empty() == task.againstSamples.empty())
      return at(node, "give against, a field with the other answer, or "
                      "against_samples, a file of another model's samples");
    const std::vector<std::string_view> words = wordsOf(task.judgePrompt);
    for (std::string_view word : {"answer_a", "answer_b"})
      if (std::ranges::count(words, word) == 0)
        return at(node["judge_prompt"],
                  fmt::format("judge_prompt must have {{{}}}", word));
    if (task.verdict.empty())
      return at(node, "verdict needs an expression that finds A, B or C");
    if (task.judge.empty())
      return Status::success();
    if (auto url = client::parseServerUrl(task.judge); !url.ok())
      return at(node["judge"], "judge: " + oneLine(url.message(), 200));
    return Status::success();
  }

  const std::string &file;
  std::set<std::string> seen; ///< keys
  Task task;
};

std::string_view trimmed(std::string_view text) {
  const char *spaces = " \t";
  size_t begin = text.find_first_not_of(spaces);
  if (begin == std::string_view::npos)
    return {};
  return text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
}

/// "TASK.METRIC >= NUMBER", also "TASK.METRIC{FIELD=VALUE} <= NUMBER".
std::optional<Gate> parseGate(const std::string &text) {
  size_t at = text.find(">=");
  Gate gate;
  gate.text = text;
  if (at == std::string::npos) {
    at = text.find("<=");
    gate.isLeast = false;
  }
  if (at == std::string::npos)
    return std::nullopt;
  std::string_view name = trimmed(std::string_view(text).substr(0, at)),
                   number = trimmed(std::string_view(text).substr(at + 2));
  size_t dot = name.find('.');
  auto [end, code] =
      std::from_chars(number.data(), number.data() + number.size(), gate.bound);
  if (dot == std::string_view::npos || code != std::errc() ||
      end != number.data() + number.size() || !std::isfinite(gate.bound))
    return std::nullopt;
  gate.task = name.substr(0, dot);
  std::string_view metric = name.substr(dot + 1);
  if (size_t brace = metric.find('{'); brace != std::string_view::npos) {
    if (!metric.ends_with('}'))
      return std::nullopt;
    gate.group = metric.substr(brace + 1, metric.size() - brace - 2);
    metric = metric.substr(0, brace);
  }
  gate.metric = metric;
  return gate;
}

Status readTasks(const YAML::Node &list, const TaskReader &where,
                 const std::string &file, TaskFile &to) {
  if (!list || !list.IsSequence() || list.size() == 0)
    return where.at(list ? list : YAML::Node(),
                    "tasks must be a list of at least one task");
  for (const auto &node : list) {
    auto task = TaskReader(file).read(node);
    if (!task.ok())
      return task.status();
    for (const Task &other : to.tasks)
      if (other.name == task->name)
        return where.at(
            node, fmt::format("two tasks have the name {}", quote(other.name)));
    to.tasks.push_back(task.take());
  }
  return Status::success();
}

Status checkGate(const Gate &gate, const std::vector<Task> &tasks) {
  std::vector<std::string_view> names;
  for (const Task &task : tasks) {
    names.push_back(task.name);
    if (task.name != gate.task)
      continue;
    auto metrics = metricsOf(task.kind);
    return std::ranges::count(metrics, gate.metric) > 0
               ? Status::success()
               : Status::error("task {} has no metric {}{}; it has {}",
                               task.name, quote(gate.metric),
                               suggestion(gate.metric, metrics),
                               tessera::choices(metrics));
  }
  return Status::error("unknown task {}{}; the tasks are {}", quote(gate.task),
                       suggestion(gate.task, names), tessera::choices(names));
}

Status readGates(const YAML::Node &list, const TaskReader &where,
                 TaskFile &to) {
  if (!list || list.IsNull())
    return Status::success();
  if (!list.IsSequence())
    return where.at(list, "gates must be a list, such as - qa.acc >= 0.5");
  for (const auto &node : list) {
    auto gate = node.IsScalar() ? parseGate(node.Scalar()) : std::nullopt;
    if (!gate)
      return where.at(node, "a gate is TASK.METRIC >= NUMBER, or <=");
    if (Status status = checkGate(*gate, to.tasks); !status.ok())
      return where.at(node, status.message());
    to.gates.push_back(*gate);
  }
  return Status::success();
}

} // namespace

std::span<const std::string_view> metricsOf(TaskKind kind) {
  static constexpr std::string_view kLikelihood[] = {
      "token_perplexity", "byte_perplexity", "bits_per_byte"};
  static constexpr std::string_view kChoice[] = {"acc", "acc_norm"};
  static constexpr std::string_view kMatch[] = {"exact_match"};
  static constexpr std::string_view kPrompts[] = {"pass_rate"};
  static constexpr std::string_view kWins[] = {"win_rate", "consistent",
                                               "judged"};
  switch (kind) {
  case TaskKind::perplexity:
    return kLikelihood;
  case TaskKind::multipleChoice:
    return kChoice;
  case TaskKind::exactMatch:
    return kMatch;
  case TaskKind::prompts:
    return kPrompts;
  case TaskKind::winRate:
    return kWins;
  }
  return {};
}

StatusOr<TaskFile> parseTaskFile(std::string_view text,
                                 const std::string &path) {
  TaskFile file;
  Status status = recipe::readYaml(text, path, [&](const YAML::Node &node) {
    TaskReader where(path);
    if (!node.IsMap())
      return Status::error("{}: has no tasks; give a list under 'tasks'", path);
    std::set<std::string> seen;
    for (const auto &entry : node) {
      const std::string key =
          entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (std::ranges::count(kTopKeys, key) == 0)
        return where.at(entry.first,
                        fmt::format("unknown key {}{}; known keys: {}",
                                    quote(key), suggestion(key, kTopKeys),
                                    choices(kTopKeys)));
      if (!seen.insert(key).second)
        return where.at(entry.first,
                        fmt::format("the key {} is given twice", quote(key)));
    }
    if (!node["tasks"])
      return Status::error("{}: has no tasks; give a list under 'tasks'", path);
    TESSERA_RETURN_IF_ERROR(readTasks(node["tasks"], where, path, file));
    return readGates(node["gates"], where, file);
  });
  if (!status.ok())
    return status;
  return file;
}

StatusOr<TaskFile> loadTaskFile(const std::string &path) {
  auto text = readTextFile(path, kMaxFileBytes);
  if (!text.ok())
    return text.status();
  return parseTaskFile(*text, path);
}

} // namespace tessera::eval
