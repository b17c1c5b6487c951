// Tasks with a model whose answers are written down: metrics, groups, gates and
// errors of the data. Metrics of real models are compared with another
// implementation's in test/oracle/eval_oracle.py.
#include "runtime/eval/EngineModel.h"
#include "runtime/eval/Extract.h"
#include "runtime/eval/Gates.h"
#include "runtime/eval/WinRate.h"
#include "test/runtime/data/TestData.h"

#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>

namespace tessera::eval {
namespace {

/// The text of a prompt; of a chat "system: Be short.|user: Hello|".
template <typename Input>
std::string textOf(const Input &input, const std::string &text) {
  std::string turns;
  for (const Message &message : input.chat)
    turns += message.role + ": " + message.content + "|";
  return turns.empty() ? text : turns;
}

/// Logprobs by the text that is scored, outputs by the prompt.
class WrittenModel final : public EvalModel {
public:
  std::map<std::string, double> logprobs;
  std::map<std::string, std::string> outputs; ///< of others: ""
  std::vector<std::string> asked;

  StatusOr<std::vector<Likelihood>>
  scoreContinuations(std::span<const Continuation> inputs) override {
    std::vector<Likelihood> scores;
    for (const Continuation &input : inputs)
      scores.push_back(
          {logprobs.at(textOf(input, input.context) + input.text), 1});
    return scores;
  }
  StatusOr<std::vector<Likelihood>>
  scoreDocuments(std::span<const Document> inputs, int64_t) override {
    std::vector<Likelihood> scores;
    for (const Document &input : inputs)
      scores.push_back({logprobs.at(input.text), 2});
    return scores;
  }
  StatusOr<std::vector<std::string>>
  generate(std::span<const Prompt> prompts, const GenerationLimits &) override {
    std::vector<std::string> texts;
    for (const Prompt &prompt : prompts) {
      asked.push_back(textOf(prompt, prompt.text));
      texts.push_back(outputs.contains(asked.back()) ? outputs[asked.back()]
                                                     : "");
    }
    return texts;
  }
};

class RunTasks : public ::testing::Test {
protected:
  StatusOr<EvalResults> run(const std::string &yaml, const std::string &data,
                            const std::string &name = "d.jsonl") {
    std::ofstream(scratch / name, std::ios::binary) << data;
    auto file = parseTaskFile(yaml, scratch / "t.yaml");
    if (!file.ok())
      return file.status();
    gates = file->gates;
    return runTasks(*file, model, [](std::string_view) {});
  }
  /// Without the folder.
  std::string errorOf(const std::string &yaml, const std::string &data,
                      const std::string &name = "d.jsonl") {
    auto results = run(yaml, data, name);
    std::string message = results.ok() ? "no error" : results.message();
    const std::string folder = scratch / "";
    for (size_t at; (at = message.find(folder)) != std::string::npos;)
      message.erase(at, folder.size());
    return message;
  }
  static std::map<std::string, double> values(const EvalResults &results) {
    std::map<std::string, double> all;
    for (const Result &each : results.results)
      all[metricName(each)] = each.value;
    return all;
  }

