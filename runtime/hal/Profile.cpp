#include "runtime/hal/Profile.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera::hal {
namespace {

/// All steps of one kernel.
struct Row {
  ProfiledStep sum;
  std::uint64_t flops = 0, bytes = 0; // of all runs
  std::uint64_t slowestOrigin = 0;    // nanoseconds of sum.origin
};

std::vector<Row> rowsByKernel(std::span<const ProfiledStep> steps) {
  std::map<std::string_view, Row> rows;
  for (const ProfiledStep &step : steps) {
    Row &row = rows[step.what];
    row.sum.what = step.what;
    row.sum.runs += step.runs;
    row.sum.nanoseconds += step.nanoseconds;
    row.flops += step.flops * step.runs;
    row.bytes += step.bytes * step.runs;
    if (step.nanoseconds >= row.slowestOrigin) {
      row.slowestOrigin = step.nanoseconds;
      row.sum.origin = step.origin;
    }
  }
  std::vector<Row> sorted;
  sorted.reserve(rows.size());
  for (auto &[name, row] : rows)
    sorted.push_back(row);
  std::sort(sorted.begin(), sorted.end(), [](const Row &a, const Row &b) {
    return std::pair(b.sum.nanoseconds, a.sum.what) <
           std::pair(a.sum.nanoseconds, b.sum.what);
  });
  return sorted;
}

/// Work a nanosecond is 10⁹ a second: GFLOP/s or GB/s. "-" where unknown.
std::string rate(std::uint64_t work, std::uint64_t nanoseconds) {
  if (!work || !nanoseconds)
    return "-";
  return fmt::format("{:.1f}", static_cast<double>(work) /
                                   static_cast<double>(nanoseconds));
}

} // namespace

Profile::Profile(std::string_view program, std::vector<ProfiledStep> steps,
                 std::size_t traceEvents)
    : name(program), measured(std::move(steps)) {
  trace.reserve(traceEvents);
}

void Profile::add(std::uint32_t step, std::uint64_t start, std::uint64_t end) {
  ++measured[step].runs;
  measured[step].nanoseconds += end - start;
  if (trace.size() < trace.capacity())
    trace.push_back({step, start, end - start});
  else
    ++dropped;
}

std::uint64_t Profile::nanoseconds() const {
  std::uint64_t sum = 0;
  for (const ProfiledStep &step : measured)
    sum += step.nanoseconds;
  return sum;
}

std::uint64_t Profile::collectiveNanoseconds() const {
  std::uint64_t sum = 0;
  for (const ProfiledStep &step : measured)
    if (step.isCollective)
      sum += step.nanoseconds;
  return sum;
}

std::string Profile::table() const {
  const std::uint64_t total = nanoseconds();
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "{}: {:.3f} ms in {} steps\n", name,
                 static_cast<double>(total) / 1e6, measured.size());
  fmt::format_to(out, "{:>6} {:>12} {:>9} {:>9} {:>8}  {}\n", "share", "ms",
                 "runs", "GFLOP/s", "GB/s", "kernel (slowest origin)");
  for (const Row &row : rowsByKernel(measured)) {
    const std::uint64_t time = row.sum.nanoseconds;
    fmt::format_to(
        out, "{:>5.1f}% {:>12.3f} {:>9} {:>9} {:>8}  {}{}{}{}\n",
        total ? 100.0 * static_cast<double>(time) / static_cast<double>(total)
              : 0.0,
        static_cast<double>(time) / 1e6, row.sum.runs, rate(row.flops, time),
        rate(row.bytes, time), row.sum.what, row.sum.origin.empty() ? "" : " (",
        row.sum.origin, row.sum.origin.empty() ? "" : ")");
  }
  return text;
}

std::string chromeTrace(std::span<const Profile *const> profiles) {
  using nlohmann::json;
  json events = json::array();
  std::uint64_t dropped = 0;
  for (std::size_t track = 0; track < profiles.size(); ++track) {
    const Profile &profile = *profiles[track];
    dropped += profile.droppedEvents();
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", 0},
                      {"tid", track},
                      {"args", {{"name", profile.program()}}}});
    for (const TraceEvent &event : profile.events()) {
      const ProfiledStep &step = profile.steps()[event.step];
      events.push_back({{"ph", "X"},
                        {"name", step.what},
                        {"cat", profile.program()},
                        {"pid", 0},
                        {"tid", track},
                        {"ts", static_cast<double>(event.start) / 1e3},
                        {"dur", static_cast<double>(event.duration) / 1e3},
                        {"args", {{"origin", step.origin}}}});
    }
  }
  const json trace = {{"traceEvents", std::move(events)},
                      {"displayTimeUnit", "ns"},
                      {"otherData", {{"droppedEvents", dropped}}}};
  // An origin may hold bytes that are not UTF-8; they become U+FFFD.
  return trace.dump(-1, ' ', false, json::error_handler_t::replace);
}

} // namespace tessera::hal
