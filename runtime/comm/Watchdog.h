// Finds out which rank is missing when a collective makes no progress: asks the
// other ranks for their progress, and reports the answers in one line.
#pragma once
#include "runtime/comm/Operation.h"

#include <span>

namespace tessera::comm {

/// Used only by the engine's thread.
///
/// An operation without progress for half of the timeout repeatedly asks all
/// ranks that it could wait for. After the timeout the report names ranks that
/// have not reached the operation or do not answer. A rank that is late because
/// it waits for another one, and says so, has a quarter of the timeout more, so
/// that the rank closest to the cause reports first.
class Watchdog {
public:
  Watchdog(ControlLine &control, int rank, std::chrono::milliseconds timeout)
      : control(control), rank(rank), timeout(timeout) {}

  /// Sends the questions that are due. An error ends the world: which rank is
  /// missing in which collective.
  Status check(std::span<Operation *const> running);
  /// For a short time, all waiting operations ask immediately: the process got
  /// a signal to end, perhaps because another rank died, and should report
  /// before it is killed.
  void hurry();
  /// After hurry(), once: which rank is missing in which collective, if any.
  std::optional<std::string> hurriedReport(std::span<Operation *const> running);

  static void take(std::span<Operation *const> running, int from,
                   const ControlMessage &answer);

private:
  struct Diagnosis {
    std::string line;
    bool isSomebodyElse; ///< all missing ranks wait for other ranks
  };
  void ask(Operation &operation);
  /// A rank whose last answer is older than that counts as silent.
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
