#include "runtime/eval/Prompts.h"
#include "runtime/support/Philox.h"

#include <algorithm>
#include <unordered_set>

#include <nlohmann/json.hpp>

namespace tessera::eval {

StatusOr<PromptMaker> PromptMaker::create(const Task &task) {
  PromptMaker maker(task);
  if (task.shots == 0)
    return maker;
  Task source = task;
  source.limit = 0;
  if (!task.shotsData.empty())
    source.data = task.shotsData;
  auto examples = loadExamples(source);
  if (!examples.ok())
    return examples.status();
  for (const Example &example : *examples)
    TESSERA_RETURN_IF_ERROR(maker.addShot(example));
  return maker;
}

Status PromptMaker::addShot(const Example &example) {
  auto prompt = fill(task->prompt, example);
  if (!prompt.ok())
    return prompt.status();
  if (task->kind != TaskKind::multipleChoice) {
    auto answers = stringsField(example, task->answer);
    if (!answers.ok())
      return answers.status();
    shots.push_back({prompt.take(), answers->front()});
  } else {
    auto choices = stringsField(example, task->choices);
    if (!choices.ok())
      return choices.status();
    auto right = rightChoices(example, *task, *choices);
    if (!right.ok())
      return right.status();
    shots.push_back({prompt.take(), (*choices)[right->front()]});
  }
  ++ofPrompt[shots.back().prompt];
  return Status::success();
}

/// A uniform number below `size`, the `draw`th of an example's.
static std::size_t drawBelow(std::size_t size, int64_t seed, int64_t index,
                             uint32_t draw) {
  const auto words =
      philox4x32({draw, uint32_t(index), uint32_t(uint64_t(index) >> 32), 0},
                 {uint32_t(seed), uint32_t(uint64_t(seed) >> 32)});
  return std::size_t((uint64_t(words[0]) << 32 | words[1]) % size);
}

StatusOr<std::vector<const PromptMaker::Shot *>>
PromptMaker::shotsFor(const std::string &prompt, int64_t index,
                      const std::string &where) const {
  const auto same = ofPrompt.find(prompt);
  const int64_t others =
      int64_t(shots.size()) - (same == ofPrompt.end() ? 0 : same->second);
  if (others < task->shots)
    return Status::error(
        "{}: shots: {} are wanted, but {} has {} with another prompt", where,
        task->shots, task->shotsData.empty() ? task->data : task->shotsData,
        others);
  std::vector<const Shot *> chosen;
  std::unordered_set<const Shot *> taken;
  const auto take = [&](const Shot &shot) {
    if (shot.prompt != prompt && taken.insert(&shot).second)
      chosen.push_back(&shot);
  };
  const auto isDone = [&] { return int64_t(chosen.size()) == task->shots; };
  const auto drawn = [&](uint32_t draw) {
    return drawBelow(shots.size(), task->shotsSeed, index, draw);
  };
  // Where few are left to be drawn, the rest is taken in order.
  const uint32_t draws =
      task->shotsSeed < 0 ? 0 : uint32_t(16 * task->shots + 64);
  for (uint32_t draw = 0; draw < draws && !isDone(); ++draw)
    take(shots[drawn(draw)]);
  const std::size_t first = draws == 0 ? 0 : drawn(draws);
  for (std::size_t i = 0; !isDone(); ++i)
    take(shots[(first + i) % shots.size()]);
  return chosen;
}

StatusOr<Prompt> PromptMaker::make(const Example &example,
                                   int64_t index) const {
  auto question = fill(task->prompt, example);
  if (!question.ok())
    return question.status();
  std::vector<const Shot *> before;
  if (task->shots > 0) {
    auto chosen = shotsFor(*question, index, example.where);
    if (!chosen.ok())
      return chosen.status();
    before = chosen.take();
  }
  Prompt prompt{example.where, {}, {}};
  if (!task->chat) {
    for (const Shot *shot : before)
      prompt.text +=
          shot->prompt + task->delimiter + shot->answer + task->shotDelimiter;
    prompt.text += *question;
    return prompt;
  }
  if (!task->system.empty())
    prompt.chat.push_back({"system", task->system});
  for (const Shot *shot : before) {
    prompt.chat.push_back({"user", shot->prompt});
    prompt.chat.push_back({"assistant", shot->answer});
  }
  prompt.chat.push_back({"user", question.take()});
  return prompt;
}

nlohmann::ordered_json promptJson(const Prompt &prompt) {
  if (prompt.chat.empty())
    return prompt.text;
  auto messages = nlohmann::ordered_json::array();
  for (const Message &message : prompt.chat)
    messages.push_back({{"role", message.role}, {"content", message.content}});
  return messages;
}

} // namespace tessera::eval
