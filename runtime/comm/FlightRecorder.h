// What this rank did last with others, for the moment when nothing moves any
// more.
#pragma once
#include "runtime/comm/Collective.h"

#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::comm {

using Clock = std::chrono::steady_clock;

/// One collective of this rank.
struct Record {
  enum class State : std::uint8_t { queued, running, done };

  Signature signature;               ///< of an exchange, what it sends
  const Group *group = nullptr;      ///< outlives the recorder
  int sendTo = -1, receiveFrom = -1; ///< exchanges: ranks
  std::uint64_t receiveElements = 0; ///< exchanges
  std::uint64_t receiveSequence = 0;
  State state = State::queued;
  Clock::time_point queued, started, ended;

  /// "all_reduce #17 f32[4096] of group {0,1,2,3}", "recv #3 f32[16] from rank
  /// 2 in group {1,2}"
  std::string text() const;
};

/// The last collectives, in the order in which they were started. Thread-safe.
class FlightRecorder {
public:
  static constexpr std::size_t kRecords = 64;

  /// Returns an id for start() and end(), valid until the record is
  /// overwritten.
  std::uint64_t add(const Record &record);
  void start(std::uint64_t id, Clock::time_point when);
  void end(std::uint64_t id, Clock::time_point when);
  /// Oldest first.
  std::vector<Record> records() const;

  /// Lines for display: the last ones that ended, and all that have not.
  std::string describe() const;
  /// Writes all as JSON: rank, size, reason, time; of each collective its name,
  /// sequence, type, elements, channel, group, peers, state, and seconds ago
  /// when it was queued, started and ended.
  Status write(const std::string &path, int rank, int size,
               const std::string &reason) const;

private:
  void change(std::uint64_t id, Record::State state, Clock::time_point when);
  mutable std::mutex mutex;
  std::array<Record, kRecords> ring;
  std::uint64_t added = 0;
};

} // namespace tessera::comm
