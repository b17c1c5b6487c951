// The task file: reading, and every error with its position.
#include "runtime/eval/TaskFile.h"

#include <gtest/gtest.h>

namespace tessera::eval {
namespace {

std::string errorOf(std::string_view text) {
  auto file = parseTaskFile(text, "t.yaml");
  return file.ok() ? "no error" : file.message();
}

std::string task(const std::string &more) {
  return "tasks:\n- name: a\n  data: a.jsonl\n  " + more;
}

TEST(TaskFile, EveryKeyIsRead) {
  auto file = parseTaskFile(R"(
tasks:
- {name: text, kind: perplexity, data: /d/text.txt, limit: 3, text: body,
   split_by: [language, source], window: 64}
- {name: choice, kind: multiple_choice, data: c.jsonl, prompt: "{q}",
   choices: options, delimiter: "", answer: label}
- {name: match, kind: exact_match, data: m.jsonl, prompt: "{q}", stop: [a, b],
   max_tokens: 7, extract: ["x[0-9]+", "[0-9]+"], match: last, trim: false,
   ignore_case: true, ignore_punctuation: true}
- {name: safe, kind: prompts, data: p.jsonl, forbid: bad, require: [good, y]}
gates:
- text.bits_per_byte{language=en} <= 1.5
- choice.acc>=-1e-3
)",
                            "folder/t.yaml");
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_EQ(file->tasks.size(), 4u);
  const Task &text = file->tasks[0], &choice = file->tasks[1],
             &match = file->tasks[2], &safe = file->tasks[3];
  EXPECT_EQ(text.kind, TaskKind::perplexity);
  EXPECT_EQ(text.data, "/d/text.txt");
  EXPECT_EQ(text.limit, 3);
  EXPECT_EQ(text.text, "body");
  EXPECT_EQ(text.splitBy, (std::vector<std::string>{"language", "source"}));
  EXPECT_EQ(text.window, 64);
  EXPECT_EQ(choice.data, "folder/c.jsonl");
  EXPECT_EQ(choice.prompt, "{q}");
  EXPECT_EQ(choice.choices, "options");
  EXPECT_EQ(choice.delimiter, "");
  EXPECT_EQ(choice.answer, "label");
  EXPECT_EQ(match.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(match.maxTokens, 7);
  EXPECT_EQ(match.extract.size(), 2u);
  EXPECT_EQ(match.match, TakenMatch::last);
  EXPECT_FALSE(match.trim);
  EXPECT_TRUE(match.ignoreCase);
  EXPECT_TRUE(match.ignorePunctuation);
  EXPECT_EQ(safe.prompt, "{prompt}");
  EXPECT_EQ(safe.forbid, std::vector<std::string>{"bad"});
  EXPECT_EQ(safe.require, (std::vector<std::string>{"good", "y"}));
  ASSERT_EQ(file->gates.size(), 2u);
  EXPECT_EQ(file->gates[0].metric, "bits_per_byte");
  EXPECT_EQ(file->gates[0].group, "language=en");
  EXPECT_FALSE(file->gates[0].isLeast);
  EXPECT_EQ(file->gates[1].task, "choice");
  EXPECT_EQ(file->gates[1].bound, -1e-3);
  EXPECT_TRUE(file->gates[1].isLeast);
}

TEST(TaskFile, ErrorsOfTheFile) {
  EXPECT_EQ(errorOf(""), "t.yaml: has no tasks; give a list under 'tasks'");
  EXPECT_EQ(errorOf("gates: []"),
            "t.yaml: has no tasks; give a list under 'tasks'");
  EXPECT_EQ(errorOf("gates: []\ntasks: []\ngates: []"),
            "t.yaml:3:1: the key 'gates' is given twice");
  EXPECT_EQ(errorOf("tasks: []"),
            "t.yaml:1:8: tasks must be a list of at least one task");
  EXPECT_EQ(errorOf("task: []"),
            "t.yaml:1:1: unknown key 'task', did you mean 'tasks'?; known "
            "keys: tasks or gates");
  EXPECT_EQ(errorOf("tasks: [3]"), "t.yaml:1:9: a task must be a mapping with "
                                   "name, kind and data");
  EXPECT_EQ(errorOf("tasks: ["), "t.yaml:1:1: is not valid YAML: end of "
                                 "sequence flow not found");
}

TEST(TaskFile, ErrorsOfATask) {
  EXPECT_EQ(errorOf("tasks: [{name: a}]"),
            "t.yaml:1:9: the task has no kind; give one of perplexity, "
            "multiple_choice, exact_match, prompts or win_rate");
  EXPECT_EQ(errorOf(task("kind: f1")),
            "t.yaml:4:9: unknown kind 'f1'; known kinds: perplexity, "
            "multiple_choice, exact_match, prompts or win_rate");
  EXPECT_EQ(errorOf(task("kind: prompt")),
            "t.yaml:4:9: unknown kind 'prompt', did you mean 'prompts'?; known "
            "kinds: perplexity, multiple_choice, exact_match, prompts or "
            "win_rate");
  EXPECT_EQ(errorOf(task("kind: perplexity\n  windw: 3")),
            "t.yaml:5:3: unknown key 'windw' of a perplexity task, did you "
            "mean 'window'?; known keys: kind, name, data, limit, text, "
            "split_by or window");
  EXPECT_EQ(errorOf(task("kind: perplexity\n  data: b")),
            "t.yaml:5:3: 'data' is given twice; keep one");
  EXPECT_EQ(errorOf(task("kind: perplexity\n  window: 1")),
            "t.yaml:5:11: window must be a whole number of at least 2, got "
            "'1'");
  EXPECT_EQ(errorOf(task("kind: exact_match\n  prompt: x\n  trim: 1")),
            "t.yaml:6:9: trim must be true or false");
  EXPECT_EQ(errorOf(task("kind: exact_match\n  prompt: x\n  match: all")),
            "t.yaml:6:10: match must be first or last");
  EXPECT_EQ(errorOf(task("kind: exact_match\n  prompt: x\n  stop: [[]]")),
            "t.yaml:6:9: stop must be a string or a list of them");
  EXPECT_EQ(errorOf(task("kind: exact_match\n  prompt: x\n  stop: ['']")),
            "t.yaml:6:9: stop must not have an empty string");
  EXPECT_EQ(errorOf(task("kind: multiple_choice")),
            "t.yaml:2:3: the task has no prompt, such as \"{question}\"");
  EXPECT_EQ(errorOf("tasks: [{name: a b, kind: prompts, data: d}]"),
            "t.yaml:1:9: a task needs a name of a-z, A-Z, 0-9, '_' and '-'");
  EXPECT_EQ(errorOf("tasks: [{name: a, kind: perplexity}]"),
            "t.yaml:1:9: the task has no data; give a .jsonl file or a text "
            "file");
  EXPECT_EQ(errorOf("tasks: [{name: a, kind: prompts, data: d}, {name: a, "
                    "kind: prompts, data: d}]"),
            "t.yaml:1:44: two tasks have the name 'a'");
  std::string regex =
      errorOf(task("kind: exact_match\n  prompt: x\n  extract: '('"));
  EXPECT_TRUE(regex.starts_with("t.yaml:6:12: ")) << regex;
  EXPECT_EQ(regex.find('\n'), std::string::npos);
}

TEST(TaskFile, ChatsAndShots) {
  auto file = parseTaskFile(R"(
tasks:
- {name: few, kind: multiple_choice, data: c.jsonl, prompt: "{q}", shots: 5,
   shots_data: s.jsonl, shots_seed: 0, shot_delimiter: "###"}
- {name: chat, kind: multiple_choice, data: c.jsonl, prompt: "{q}", chat: true,
   system: Be short.}
- {name: spaced, kind: multiple_choice, data: c.jsonl, prompt: "{q}",
   chat: true, delimiter: " "}
)",
                            "folder/t.yaml");
  ASSERT_TRUE(file.ok()) << file.message();
  const Task &few = file->tasks[0], &chat = file->tasks[1];
  EXPECT_EQ(few.shots, 5);
  EXPECT_EQ(few.shotsData, "folder/s.jsonl");
  EXPECT_EQ(few.shotsSeed, 0);
  EXPECT_EQ(few.shotDelimiter, "###");
  EXPECT_EQ(few.delimiter, " ");
  EXPECT_TRUE(chat.chat);
  EXPECT_EQ(chat.system, "Be short.");
  EXPECT_EQ(chat.delimiter, "");
  EXPECT_EQ(file->tasks[2].delimiter, " ");
  auto match = [](const std::string &keys) {
    return errorOf(task("kind: exact_match\n  prompt: x\n  " + keys));
  };
  EXPECT_EQ(match("system: x"), "t.yaml:6:11: system needs chat: true");
  EXPECT_EQ(match("shots_seed: 1"), "t.yaml:6:15: shots_seed needs shots");
  EXPECT_EQ(match("shots: 2000"), "t.yaml:6:10: shots must be at most 1000");
  EXPECT_EQ(match("chat: true\n  shots: 1\n  shot_delimiter: x"),
            "t.yaml:8:19: shot_delimiter has no effect in a chat, where shots "
            "are turns; leave it out");
  EXPECT_EQ(
      match("delimiter: x"),
      "t.yaml:6:14: delimiter of an exact_match task needs shots, and has "
      "no effect in a chat");
}

TEST(TaskFile, WinRates) {
  auto wins = [](const std::string &keys) {
    return errorOf(task("kind: win_rate\n  prompt: x\n  " + keys));
  };
  EXPECT_EQ(wins("against: b"), "no error");
  EXPECT_EQ(wins("against_samples: b\n  judge: http://[::1]:80/v1\n  "
                 "judge_model: m\n  verdict: '[ABC]'\n  judge_prompt: "
                 "'{answer_b}{answer_a}'\n  judge_max_tokens: 9\ngates:\n"
                 "- a.win_rate >= 0.5\n- a.judged >= 0.9"),
            "no error");
  EXPECT_EQ(parseTaskFile(task("kind: win_rate\n  prompt: x\n  "
                               "against_samples: b"),
                          "folder/t.yaml")
                ->tasks[0]
                .againstSamples,
            "folder/b");
  const std::string either =
      "t.yaml:2:3: give against, a field with the other answer, or "
      "against_samples, a file of another model's samples";
  EXPECT_EQ(wins("stop: x"), either);
  EXPECT_EQ(wins("against: a\n  against_samples: b"), either);
  EXPECT_EQ(wins("against: b\n  judge_prompt: '{answer_a}'"),
            "t.yaml:7:17: judge_prompt must have {answer_b}");
  EXPECT_EQ(wins("against: b\n  verdict: []"),
            "t.yaml:2:3: verdict needs an expression that finds A, B or C");
  EXPECT_EQ(wins("against: b\n  judge: https://a"),
            "t.yaml:7:10: judge: the server must be http://HOST:PORT, got: "
            "'https://a'");
  EXPECT_EQ(wins("shots: 3")
                .find("t.yaml:6:3: unknown key 'shots' of a "
                      "win_rate task"),
            0u);
}

TEST(TaskFile, ErrorsOfGates) {
  auto gates = [](const std::string &gate) {
    return errorOf(task("kind: prompts\ngates:\n- " + gate));
  };
  EXPECT_EQ(gates("a.pass_rate >= 0.5"), "no error");
  for (const char *bad : {"a.pass_rate", "a.pass_rate > 0.5", "pass_rate >= 1",
                          "a.pass_rate >= x", "a.pass_rate{b >= 1",
                          "a.pass_rate >= 0.5 now", "a.pass_rate >= nan"})
    EXPECT_EQ(gates(bad), "t.yaml:6:3: a gate is TASK.METRIC >= NUMBER, or <=")
        << bad;
  EXPECT_EQ(gates("a.pas_rate >= 1"),
            "t.yaml:6:3: task a has no metric 'pas_rate', did you mean "
            "'pass_rate'?; it has pass_rate");
  EXPECT_EQ(gates("other.pass_rate >= 1"),
            "t.yaml:6:3: unknown task 'other'; the tasks are a");
  EXPECT_EQ(errorOf(task("kind: prompts\ngates: 3")),
            "t.yaml:5:8: gates must be a list, such as - qa.acc >= 0.5");
}

} // namespace
} // namespace tessera::eval
