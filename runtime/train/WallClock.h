// Where the wall-clock of a training run goes: its goodput.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace tessera {

using Clock = std::chrono::steady_clock;

inline double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// In seconds since the first step of a run.
struct WallClock {
  Clock::time_point begin;
  double steps = 0, reading = 0, evaluating = 0, saving = 0;
  uint64_t tokens = 0;

  double total() const { return std::max(secondsSince(begin), 1e-9); }
  double goodput() const { return double(tokens) / total(); }
  std::string describe() const;
};

} // namespace tessera
