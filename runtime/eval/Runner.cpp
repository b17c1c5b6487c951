#include "runtime/eval/Runner.h"
#include "runtime/eval/Extract.h"
#include "runtime/eval/WinRate.h"
#include "runtime/serve/Choice.h"
#include "runtime/support/Text.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tessera::eval {

StatusOr<LoadedTask> loadTask(const Task &task) {
  auto examples = loadExamples(task);
  if (!examples.ok())
    return examples.status();
  LoadedTask loaded{task, examples.take(), {}};
  for (const Example &example : loaded.examples) {
    std::vector<std::string> groups = {""};
    for (const std::string &field : task.splitBy) {
      auto value = stringField(example, field);
      if (!value.ok())
        return value.status();
      groups.push_back(field + "=" + *value);
    }
    loaded.groups.push_back(std::move(groups));
  }
  return loaded;
}

using Json = nlohmann::ordered_json;

void Runner::addSample(std::size_t index, const Json &fields) {
  Json line = {{"task", task.name}, {"where", loaded.examples[index].where}};
  line.update(fields);
  samples.push_back(line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

//===--- generation -------------------------------------------------------===//

Status GenerationRunner::prepare() {
  auto maker = PromptMaker::create(task);
  if (!maker.ok())
    return maker.status();
  for (const Example &example : loaded.examples) {
    auto prompt = maker->make(example, int64_t(prompts.size()));
    if (!prompt.ok())
      return prompt.status();
    prompts.push_back(prompt.take());
    TESSERA_RETURN_IF_ERROR(prepareOne(example));
  }
  return Status::success();
}

Status GenerationRunner::run(EvalModel &model) {
  auto outputs = model.generate(prompts, {task.stop, task.maxTokens});
  if (!outputs.ok())
    return outputs.status();
  return grade(*outputs);
}

namespace {

/// The question of an example of multiple_choice.
struct Question {
  Prompt prompt;
  std::vector<std::string> choices;
  std::vector<std::size_t> right;
};

//===--- kinds ------------------------------------------------------------===//

class PerplexityRunner final : public Runner {
public:
  using Runner::Runner;
  Status prepare() override {
    for (const Example &example : loaded.examples) {
      auto text = stringField(example, task.text);
      if (!text.ok())
        return text.status();
      if (text->empty())
        return Status::error("{}: field {} is empty", example.where,
                             quote(task.text));
      documents.push_back({example.where, text.take()});
    }
    return Status::success();
  }
  Status run(EvalModel &model) override {
    auto scores = model.scoreDocuments(documents, task.window);
    if (!scores.ok())
      return scores.status();
    for (std::size_t i = 0; i < documents.size(); ++i) {
      outcomes.push_back({{}, (*scores)[i], int64_t(documents[i].text.size())});
      addSample(i, {{"logprob", (*scores)[i].logprob},
                    {"tokens", (*scores)[i].tokens},
                    {"bytes", documents[i].text.size()}});
    }
    return Status::success();
  }

private:
  std::vector<Document> documents;
};

class ChoiceRunner final : public Runner {
public:
  using Runner::Runner;
  Status prepare() override {
    auto maker = PromptMaker::create(task);
    if (!maker.ok())
      return maker.status();
    for (const Example &example : loaded.examples)
      TESSERA_RETURN_IF_ERROR(prepareOne(example, *maker));
    return Status::success();
  }
  Status run(EvalModel &model) override {
    auto scores = model.scoreContinuations(continuations);
    if (!scores.ok())
      return scores.status();
    auto next = scores->begin();
    for (std::size_t i = 0; i < questions.size(); ++i) {
      const Question &question = questions[i];
      std::vector<double> logprobs, perLetter;
      for (const std::string &choice : question.choices) {
        logprobs.push_back((next++)->logprob);
        perLetter.push_back(logprobs.back() /
                            double(serve::charactersOf(choice)));
      }
      auto isRight = [&](const std::vector<double> &by) {
        auto best = std::size_t(std::ranges::max_element(by) - by.begin());
        return double(std::ranges::count(question.right, best) > 0);
      };
      outcomes.push_back(
          {{{"acc", isRight(logprobs)}, {"acc_norm", isRight(perLetter)}}});
      addSample(i, {{"prompt", promptJson(question.prompt)},
                    {"choices", question.choices},
                    {"logprobs", logprobs},
                    {"right", question.right},
                    {"acc", outcomes.back().metrics[0].second}});
    }
    return Status::success();
  }

private:
  Status prepareOne(const Example &example, const PromptMaker &maker) {
    auto prompt = maker.make(example, int64_t(questions.size()));
    if (!prompt.ok())
      return prompt.status();
    auto choices = stringsField(example, task.choices);
    if (!choices.ok())
      return choices.status();
    if (choices->size() < 2)
      return Status::error("{}: field {} has {} choice; give at least two",
                           example.where, quote(task.choices), choices->size());
    if (std::ranges::count(*choices, "") > 0)
      return Status::error("{}: field {} has an empty choice", example.where,
                           quote(task.choices));
    auto right = rightChoices(example, task, *choices);
    if (!right.ok())
      return right.status();
    for (const std::string &choice : *choices)
      continuations.push_back(
          {example.where, prompt->text, task.delimiter + choice, prompt->chat});
    questions.push_back({prompt.take(), choices.take(), right.take()});
    return Status::success();
  }

  std::vector<Continuation> continuations;
  std::vector<Question> questions;
};

/// Each output is graded on its own.
class SingleRunner : public GenerationRunner {
public:
  using GenerationRunner::GenerationRunner;

protected:
  Status grade(const std::vector<std::string> &outputs) override {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Json fields = {{"prompt", promptJson(prompts[i])},
                     {"output", outputs[i]}};
      outcomes.push_back({{gradeOne(i, outputs[i], fields)}});
      addSample(i, fields);
    }
    return Status::success();
  }
  virtual std::pair<std::string, double>
  gradeOne(std::size_t index, const std::string &text, Json &fields) = 0;
};

class MatchRunner final : public SingleRunner {
public:
  using SingleRunner::SingleRunner;

protected:
  Status prepareOne(const Example &example) override {
    auto right = stringsField(example, task.answer);
    if (right.ok())
      answers.push_back(right.take());
    return right.status();
  }
  std::pair<std::string, double>
  gradeOne(std::size_t index, const std::string &text, Json &fields) override {
    auto found = extract(text, task);
    bool isRight = false;
    for (const std::string &answer : answers[index])
      isRight |= found && normalize(*found, task) == normalize(answer, task);
    fields["extracted"] = found ? Json(*found) : Json(nullptr);
    fields["answers"] = answers[index];
    fields["exact_match"] = isRight;
    return {"exact_match", double(isRight)};
  }

private:
  std::vector<std::vector<std::string>> answers;
};

class PromptsRunner final : public SingleRunner {
public:
  using SingleRunner::SingleRunner;

protected:
  Status prepareOne(const Example &example) override {
    Patterns all{task.forbid, task.require};
    TESSERA_RETURN_IF_ERROR(addField(example, "forbid", all.forbid));
    TESSERA_RETURN_IF_ERROR(addField(example, "require", all.require));
    if (all.forbid.empty() && all.require.empty())
      return Status::error("{}: neither the task nor the line has 'forbid' or "
                           "'require', so any output would pass",
                           example.where);
    patterns.push_back(std::move(all));
    return Status::success();
  }
  std::pair<std::string, double>
  gradeOne(std::size_t index, const std::string &text, Json &fields) override {
    Json broken = Json::array();
    for (const std::string &each : patterns[index].forbid)
      if (contains(text, each))
        broken.push_back("forbid " + each);
    for (const std::string &each : patterns[index].require)
      if (!contains(text, each))
        broken.push_back("require " + each);
    const bool passes = broken.empty();
    fields["failed"] = std::move(broken);
    return {"pass_rate", double(passes)};
  }

private:
  struct Patterns {
    std::vector<std::string> forbid, require;
  };

  static Status addField(const Example &example, std::string_view name,
                         std::vector<std::string> &to) {
    if (example.fields[name].isNull())
      return Status::success();
    auto more = stringsField(example, name);
    if (!more.ok())
      return more.status();
    for (std::string &pattern : *more) {
      if (Status status = checkPattern(pattern); !status.ok())
        return Status::error("{}: {}", example.where, status.message());
      to.push_back(std::move(pattern));
    }
    return Status::success();
  }

  std::vector<Patterns> patterns;
};

} // namespace

std::unique_ptr<Runner> runnerOf(const LoadedTask &loaded,
                                 const JudgeAccess &judge) {
  switch (loaded.task.kind) {
  case TaskKind::perplexity:
    return std::make_unique<PerplexityRunner>(loaded);
  case TaskKind::multipleChoice:
    return std::make_unique<ChoiceRunner>(loaded);
  case TaskKind::exactMatch:
    return std::make_unique<MatchRunner>(loaded);
  case TaskKind::prompts:
    return std::make_unique<PromptsRunner>(loaded);
  case TaskKind::winRate:
    return winRateRunner(loaded, judge);
  }
  return nullptr;
}

} // namespace tessera::eval