  testing::ScratchDirectory scratch;
  WrittenModel model;
  std::vector<Gate> gates;
};

constexpr const char *kText =
    "tasks: [{name: t, kind: perplexity, data: d.jsonl, split_by: lang}]\n";
constexpr const char *kChoice =
    "tasks: [{name: t, kind: multiple_choice, data: d.jsonl, prompt: 'Q{q}'}]";
constexpr const char *kMatch = "tasks: [{name: t, kind: exact_match, data: "
                               "d.jsonl, prompt: '{q}', extract: '[0-9]+'}]";
constexpr const char *kPrompts =
    "tasks: [{name: t, kind: prompts, data: d.jsonl, forbid: 'bad|evil'}]";

TEST_F(RunTasks, PerplexityByGroup) {
  model.logprobs = {{"abcd", -4}, {"\u00e9", -1}};
  auto results = run(kText, "{\"text\": \"abcd\", \"lang\": \"en\"}\n\n"
                            "{\"text\": \"\u00e9\", \"lang\": \"fr\"}\n");
  ASSERT_TRUE(results.ok()) << results.message();
  auto found = values(*results);
  EXPECT_EQ(found.size(), 9u);
  EXPECT_DOUBLE_EQ(found["token_perplexity"], std::exp(5. / 4));
  EXPECT_DOUBLE_EQ(found["byte_perplexity"], std::exp(5. / 6));
  EXPECT_DOUBLE_EQ(found["bits_per_byte{lang=en}"], 1 / std::log(2.));
  EXPECT_DOUBLE_EQ(found["token_perplexity{lang=fr}"], std::exp(.5));
  EXPECT_EQ(results->results[0].bytes, 6);
  EXPECT_EQ(results->results[0].tokens, 4);
  EXPECT_EQ(results->samples.size(), 2u);
}

TEST_F(RunTasks, ChoicesByLogprobAndByItPerCharacter) {
  // "no" is likelier, "maybe" per character; é counts once.
  model.logprobs = {
      {"Q1 no", -2}, {"Q1 maybe", -2.5}, {"Q2 a", -2}, {"Q2 \u00e9\u00e9", -3}};
  auto results = run(
      kChoice, "{\"q\": 1, \"choices\": [\"no\", \"maybe\"], \"answer\": 0}\n"
               "{\"q\": 2, \"choices\": [\"a\", \"\u00e9\u00e9\"], "
               "\"answer\": [\"\u00e9\u00e9\"]}\n");
  ASSERT_TRUE(results.ok()) << results.message();
  auto found = values(*results);
  EXPECT_EQ(found["acc"], .5);
  EXPECT_EQ(found["acc_norm"], .5);
  EXPECT_DOUBLE_EQ(results->results[0].standardError.value(), .5);
}

TEST_F(RunTasks, MatchesWhatIsExtracted) {
  model.outputs = {{"a", "it is 12."}, {"b", "none"}, {"c", "7 or 8"}};
  auto results = run(kMatch, R"({"q": "a", "answer": 12}
{"q": "b", "answer": "none"}
{"q": "c", "answer": ["8", "7"]})");
  ASSERT_TRUE(results.ok()) << results.message();
  EXPECT_DOUBLE_EQ(values(*results)["exact_match"], 2. / 3);
}

TEST_F(RunTasks, ForbiddenAndRequiredOutputs) {
  model.outputs = {{"a", "all evil"}, {"b", "fine"}, {"c", "fine"}};
  auto results = run(kPrompts, R"({"prompt": "a"}
{"prompt": "b", "require": "fi.e"}
{"prompt": "c", "require": ["fine", "no"]})");
  ASSERT_TRUE(results.ok()) << results.message();
  EXPECT_DOUBLE_EQ(values(*results)["pass_rate"], 1. / 3);
  EXPECT_NE(results->samples[0].find(R"("failed":["forbid bad|evil"])"),
            std::string::npos);
}

TEST_F(RunTasks, GatesOfGroups) {
  model.logprobs = {{"abcd", -4}};
  const std::string line = R"({"text": "abcd", "lang": "en"})";
  auto results = run(std::string(kText) + "gates:\n- t.token_perplexity <= 7\n"
                                          "- t.bits_per_byte{lang=en} >= 1.5\n",
                     line);
  ASSERT_TRUE(results.ok()) << results.message();
  auto outcomes = checkGates(gates, results->results);
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_FALSE(outcomes[0].passed); // exp(2)
  EXPECT_FALSE(outcomes[1].passed); // 1.44
  EXPECT_EQ(
      errorOf(std::string(kText) + "gates: ['t.bits_per_byte{lang=em} >= 1']",
              line),
      "gate 't.bits_per_byte{lang=em} >= 1': task t has no group "
      "'lang=em', did you mean 'lang=en'?; its groups are lang=en");
}

constexpr const char *kFour = R"({"q": "a", "answer": "1"}
{"q": "b", "answer": ["2", "two"]}
{"q": "c", "answer": 3}
{"q": "d", "answer": "4"})";

std::string shots(const std::string &more) {
  return "tasks: [{name: t, kind: exact_match, data: d.jsonl, prompt: 'Q{q}', "
         "shots: 2" +
         more + "}]";
}

TEST_F(RunTasks, TheFirstShotsButTheExampleItself) {
  ASSERT_TRUE(run(shots(""), kFour).ok());
  EXPECT_EQ(model.asked, (std::vector<std::string>{
                             "Qb 2\n\nQc 3\n\nQa", "Qa 1\n\nQc 3\n\nQb",
                             "Qa 1\n\nQb 2\n\nQc", "Qa 1\n\nQb 2\n\nQd"}));
  EXPECT_EQ(errorOf(shots(""), R"({"q": "a", "answer": "1"}
{"q": "b", "answer": "2"}
{"q": "b", "answer": "2"})"),
            "task t: d.jsonl:2: shots: 2 are wanted, but d.jsonl has 1 with "
            "another prompt");
}

TEST_F(RunTasks, ShotsOfAnotherFileInAChat) {
  std::ofstream(scratch / "s.jsonl") << kFour;
  auto results = run(shots(", shots_data: s.jsonl, chat: true, system: Hi"),
                     R"({"q": "a", "answer": "1"})");
  ASSERT_TRUE(results.ok()) << results.message();
  EXPECT_EQ(model.asked[0],
            "system: Hi|user: Qb|assistant: 2|user: Qc|assistant: 3|user: Qa|");
  EXPECT_NE(results->samples[0].find(
                R"("prompt":[{"role":"system","content":"Hi"},)"),
            std::string::npos);
  EXPECT_EQ(errorOf(shots(", shots_data: none.jsonl"), kFour).find("task t: "),
            0u);
}

TEST_F(RunTasks, ShotsAreDrawnBySeed) {
  std::string data;
  for (int i = 0; i < 30; ++i)
    data += fmt::format("{{\"q\": {}, \"answer\": {}}}\n", i, i);
  const std::string yaml = shots(", shots_seed: 7, shot_delimiter: ','");
  ASSERT_TRUE(run(yaml, data).ok());
  const std::vector<std::string> first = model.asked;
  std::set<std::string> seen; // "Q3 3"
  for (int i = 0; i < 30; ++i) {
    std::string one = first[size_t(i)].substr(0, first[size_t(i)].find(',')),
                two = first[size_t(i)].substr(one.size() + 1);
    two = two.substr(0, two.find(','));
    EXPECT_EQ(first[size_t(i)], one + "," + two + fmt::format(",Q{}", i));
    EXPECT_NE(one, two);
    for (const std::string &each : {one, two}) {
      EXPECT_NE(each, fmt::format("Q{} {}", i, i));
      seen.insert(each);
    }
  }
  EXPECT_GT(seen.size(), 20u); // of 30, by 60 draws
  model.asked.clear();
  ASSERT_TRUE(run(yaml, data).ok());
  EXPECT_EQ(model.asked, first);
  model.asked.clear();
  ASSERT_TRUE(run(shots(", shots_seed: 8, shot_delimiter: ','"), data).ok());
  EXPECT_NE(model.asked, first);
}

TEST_F(RunTasks, ChoicesWithShotsAndInAChat) {
  const std::string yaml = "tasks: [{name: t, kind: multiple_choice, data: "
                           "d.jsonl, prompt: '{q}', shots: 1",
                    data = R"({"q": "a", "choices": ["x", "y"], "answer": 1}
{"q": "b", "choices": ["x", "y"], "answer": "x"})";
  model.logprobs = {{"b x\n\na x", -2},
                    {"b x\n\na y", -1},
                    {"a y\n\nb x", -1},
                    {"a y\n\nb y", -2}};
  auto results = run(yaml + "}]", data);
  ASSERT_TRUE(results.ok()) << results.message();
  EXPECT_EQ(values(*results)["acc"], 1);
  model.logprobs = {{"user: b|assistant: x|user: a|x", -2},
                    {"user: b|assistant: x|user: a|y", -1},
                    {"user: a|assistant: y|user: b|x", -2},
                    {"user: a|assistant: y|user: b|y", -1}};
  results = run(yaml + ", chat: true}]", data);
  ASSERT_TRUE(results.ok()) << results.message();
  EXPECT_EQ(values(*results)["acc"], .5);
}

