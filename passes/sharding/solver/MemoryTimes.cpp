#include "passes/sharding/solver/MemoryTimes.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace tessera::solver {

void loadTimes(const Problem &problem, ReductionGraph &graph) {
  if (problem.usageLimit < 0)
    return;
  for (const Node &node : problem.nodes)
    if (node.begin < node.end)
      graph.timePoints.push_back(node.begin);
  std::ranges::sort(graph.timePoints);
  graph.timePoints.erase(std::ranges::unique(graph.timePoints).begin(),
                         graph.timePoints.end());
  graph.capacity.assign(graph.timePoints.size(), problem.usageLimit);
  graph.certain.assign(graph.timePoints.size() + 1, 0);
  auto position = [&](std::int64_t time) {
    return static_cast<int>(std::ranges::lower_bound(graph.timePoints, time) -
                            graph.timePoints.begin());
  };
  for (std::size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    if (node.begin < node.end)
      graph.variables[i].parts.push_back(
          {position(node.begin), position(node.end), node.usages});
    graph.variables[i].partsStale = true;
  }
}

/// The usages of one variable, in order of time.
class UsageSweep {
public:
  UsageSweep(const std::vector<UsagePart> &parts, std::size_t values)
      : parts(parts), now(values) {
    for (std::size_t k = 0; k < parts.size(); ++k) {
      bounds.emplace_back(parts[k].begin, static_cast<int>(k));
      bounds.emplace_back(parts[k].end, ~static_cast<int>(k));
    }
    std::ranges::sort(bounds);
  }
  /// Advances to the next interval without a change; false after the last.
  bool next() {
    if (at == bounds.size())
      return false;
    begin = bounds[at].first;
    for (; at < bounds.size() && bounds[at].first == begin; ++at) {
      const int k = bounds[at].second;
      for (std::size_t i = 0; i < now.size(); ++i)
        now[i] += k < 0 ? -parts[~k].usage[i] : parts[k].usage[i];
    }
    end = at < bounds.size() ? bounds[at].first : begin;
    return true;
  }
  int begin = 0, end = 0;
  const std::vector<std::int64_t> &usage() const { return now; }

private:
  const std::vector<UsagePart> &parts;
  std::vector<std::int64_t> now;
  std::vector<std::pair<int, int>> bounds; // time, part that begins or ~ends
  std::size_t at = 0;
};

void normalizeParts(ReductionGraph &graph, int v) {
  ReductionGraph::Variable &variable = graph.variables[v];
  std::vector<UsagePart> parts;
  UsageSweep sweep(variable.parts, variable.size());
  while (sweep.next()) {
    if (sweep.begin == sweep.end)
      break;
    const auto [least, most] = std::ranges::minmax(sweep.usage());
    graph.certain[sweep.begin] += least;
    graph.certain[sweep.end] -= least;
    if (least == most)
      continue;
    std::vector<std::int64_t> usage = sweep.usage();
    for (std::int64_t &each : usage)
      each -= least;
    if (!parts.empty() && parts.back().end == sweep.begin &&
        parts.back().usage == usage)
      parts.back().end = sweep.end;
    else
      parts.push_back({sweep.begin, sweep.end, std::move(usage)});
  }
  variable.parts = std::move(parts);
  variable.partsStale = false;
}

/// Least value over ranges: a table of the ranges whose length is a power of
/// two.
class RangeMinimum {
public:
  explicit RangeMinimum(std::vector<std::int64_t> values) {
    rows.push_back(std::move(values));
    for (std::size_t length = 2; length <= rows[0].size(); length *= 2) {
      const std::vector<std::int64_t> &last = rows.back();
      std::vector<std::int64_t> row(rows[0].size() - length + 1);
      for (std::size_t i = 0; i < row.size(); ++i)
        row[i] = std::min(last[i], last[i + length / 2]);
      rows.push_back(std::move(row));
    }
  }
  /// Over [begin, end), which is not empty.
  std::int64_t operator()(int begin, int end) const {
    const int level = std::bit_width(static_cast<unsigned>(end - begin)) - 1;
    return std::min(rows[level][begin], rows[level][end - (1 << level)]);
  }

private:
  std::vector<std::vector<std::int64_t>> rows;
};

static void forbidWhatNeverFits(ReductionGraph &graph,
                                std::vector<int> &changed) {
  const RangeMinimum capacity(graph.capacity);
  for (std::size_t v = 0; v < graph.variables.size(); ++v) {
    ReductionGraph::Variable &variable = graph.variables[v];
    for (const UsagePart &part : variable.parts) {
      const std::int64_t most = capacity(part.begin, part.end);
      for (std::size_t i = 0; i < part.usage.size(); ++i)
        if (part.usage[i] > most && !isForbidden(variable.cost[i])) {
          variable.cost[i] = kForbidden;
          changed.push_back(static_cast<int>(v));
        }
    }
  }
}

