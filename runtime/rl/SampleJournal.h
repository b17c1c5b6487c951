// RUN/samples.jsonl: the completions that a run has learned from or will. Its
// first line says what they are of, then there is a line for each group:
//
//   {"format": "tessera-samples", "version": 1, "seed": 1337,
//    "prompts": "XXH3-64 of the prompt file", "reward": "python3 match.py",
//    "check": "…"}
//
// (and "epochs" and "minibatches" after the prompts, if they are not 1)
//
//   {"group": 12, "prompt": 3, "prompt_tokens": [5, 9],
//    "samples": [{"tokens": [7, 2], "log_probs": [-0.25, -1.5],
//                 "versions": [4, 4], "finish_reason": "stop", "reward": 1}],
//    "check": "00c5…16 hex digits"}
//
// A run that goes on with another reward has a line
//
//   {"reward": "python3 other.py", "check": "…"}
//
// Where several steps learn from the same completions with a value head, a line
//
//   {"values": 12, "tokens": [0.5, -0.25], "check": "…"}
//
// has what the value head gave before the first of them for each learned token
// of the groups from number 12 on, in the order of the batch.
//
// With a reference model a sample has `reference_log_probs` in addition.
// `prompt` counts lines of the prompt file, `versions` are steps of the
// learner, those of the same completions counted as one, whose weights sampled
// the token, `check` is the XXH3-64 of the line's bytes before it. Numbers read
// back bit for bit, so a step computed again from its lines is the same step.
// Lines are in the order in which rewards arrived.
#pragma once
#include "runtime/data/FileOperations.h"
#include "runtime/rl/Samples.h"

namespace tessera::rl {

inline constexpr const char *kJournalFile = "samples.jsonl";

/// What completions are sampled for.
struct JournalSource {
  uint64_t seed = 0;
  uint64_t prompts = 0;     ///< XXH3-64 of the lines and tokens of all
  uint64_t epochs = 1;      ///< times that completions are learned from
  uint64_t minibatches = 1; ///< their parts, each of which a step learns from
  /// What gives the rewards. May change; empty in journals of before it was
  /// written.
  std::string reward = {};
};

/// What a value head gave for the learned tokens of a batch, whose first group
/// is number `first`.
struct ValueEstimates {
  uint64_t first = 0;
  std::vector<float> tokens;
};

/// Whether a journal writes both as the same: what is not UTF-8 is replaced.
bool isSameReward(const std::string &one, const std::string &other);

/// The line of a group, with its newline.
std::string printGroup(const Group &group);
/// Its group; `where` begins errors.
StatusOr<Group> parseGroup(std::string_view line, const std::string &where);

class SampleJournal {
public:
  /// Opens the journal in `run`, or creates it. A last line that is not
  /// whole, which a crash leaves, is removed; any other damage is an error, as
  /// is a journal of another source. `groups` receives those from number
  /// `first` on, in the order of the file, and `values` those of the batch that
  /// begins there, if the journal has them.
  static StatusOr<SampleJournal>
  open(const std::string &run, const JournalSource &source, uint64_t first,
       std::vector<Group> &groups, FileOperations &files = systemFiles(),
       std::optional<ValueEstimates> *values = nullptr);
  SampleJournal(SampleJournal &&other) noexcept;
  SampleJournal &operator=(SampleJournal &&) = delete;
  ~SampleJournal();

  /// What gave the last rewards; empty: not known.
  const std::string &lastReward() const { return reward; }

  /// Durable when it returns.
  Status append(const Group &group);
  /// Writes that another reward gives those of the groups to come.
  Status appendReward(const std::string &now);
  Status append(const ValueEstimates &values);

private:
  SampleJournal(FileOperations &files, std::string path, int fd)
      : files(files), path(std::move(path)), fd(fd) {}
  /// Writes a line that is durable when it returns.
  Status append(std::string_view line);
  FileOperations &files;
  std::string path;
  std::string reward;
  int fd;
};

} // namespace tessera::rl