constexpr const char *kWins =
    "tasks: [{name: t, kind: win_rate, data: d.jsonl, prompt: '{q}', ";

TEST_F(RunTasks, ErrorsOfWinRatesBeforeTheModelRuns) {
  const std::string line = R"({"q": "a", "other": "x"})";
  EXPECT_EQ(errorOf(std::string(kWins) + "against: other}]", line),
            "task t: no judge; give judge: URL in the task, or --judge URL");
  EXPECT_EQ(errorOf(std::string(kWins) + "against: othr}]", line),
            "task t: d.jsonl:1: no field 'othr'; the fields are: q, other");
  EXPECT_EQ(errorOf(std::string(kWins) +
                        "against: other, judge_prompt: '{answer_a} {answer_b} "
                        "{rubric}'}]",
                    line),
            "task t: d.jsonl:1: no field 'rubric'; the fields are: q, other");
  EXPECT_EQ(errorOf(std::string(kWins) +
                        "against: other, judge: 'http://127.0.0.1:1'}]",
                    line),
            "task t: judge: cannot connect to 127.0.0.1:1: Connection refused");
  auto samples = [&](const std::string &text) {
    std::ofstream(scratch / "s.jsonl") << text;
    return errorOf(std::string(kWins) + "against_samples: s.jsonl}]", line);
  };
  EXPECT_EQ(samples(R"({"prompt": "b", "output": "x"})"),
            "task t: d.jsonl:1: s.jsonl has no output for the prompt 'a'");
  EXPECT_EQ(samples(R"({"prompt": [], "output": "x"}
{"prompt": [{"content": 3}], "output": "x"}
{"prompt": "a", "acc": 1})"),
            "task t: d.jsonl:1: s.jsonl has no output for the prompt 'a'");
  EXPECT_EQ(samples(R"({"prompt": "b", "output": "x"}
{"prompt": [{"role": "user", "content": "b"}], "output": "y"})"),
            "task t: s.jsonl:2: the prompt 'b' has another output before; give "
            "the samples of one task");
  const std::string found = // then the judge is missing
      "task t: no judge; give judge: URL in the task, or --judge URL";
  EXPECT_EQ(samples(R"({"prompt": "a", "output": "x"})"), found);
  EXPECT_EQ(samples(R"({"prompt": [{"role": "user", "content": "a"}],
"output": "x"})")
                .find("task t: s.jsonl:1: "),
            0u); // two lines
  EXPECT_TRUE(model.asked.empty());
}

