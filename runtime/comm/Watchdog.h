// Finds out who is missing when a collective does not move: asks the others
// where they are, and puts the answers into one line.
#pragma once
#include "runtime/comm/Operation.h"

#include <span>

namespace tessera::comm {

/// Used by the engine's thread alone.
///
/// An operation that has not moved for half of the timeout asks everybody it
/// could wait for how far they are, again and again. After the timeout those
/// who are not there, or do not answer, are named. A rank that is late only
/// because it waits for somebody else, and says so, has a quarter of the
/// timeout more: the one that is closer to the cause shall speak first.
class Watchdog {
public:
  Watchdog(ControlLine &control, int rank, std::chrono::milliseconds timeout)
      : control(control), rank(rank), timeout(timeout) {}

  /// Asks what is to be asked. An error is the end of the world: who is missing
  /// in which collective.
  Status check(std::span<Operation *const> running);
  /// From now on for a moment, operations that wait at all ask at once: the
  /// process was told to end, perhaps because another rank died, and what is
  /// known should be written before it is killed.
  void hurry();
  /// After hurry(), once: who is missing in what, if anybody is.
  std::optional<std::string> hurriedReport(std::span<Operation *const> running);

  static void take(std::span<Operation *const> running, int from,
                   const ControlMessage &answer);

private:
  struct Diagnosis {
    std::string line;
    bool isSomebodyElse; ///< all who are missing wait for others themselves
  };
  void ask(Operation &operation);
  /// Whose last answer is older than that does not answer.
  Diagnosis diagnose(const Operation &operation,
                     Clock::time_point silentBefore) const;
  Clock::duration interval() const;

  ControlLine &control;
  int rank;
  Clock::duration timeout;
  std::optional<Clock::time_point> hurrySince;
  bool hasReported = false;
};

/// "rank 2", "ranks 0, 1 and 5"
std::string rankList(const std::vector<int> &ranks);

} // namespace tessera::comm
