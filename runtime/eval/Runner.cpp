#include "runtime/eval/Runner.h"
#include "runtime/eval/Extract.h"
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

namespace {

using Json = nlohmann::ordered_json;

std::string sampleLine(const LoadedTask &loaded, std::size_t index,
                       const Json &fields) {
  Json line = {{"task", loaded.task.name},
               {"where", loaded.examples[index].where}};
  line.update(fields);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The question of an example of multiple_choice.
struct Question {
  std::string prompt;
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
      samples.push_back(sampleLine(loaded, i,
                                   {{"logprob", (*scores)[i].logprob},
                                    {"tokens", (*scores)[i].tokens},
                                    {"bytes", documents[i].text.size()}}));
    }
    return Status::success();
  }

private:
  std::vector<Document> documents;
};

/// The index of a choice, or the text of one or more.
StatusOr<std::vector<std::size_t>>
rightChoices(const Example &example, const Task &task,
             const std::vector<std::string> &choices) {
  int64_t index = 0;
  if (example.fields[task.answer].get(index)) {
    double number = 0;
    for (const JsonValue &choice : example.fields[task.choices].elements())
      if (choice.get(number))
        return Status::error("{}: the answer {} may be an index or one of the "
                             "choices, which are numbers; write them as "
                             "strings",
                             example.where, index);
    if (index < 0 || index >= int64_t(choices.size()))
      return Status::error("{}: the answer {} is not one of {} choices, which "
                           "count from 0",
                           example.where, index, choices.size());
    return std::vector<std::size_t>{std::size_t(index)};
  }
  auto answers = stringsField(example, task.answer);
  if (!answers.ok())
    return answers.status();
  std::vector<std::size_t> right;
  for (const std::string &answer : *answers) {
    auto found = std::ranges::find(choices, answer);
    if (found == choices.end())
      return Status::error("{}: the answer {} is not one of the choices",
                           example.where, quote(answer));
    right.push_back(std::size_t(found - choices.begin()));
  }
  return right;
}

class ChoiceRunner final : public Runner {
public:
  using Runner::Runner;
  Status prepare() override {
    for (const Example &example : loaded.examples)
      TESSERA_RETURN_IF_ERROR(prepareOne(example));
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
      samples.push_back(
          sampleLine(loaded, i,
                     {{"prompt", question.prompt},
                      {"choices", question.choices},
                      {"logprobs", logprobs},
                      {"right", question.right},
                      {"acc", outcomes.back().metrics[0].second}}));
    }
    return Status::success();
  }

private:
  Status prepareOne(const Example &example) {
    auto prompt = fill(task.prompt, example);
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
          {example.where, *prompt, task.delimiter + choice});
    questions.push_back({prompt.take(), choices.take(), right.take()});
    return Status::success();
  }

  std::vector<Continuation> continuations;
  std::vector<Question> questions;
};

/// The kinds that generate.
class GenerationRunner : public Runner {
public:
  using Runner::Runner;
  Status prepare() override {
    for (const Example &example : loaded.examples) {
      auto prompt = fill(task.prompt, example);
      if (!prompt.ok())
        return prompt.status();
      prompts.push_back({example.where, prompt.take()});
      TESSERA_RETURN_IF_ERROR(prepareOne(example));
    }
    return Status::success();
  }
  Status run(EvalModel &model) override {
    auto outputs = model.generate(prompts, {task.stop, task.maxTokens});
    if (!outputs.ok())
      return outputs.status();
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Json fields = {{"prompt", prompts[i].text}, {"output", (*outputs)[i]}};
      outcomes.push_back({{grade(i, (*outputs)[i], fields)}});
      samples.push_back(sampleLine(loaded, i, fields));
    }
    return Status::success();
  }

protected:
  virtual Status prepareOne(const Example &example) = 0;
  virtual std::pair<std::string, double>
  grade(std::size_t index, const std::string &text, Json &fields) = 0;

private:
  std::vector<Prompt> prompts;
};

class MatchRunner final : public GenerationRunner {
public:
  using GenerationRunner::GenerationRunner;

protected:
  Status prepareOne(const Example &example) override {
    auto right = stringsField(example, task.answer);
    if (right.ok())
      answers.push_back(right.take());
    return right.status();
  }
  std::pair<std::string, double>
  grade(std::size_t index, const std::string &text, Json &fields) override {
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

class PromptsRunner final : public GenerationRunner {
public:
  using GenerationRunner::GenerationRunner;

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
  grade(std::size_t index, const std::string &text, Json &fields) override {
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

std::unique_ptr<Runner> runnerOf(const LoadedTask &loaded) {
  switch (loaded.task.kind) {
  case TaskKind::perplexity:
    return std::make_unique<PerplexityRunner>(loaded);
  case TaskKind::multipleChoice:
    return std::make_unique<ChoiceRunner>(loaded);
  case TaskKind::exactMatch:
    return std::make_unique<MatchRunner>(loaded);
  case TaskKind::prompts:
    return std::make_unique<PromptsRunner>(loaded);
  }
  return nullptr;
}

} // namespace tessera::eval