TEST(Verdict, TheLastLetterInBrackets) {
  const Task task;
  EXPECT_EQ(verdictOf("B is good, but: [[A]]", task, true), Verdict::win);
  EXPECT_EQ(verdictOf("[[A]]", task, false), Verdict::loss);
  EXPECT_EQ(verdictOf("not [[A]] but [[B]].", task, false), Verdict::win);
  EXPECT_EQ(verdictOf("[[C]]", task, true), Verdict::tie);
  for (const char *none : {"", "A", "[A]", "[[D]]", "[[AB]]"})
    EXPECT_EQ(verdictOf(none, task, true), std::nullopt) << none;
  Task own;
  own.verdict = {"winner: [AB]", "[AB]"};
  EXPECT_EQ(verdictOf("winner: B", own, true), Verdict::loss);
}

TEST_F(RunTasks, ErrorsOfTheData) {
  EXPECT_EQ(errorOf(kText, ""),
            "task t: d.jsonl: is empty; the task has no example");
  EXPECT_EQ(errorOf(kText, "\n \n"),
            "task t: d.jsonl: is empty; the task has no example");
  EXPECT_EQ(errorOf(kText, "\n[1]"),
            "task t: d.jsonl:2: a line must be a JSON object");
  EXPECT_EQ(errorOf(kText, R"({"txt": "a", "lang": "en"})"),
            "task t: d.jsonl:1: no field 'text'; the fields are: txt, lang");
  EXPECT_EQ(errorOf(kText, R"({"text": "a"})"),
            "task t: d.jsonl:1: no field 'lang'; the fields are: text");
  EXPECT_EQ(errorOf(kText, R"({"text": "", "lang": "en"})"),
            "task t: d.jsonl:1: field 'text' is empty");
  EXPECT_EQ(errorOf(kText, "\xff"), "task t: d.jsonl: is not valid UTF-8");
  EXPECT_EQ(errorOf(kChoice, R"({"q": 1, "answer": 0})"),
            "task t: d.jsonl:1: no field 'choices'; the fields are: q, answer");
  EXPECT_EQ(errorOf(kChoice, R"({"q": 1, "choices": ["a"], "answer": 0})"),
            "task t: d.jsonl:1: field 'choices' has 1 choice; give at least "
            "two");
  EXPECT_EQ(errorOf(kChoice, R"({"q": 1, "choices": ["a", ""], "answer": 0})"),
            "task t: d.jsonl:1: field 'choices' has an empty choice");
  EXPECT_EQ(errorOf(kChoice, R"({"q": 1, "choices": ["a", "b"], "answer": 2})"),
            "task t: d.jsonl:1: the answer 2 is not one of 2 choices, which "
            "count from 0");
  EXPECT_EQ(
      errorOf(kChoice, R"({"q": 1, "choices": ["a", "b"], "answer": "c"})"),
      "task t: d.jsonl:1: the answer 'c' is not one of the choices");
  EXPECT_EQ(errorOf(kChoice, R"({"q": {}, "choices": ["a", "b"]})"),
            "task t: d.jsonl:1: field 'q' must be a string");
  EXPECT_TRUE(errorOf(kPrompts, R"({"prompt": "a", "require": "("})")
                  .starts_with("task t: d.jsonl:1: the regular expression"));
  EXPECT_EQ(errorOf("tasks: [{name: t, kind: prompts, data: d.jsonl}]",
                    R"({"prompt": "a"})"),
            "task t: d.jsonl:1: neither the task nor the line has 'forbid' or "
            "'require', so any output would pass");
  EXPECT_EQ(
      errorOf("tasks: [{name: t, kind: prompts, data: d.txt}]", "a", "d.txt"),
      "task t: d.txt: the data of a prompts task must be a .jsonl file");
}

TEST_F(RunTasks, ATextFileIsOneDocument) {
  model.logprobs = {{"one\ntwo\n", -2}};
  auto results = run("tasks: [{name: t, kind: perplexity, data: d.txt}]",
                     "one\ntwo\n", "d.txt");
  ASSERT_TRUE(results.ok()) << results.message();
  EXPECT_DOUBLE_EQ(values(*results)["byte_perplexity"], std::exp(.25));
}

TEST(Extract, ExpressionsOneAfterAnother) {
  Task task;
  EXPECT_EQ(extract(" all ", task), " all ");
  task.extract = {"answer is -?[0-9]+", "-?[0-9]+"};
  EXPECT_EQ(extract("3, so the answer is -12.", task), "-12");
  EXPECT_EQ(extract("12", task), std::nullopt);
  task.extract = {"[0-9]+"};
  task.match = TakenMatch::last;
  EXPECT_EQ(extract("1, 2, 34", task), "34");
}

TEST(Extract, Normalization) {
  Task task;
  EXPECT_EQ(normalize(" A, b.\n", task), "A, b.");
  task.ignoreCase = task.ignorePunctuation = true;
  EXPECT_EQ(normalize(" A, B.\n", task), "a b");
  EXPECT_EQ(normalize("! A", task), "a");
  task.trim = false;
  EXPECT_EQ(normalize(" A, \u00c9.", task), " a \u00c9");
}

TEST(Windows, EachTokenIsScoredOnce) {
  for (int64_t tokens = 0; tokens < 40; ++tokens)
    for (int64_t window = 1; window < 12; ++window) {
      int64_t next = 0;
      for (const Window &each : rollingWindows(tokens, window)) {
        EXPECT_EQ(each.scored, next);
        EXPECT_GT(each.end, each.scored);
        EXPECT_LT(each.begin, each.scored);
        EXPECT_LE(each.end - each.begin, window + 1);
        // Full, but for a document that is shorter.
        if (tokens >= window)
          EXPECT_EQ(each.end - each.begin, window + 1);
        next = each.end;
      }
      EXPECT_EQ(next, tokens);
    }
}

TEST(Mean, StandardErrorOfTheSample) {
  EXPECT_FALSE(meanOf({3}).standardError);
  Mean mean = meanOf({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(mean.value, 2.5);
  EXPECT_DOUBLE_EQ(mean.standardError.value(), std::sqrt(5. / 3 / 4));
}

} // namespace
} // namespace tessera::eval
