// Profiles of programs: totals for each step, and a trace.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::hal {

/// A step of the program as the profile shows it. The strings point into the
/// artifact.
struct ProfiledStep {
  std::string_view what;   ///< the kernel's name, "copy", "all_reduce", …
  std::string_view origin; ///< graph op or module path
  std::uint64_t flops = 0; ///< of one run; 0 where unknown
  std::uint64_t bytes = 0;
  std::uint64_t runs = 0;
  std::uint64_t nanoseconds = 0; ///< of all runs
  bool isCollective = false;     ///< among ranks, or the wait for one
};

struct TraceEvent {
  std::uint32_t step;
  std::uint64_t start; ///< nanoseconds of the monotonic clock
  std::uint64_t duration;
};

/// Filled by a command list; all memory is taken when it is made.
class Profile {
public:
  Profile(std::string_view program, std::vector<ProfiledStep> steps,
          std::size_t traceEvents);

  void add(std::uint32_t step, std::uint64_t start, std::uint64_t end);

  std::string_view program() const { return name; }
  std::span<const ProfiledStep> steps() const { return measured; }
  std::span<const TraceEvent> events() const { return trace; }
  std::uint64_t droppedEvents() const { return dropped; }
  std::uint64_t nanoseconds() const;
  /// In collectives, including the time in which other ranks are waited for.
  std::uint64_t collectiveNanoseconds() const;

  /// A table for display, steps of one kernel together, slowest first: fraction
  /// of the time, milliseconds, runs, GFLOP/s and GB/s where known, and the
  /// origin that took most of it.
  std::string table() const;

private:
  std::string_view name;
  std::vector<ProfiledStep> measured;
  std::vector<TraceEvent> trace;
  std::uint64_t dropped = 0;
};

/// Chrome trace JSON of several programs, one track each; opens in Perfetto.
std::string chromeTrace(std::span<const Profile *const> profiles);

} // namespace tessera::hal
