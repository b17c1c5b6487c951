// The file of `tessera eval --tasks`: what is measured, on which data, and what
// the results must reach. docs/evaluating.md is for users.
#pragma once
#include "runtime/support/Status.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::eval {

enum class TaskKind : uint8_t {
  perplexity,
  multipleChoice,
  exactMatch,
  prompts,
  winRate
};
/// As the file has them, by TaskKind.
inline constexpr std::array<std::string_view, 5> kTaskKinds = {
    "perplexity", "multiple_choice", "exact_match", "prompts", "win_rate"};

/// Of expressions that extract an answer, which of several matches is taken.
enum class TakenMatch : uint8_t { first, last };

/// What a judge is asked, with {prompt}, {answer_a} and {answer_b}: after the
/// prompt "pair-v2" of MT-Bench (Zheng et al. 2023, figure 5).
extern const std::string_view kJudgePrompt;

/// What a kind is measured by.
std::span<const std::string_view> metricsOf(TaskKind kind);

struct Task {
  std::string name;
  TaskKind kind = TaskKind::perplexity;
  std::string data;  ///< path; relative ones begin at the task file
  int64_t limit = 0; ///< examples at most; 0: all
  std::vector<std::string> splitBy; ///< fields; results also by their values
  std::string prompt; ///< "Question: {question}\nAnswer:"; not for perplexity

  // all kinds with a prompt
  bool chat = false;  ///< rendered by the model's chat template
  std::string system; ///< content of a system message; empty: none

  // perplexity
  std::string text = "text"; ///< field of a line
  int64_t window = 0;        ///< tokens; 0: what the context holds

  // multiple_choice
  std::string choices = "choices"; ///< field

  // multiple_choice and exact_match
  std::string answer = "answer"; ///< field
  /// Between a prompt and a choice, or the answer of a shot; in a chat a
  /// multiple_choice task has none unless the file gives it.
  std::string delimiter = " ";
  int64_t shots = 0;      ///< solved examples before the prompt
  std::string shotsData;  ///< path; empty: `data`
  int64_t shotsSeed = -1; ///< they are drawn by it; -1: the first ones
  std::string shotDelimiter = "\n\n"; ///< after each; not in a chat

  // exact_match, prompts and win_rate
  std::vector<std::string> stop;
  int64_t maxTokens = 256;

  // exact_match
  std::vector<std::string> extract; ///< expressions, one after another
  TakenMatch match = TakenMatch::first;
  bool trim = true, ignoreCase = false, ignorePunctuation = false;

  // prompts: expressions that outputs must not, or must, contain
  std::vector<std::string> forbid, require;

  // win_rate
  std::string against;        ///< field with the other answer; empty: samples
  std::string againstSamples; ///< path of another model's --samples
  std::string judge;          ///< URL of a server; empty: given otherwise
  std::string judgeModel;     ///< empty: the first that the server lists
  std::string judgePrompt = std::string(kJudgePrompt);
  int64_t judgeMaxTokens = 1024;
  std::vector<std::string> verdict = {R"(\[\[[ABC]\]\])", "[ABC]"};
};

/// A result that must be at least, or at most, a value.
struct Gate {
  std::string text; ///< as in the file
  std::string task, metric;
  std::string group;   ///< "language=en"; empty: all examples
  bool isLeast = true; ///< `>=`; otherwise `<=`
  double bound = 0;
};

struct TaskFile {
  std::vector<Task> tasks; ///< at least one; names are distinct
  std::vector<Gate> gates;
};

/// Reads the file; errors begin with "FILE:LINE:COLUMN:".
StatusOr<TaskFile> loadTaskFile(const std::string &path);
/// The same with the contents of the file.
StatusOr<TaskFile> parseTaskFile(std::string_view text,
                                 const std::string &path);

} // namespace tessera::eval