/// Whether some value uses more, and whether some value uses less, than at the
/// time before.
struct Changes {
  std::vector<bool> rises, falls;
};

static Changes findChanges(const ReductionGraph &graph) {
  Changes changes{std::vector<bool>(graph.timePoints.size() + 1),
                  std::vector<bool>(graph.timePoints.size() + 1)};
  for (const ReductionGraph::Variable &variable : graph.variables) {
    const UsagePart *before = nullptr;
    for (const UsagePart &part : variable.parts) {
      if (before && before->end == part.begin) {
        for (std::size_t i = 0; i < part.usage.size(); ++i) {
          if (part.usage[i] > before->usage[i])
            changes.rises[part.begin] = true;
          if (part.usage[i] < before->usage[i])
            changes.falls[part.begin] = true;
        }
      } else {
        changes.rises[part.begin] = true;
      }
      if (before)
        changes.falls[before->end] =
            changes.falls[before->end] || before->end < part.begin;
      before = &part;
    }
    if (before)
      changes.falls[before->end] = true;
  }
  return changes;
}

/// Which times must be kept: where usage can exceed the capacity, unless it
/// then does so as well at the time kept before or after.
static std::vector<bool> timesThatMatter(const ReductionGraph &graph) {
  const std::size_t count = graph.timePoints.size();
  std::vector<std::int64_t> most(count + 1);
  for (const ReductionGraph::Variable &variable : graph.variables)
    for (const UsagePart &part : variable.parts) {
      most[part.begin] += std::ranges::max(part.usage);
      most[part.end] -= std::ranges::max(part.usage);
    }
  std::partial_sum(most.begin(), most.end(), most.begin());
  const Changes changes = findChanges(graph);
  const std::vector<std::int64_t> &capacity = graph.capacity;
  std::vector<bool> matters(count);
  std::ptrdiff_t last = -1;           // the time kept last
  bool risen = false, fallen = false; // since then
  for (std::size_t t = 0; t < count; ++t) {
    risen = risen || changes.rises[t];
    fallen = fallen || changes.falls[t];
    if (most[t] <= capacity[t])
      continue;
    if (last >= 0 && !risen && capacity[t] >= capacity[last])
      continue;
    if (last >= 0 && !fallen && capacity[last] >= capacity[t])
      matters[last] = false;
    matters[t] = true;
    last = static_cast<std::ptrdiff_t>(t);
    risen = fallen = false;
  }
  return matters;
}

/// Renumbers the times; parts without a time vanish.
static void keepTimes(ReductionGraph &graph, const std::vector<bool> &kept,
                      std::vector<int> &changed) {
  std::vector<int> position(kept.size() + 1);
  std::size_t count = 0;
  for (std::size_t t = 0; t < kept.size(); ++t) {
    position[t] = static_cast<int>(count);
    if (kept[t]) {
      graph.timePoints[count] = graph.timePoints[t];
      graph.capacity[count++] = graph.capacity[t];
    }
  }
  position[kept.size()] = static_cast<int>(count);
  graph.timePoints.resize(count);
  graph.capacity.resize(count);
  graph.certain.assign(count + 1, 0);
  for (std::size_t v = 0; v < graph.variables.size(); ++v) {
    std::vector<UsagePart> &parts = graph.variables[v].parts;
    for (UsagePart &part : parts) {
      part.begin = position[part.begin];
      part.end = position[part.end];
    }
    auto empty = [](const UsagePart &part) { return part.begin == part.end; };
    if (std::erase_if(parts, empty) > 0)
      changed.push_back(static_cast<int>(v));
  }
}

Status tightenTimes(ReductionGraph &graph, std::vector<int> &changed) {
  if (graph.timePoints.empty())
    return Status::success();
  for (std::size_t v = 0; v < graph.variables.size(); ++v)
    if (graph.variables[v].partsStale)
      normalizeParts(graph, static_cast<int>(v));
  std::int64_t certain = 0;
  for (std::size_t t = 0; t < graph.timePoints.size(); ++t)
    graph.capacity[t] -= (certain += graph.certain[t]);
  const auto least = std::ranges::min_element(graph.capacity);
  if (*least < 0)
    return Status::error("at time {} at least {} more than the usage limit is "
                         "in use, whatever is chosen; raise the limit",
                         graph.timePoints[least - graph.capacity.begin()],
                         -*least);
  forbidWhatNeverFits(graph, changed);
  keepTimes(graph, timesThatMatter(graph), changed);
  return Status::success();
}

} // namespace tessera::solver
