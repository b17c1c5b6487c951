#include "runtime/eval/WinRate.h"
#include "runtime/eval/ChatServer.h"
#include "runtime/eval/Extract.h"
#include "runtime/support/Text.h"

#include <array>
#include <cmath>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

namespace tessera::eval {
namespace {

using Json = nlohmann::ordered_json;

/// The question, which a chat has last.
const std::string &questionOf(const Prompt &prompt) {
  return prompt.chat.empty() ? prompt.text : prompt.chat.back().content;
}

//===--- the other answers ------------------------------------------------===//

/// The prompt of a line of samples: a string, or the last of its messages.
std::optional<std::string> samplePrompt(const JsonValue &line) {
  std::string_view text;
  const JsonValue &prompt = line["prompt"];
  if (!prompt.get(text) && (prompt.elements().empty() ||
                            !prompt.elements().back()["content"].get(text)))
    return std::nullopt;
  return std::string(text);
}

using OutputsByPrompt = std::map<std::string, std::string>;

/// Of all lines that have a prompt and an output, whatever their task.
StatusOr<OutputsByPrompt> readSamples(const std::string &path) {
  Task lines;
  lines.kind = TaskKind::winRate;
  lines.data = path;
  auto samples = loadExamples(lines);
  if (!samples.ok())
    return samples.status();
  OutputsByPrompt outputs;
  for (const Example &sample : *samples) {
    std::string_view output;
    auto prompt = samplePrompt(sample.fields);
    if (!prompt || !sample.fields["output"].get(output))
      continue;
    auto [at, isNew] = outputs.emplace(*prompt, output);
    if (!isNew && at->second != output)
      return Status::error("{}: the prompt {} has another output before; give "
                           "the samples of one task",
                           sample.where, quote(*prompt));
  }
  return outputs;
}

//===--- the judge --------------------------------------------------------===//

constexpr std::string_view kWords[] = {"win", "loss", "tie"};

/// An answer of almost any status shows that there is a server.
StatusOr<ChatServer> reachJudge(const Task &task, const JudgeAccess &access) {
  const std::string &url = access.url.empty() ? task.judge : access.url;
  if (url.empty())
    return Status::error("no judge; give judge: URL in the task, or --judge "
                         "URL");
  auto address = client::parseServerUrl(url);
  if (!address.ok())
    return Status::error("judge: {}", address.message());
  address->authorization = access.authorization;
  ChatServer judge{address.take(), task.judgeModel, "the judge"};
  auto answer =
      client::askServer(judge.address, "GET", "/v1/models", "",
                        std::chrono::seconds(30), [](std::string_view) {});
  if (!answer.ok())
    return Status::error("judge: {}", answer.message());
  if (answer->status == 401 || answer->status == 403)
    return Status::error("judge: it answers {}: {}; TESSERA_JUDGE_API_KEY is "
                         "its key",
                         answer->status, errorOf(*answer));
  if (!judge.model.empty())
    return judge;
  auto name = client::firstModel(judge.address);
  if (!name.ok())
    return Status::error("judge: {}; name its model by judge_model",
                         name.message());
  judge.model = name.take();
  return judge;
}

class WinRateRunner final : public GenerationRunner {
public:
  WinRateRunner(const LoadedTask &loaded, const JudgeAccess &access)
      : GenerationRunner(loaded), access(access) {}

  Status prepare() override {
    if (!task.againstSamples.empty()) {
      auto read = readSamples(task.againstSamples);
      if (!read.ok())
        return read.status();
      samplesOutputs = read.take();
    }
    TESSERA_RETURN_IF_ERROR(GenerationRunner::prepare());
    auto reached = reachJudge(task, access);
    if (!reached.ok())
      return reached.status();
    judge = reached.take();
    return Status::success();
  }

protected:
  Status prepareOne(const Example &example) override {
    auto other = otherAnswer(example);
    if (!other.ok())
      return other.status();
    others.push_back(other.take());
    return question(prompts.size() - 1, "", true).status();
  }

