// What a completion is worth.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::rl {

struct RewardQuestion {
  std::string_view promptLine; ///< of the prompt file: a JSON object
  std::string_view completion;
  bool isCut = false; ///< it ended at rollout.max_tokens
};

class Reward {
public:
  virtual ~Reward() = default;
  /// Starts what scores, so that the first question need not wait for it. If
  /// it has been started: an error if it has ended.
  virtual Status begin() { return Status::success(); }
  /// A number of at most 1e15 in size. After an error the next question may
  /// still succeed.
  virtual StatusOr<double> score(const RewardQuestion &question) = 0;
  /// From another thread: the question that is being asked, and all later ones,
  /// fail soon.
  virtual void interrupt() {}
};

/// A program that `/bin/sh -c COMMAND` starts once. It reads a line of JSON for
/// each completion,
///   {"id": 7, "prompt": PROMPT_LINE, "completion": "…", "finish_reason":
///   "stop"}
/// and answers each with a line that is a number, or the id and a number,
/// before it reads the next (its output must be flushed). A program that does
/// not answer within `seconds`, exits, or writes something else is killed, and
/// started again for the next question.
std::unique_ptr<Reward> rewardProgram(std::string command, int64_t seconds);

/// A server at "http://HOST[:PORT][/PATH]". For each completion the same line
/// is the body of a POST, and the answer's body is a number or an object with
/// the number as `reward`. Another status than 200, or no answer within
/// `seconds`, is an error.
StatusOr<std::unique_ptr<Reward>> rewardServer(std::string_view url,
                                               int64_t seconds);

/// An error unless the number can be a reward.
StatusOr<double> checkedReward(double number);

/// The line that asks.
std::string printQuestion(const RewardQuestion &question, uint64_t id);

} // namespace tessera::rl
