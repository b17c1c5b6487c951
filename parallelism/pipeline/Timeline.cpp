#include "parallelism/pipeline/Timeline.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include <nlohmann/json.hpp>

namespace tessera::pipeline {

Timeline joined(Timeline first, const Timeline &second) {
  Simulation &run = first.run;
  const double start = run.makespan;
  auto moved = [&](Span span) {
    return Span{span.start + start, span.end + start};
  };
  run.makespan += second.run.makespan;
  double busy = 0;
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const RankUse &then = second.run.ranks[rank];
    RankUse &use = run.ranks[rank];
    use.busy += then.busy;
    use.idle = run.makespan - use.busy;
    use.peakLive = std::max(use.peakLive, then.peakLive);
    use.peakBytes = std::max(use.peakBytes, then.peakBytes);
    busy += use.busy;
    for (const Span &each : second.run.spans[rank])
      run.spans[rank].push_back(moved(each));
  }
  for (Transfer each : second.run.transfers) {
    each.instruction += int32_t(first.schedule.lists[size_t(each.from)].size());
    each.span = moved(each.span);
    run.transfers.push_back(each);
  }
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const InstructionList &then = second.schedule.lists[rank];
    InstructionList &list = first.schedule.lists[rank];
    list.insert(list.end(), then.begin(), then.end());
  }
  if (run.makespan > 0)
    run.bubbleFraction = 1 - busy / (run.makespan * first.schedule.ranks);
  first.schedule.name = fmt::format(
      "{}, then {}",
      first.schedule.forwardOnly ? "forwards" : first.schedule.name,
      second.schedule.name.empty() ? "schedule" : second.schedule.name);
  first.schedule.forwardOnly &= second.schedule.forwardOnly;
  return first;
}

/// For each of `columns` equal intervals of the makespan, the operation to
/// which a rank gives most of its working time; a dot if it waits for more than
/// half of the interval.
static std::string lineOf(const InstructionList &list,
                          const std::vector<Span> &spans, double makespan,
                          int columns) {
  std::string line(size_t(columns), '.');
  const double width = makespan / columns;
  if (width <= 0)
    return line;
  std::vector<std::array<double, opCount>> shares(static_cast<size_t>(columns));
  for (size_t k = 0; k < list.size(); ++k) {
    if (!isCompute(list[k].op))
      continue;
    const auto [start, end] = spans[k];
    const int first = std::clamp(int(start / width), 0, columns - 1);
    const int last = std::clamp(int(end / width), 0, columns - 1);
    for (int column = first; column <= last; ++column)
      shares[size_t(column)][size_t(list[k].op)] +=
          std::max(0.0, std::min(end, (column + 1) * width) -
                            std::max(start, column * width));
  }
  for (size_t column = 0; column < shares.size(); ++column) {
    const auto &share = shares[column];
    const double busy = std::accumulate(share.begin(), share.end(), 0.0);
    if (busy >= width / 2)
      line[column] =
          name(Op(std::ranges::max_element(share) - share.begin())).front();
  }
  return line;
}

std::string timelineText(const Schedule &schedule, const Simulation &run,
                         int columns) {
  columns = std::max(columns, 1);
  std::string text =
      fmt::format("{}: {} ranks, {} stages, {} microbatches: {:.6g} in all, "
                  "bubble {:.1f}%\n",
                  schedule.name.empty() ? "schedule" : schedule.name,
                  schedule.ranks, schedule.stages, schedule.microbatches,
                  run.makespan, 100 * run.bubbleFraction);
  auto out = std::back_inserter(text);
  for (size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    const RankUse &use = run.ranks[rank];
    const double busy = run.makespan > 0 ? use.busy / run.makespan : 0;
    fmt::format_to(
        out, "rank {:<4} {}  busy {:.1f}%, {} live\n", rank,
        lineOf(schedule.lists[rank], run.spans[rank], run.makespan, columns),
        100 * busy, use.peakLive);
  }
  return text;
}

std::string timelineTrace(const Schedule &schedule, const Simulation &run,
                          double unit) {
  using nlohmann::json;
  constexpr double microseconds = 1e6;
  json events = json::array();
  auto nameTrack = [&](size_t track, std::string title) {
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", 0},
                      {"tid", track},
                      {"args", {{"name", std::move(title)}}}});
  };
  for (size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    nameTrack(2 * rank, fmt::format("rank {}", rank));
    nameTrack(2 * rank + 1, fmt::format("rank {} transfers", rank));
    const InstructionList &list = schedule.lists[rank];
    for (size_t k = 0; k < list.size(); ++k) {
      const Instruction &each = list[k];
      const Span span = run.spans[rank][k];
      const bool overlaps = !isCompute(each.op) && each.op != Op::OptimizerStep;
      json args = json::object();
      if (each.work.stage >= 0)
        args["stage"] = each.work.stage;
      if (each.work.microbatch >= 0)
        args["microbatch"] = each.work.microbatch;
      if (each.work.buffer >= 0)
        args["buffer"] = each.work.buffer;
      events.push_back({{"ph", "X"},
                        {"name", toString(each)},
                        {"cat", name(each.op)},
                        {"pid", 0},
                        {"tid", 2 * rank + size_t(overlaps)},
                        {"ts", span.start * unit * microseconds},
                        {"dur", (span.end - span.start) * unit * microseconds},
                        {"args", std::move(args)}});
    }
  }
  const json trace = {
      {"traceEvents", std::move(events)},
      {"displayTimeUnit", "ms"},
      {"otherData",
       {{"schedule", schedule.name}, {"bubbleFraction", run.bubbleFraction}}}};
  return trace.dump(-1, ' ', false, json::error_handler_t::replace);
}

} // namespace tessera::pipeline