  /// Both orders of each pair are judged, since judges favour a place.
  Status grade(const std::vector<std::string> &outputs) override {
    std::vector<Prompt> questions;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      for (bool isFirst : {true, false}) {
        auto made = question(i, outputs[i], isFirst);
        if (!made.ok())
          return made.status();
        questions.push_back(made.take());
      }
    auto replies = askChats(judge, questions, {{}, task.judgeMaxTokens});
    if (!replies.ok()) { // what the model computed is not lost
      for (std::size_t i = 0; i < outputs.size(); ++i)
        addSample(i, {{"prompt", promptJson(prompts[i])},
                      {"output", outputs[i]},
                      {"against", others[i]}});
      return replies.status();
    }
    int64_t without = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      without +=
          gradeOne(i, outputs[i], {(*replies)[2 * i], (*replies)[2 * i + 1]});
    if (without > 0)
      remark = fmt::format("; {} left out: a reply of the judge has no verdict",
                           without);
    return Status::success();
  }

private:
  StatusOr<std::string> otherAnswer(const Example &example) const {
    if (task.againstSamples.empty())
      return stringField(example, task.against);
    auto found = samplesOutputs.find(questionOf(prompts.back()));
    if (found == samplesOutputs.end())
      return Status::error("{}: {} has no output for the prompt {}",
                           example.where, task.againstSamples,
                           quote(questionOf(prompts.back())));
    return found->second;
  }

  StatusOr<Prompt> question(std::size_t index, const std::string &output,
                            bool isFirst) const {
    const Example &example = loaded.examples[index];
    const std::string &other = others[index];
    const TemplateWord words[] = {{"prompt", questionOf(prompts[index])},
                                  {"answer_a", isFirst ? output : other},
                                  {"answer_b", isFirst ? other : output}};
    auto text = fill(task.judgePrompt, example, words);
    if (!text.ok())
      return text.status();
    return Prompt{example.where, {}, {{"user", text.take()}}};
  }

  /// Whether the example is left out.
  bool gradeOne(std::size_t index, const std::string &output,
                const std::array<std::string, 2> &replies) {
    const auto first = verdictOf(replies[0], task, true),
               second = verdictOf(replies[1], task, false);
    const bool isJudged = first && second, agrees = first == second;
    double score = std::numeric_limits<double>::quiet_NaN(), consistent = score;
    if (isJudged) {
      const Verdict verdict = agrees ? *first : Verdict::tie;
      score = verdict == Verdict::win ? 1 : verdict == Verdict::tie ? 0.5 : 0;
      consistent = agrees;
    }
    outcomes.push_back({{{"win_rate", score},
                         {"consistent", consistent},
                         {"judged", double(isJudged)}}});
    auto word = [](const std::optional<Verdict> &verdict) {
      return verdict ? Json(kWords[std::size_t(*verdict)]) : Json(nullptr);
    };
    addSample(index, {{"prompt", promptJson(prompts[index])},
                      {"output", output},
                      {"against", others[index]},
                      {"verdicts", {word(first), word(second)}},
                      {"judgments", replies},
                      {"win_rate", score}});
    return !isJudged;
  }

  const JudgeAccess &access;
  OutputsByPrompt samplesOutputs;
  std::vector<std::string> others; ///< of each example
  ChatServer judge;
};

} // namespace

const std::string_view kJudgePrompt =
    R"(Act as an impartial judge of the answers of two assistants to the prompt below. Choose the assistant that follows the user's instructions and answers the question better. Consider helpfulness, relevance, accuracy, depth, creativity and level of detail. Do not let the order, the length or the names of the answers influence you. Compare the answers and explain your choice briefly. Then give your verdict in exactly this form: [[A]] if assistant A is better, [[B]] if assistant B is better, [[C]] for a tie.

[Prompt]
{prompt}

[Answer of assistant A]
{answer_a}
[End of the answer of assistant A]

[Answer of assistant B]
{answer_b}
[End of the answer of assistant B])";

std::optional<Verdict> verdictOf(std::string_view reply, const Task &task,
                                 bool isFirst) {
  Task rule;
  rule.extract = task.verdict;
  rule.match = TakenMatch::last;
  const auto letter = extract(reply, rule);
  if (letter == "C")
    return Verdict::tie;
  if (letter != "A" && letter != "B")
    return std::nullopt;
  return (letter == "A") == isFirst ? Verdict::win : Verdict::loss;
}

std::unique_ptr<Runner> winRateRunner(const LoadedTask &loaded,
                                      const JudgeAccess &judge) {
  return std::make_unique<WinRateRunner>(loaded, judge);
}

} // namespace tessera::eval
