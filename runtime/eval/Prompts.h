// Prompts of a task: a text or a chat, with solved examples (shots) before the
// question.
#pragma once
#include "runtime/eval/EvalModel.h"
#include "runtime/eval/Examples.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::eval {

class PromptMaker {
public:
  /// Reads the shots. The task must outlive it.
  static StatusOr<PromptMaker> create(const Task &task);

  /// Of example number `index`, by which its shots are drawn. A shot with the
  /// prompt of the example is never one of them, since it may be the example.
  StatusOr<Prompt> make(const Example &example, int64_t index) const;

private:
  struct Shot {
    std::string prompt, answer;
  };

  explicit PromptMaker(const Task &task) : task(&task) {}
  Status addShot(const Example &example);
  StatusOr<std::vector<const Shot *>> shotsFor(const std::string &prompt,
                                               int64_t index,
                                               const std::string &where) const;

  const Task *task;
  std::vector<Shot> shots;
  std::unordered_map<std::string, int64_t> ofPrompt; ///< how many shots
};

/// For samples: the text, or a list of messages.
nlohmann::ordered_json promptJson(const Prompt &prompt);

} // namespace tessera::eval
