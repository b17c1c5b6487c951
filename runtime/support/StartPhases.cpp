#include "runtime/support/StartPhases.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <unistd.h>

namespace tessera {

/// Seconds since this process was started; 0 if that is not known.
static double processAge() {
  std::ifstream file("/proc/self/stat");
  std::string stat{std::istreambuf_iterator<char>(file), {}};
  // proc(5): the name, field 2, may hold anything, but for the last bracket;
  // starttime is field 22, in clock ticks since boot.
  size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != stat.npos; ++field)
    at = stat.find(' ', at + 1);
  timespec now{};
  const long ticks = ::sysconf(_SC_CLK_TCK);
  if (at == stat.npos || ticks <= 0 ||
      ::clock_gettime(CLOCK_BOOTTIME, &now) != 0)
    return 0;
  const double started =
      double(std::strtoull(stat.c_str() + at, nullptr, 10)) / double(ticks);
  return std::max(0.0,
                  double(now.tv_sec) + 1e-9 * double(now.tv_nsec) - started);
}

StartPhases::StartPhases()
    : begin(Clock::now() - std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(processAge()))),
      last(begin) {}

void StartPhases::end(std::string name) {
  const Clock::time_point now = Clock::now();
  phases.emplace_back(std::move(name),
                      std::chrono::duration<double>(now - last).count());
  last = now;
}

std::string StartPhases::describe() const {
  std::string text = fmt::format(
      "{:.2f} s (", std::chrono::duration<double>(last - begin).count());
  for (size_t i = 0; i < phases.size(); ++i)
    text += fmt::format("{}{} {:.2f}", i ? ", " : "", phases[i].first,
                        phases[i].second);
  return text + ")";
}

} // namespace tessera
