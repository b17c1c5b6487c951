#include "compiler/report/LineDiff.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>

namespace tessera::report {
namespace {

using Keys = std::span<const std::uint64_t>;
/// A line of the old text and its equal of the new one.
using Match = std::pair<std::size_t, std::size_t>;

/// Edits that Myers' algorithm looks for; its time and memory grow with their
/// square.
constexpr int kMostEdits = 400;

/// Pairs of lines that occur once in both, the longest list in which both
/// numbers increase.
std::vector<Match> uniqueMatches(Keys before, Keys after) {
  struct Count {
    std::size_t old = 0, now = 0, inOld = 0;
    std::size_t inNew = 0;
  };
  std::unordered_map<std::uint64_t, Count> counts;
  for (std::size_t i = 0; i < before.size(); ++i) {
    Count &count = counts[before[i]];
    ++count.old;
    count.inOld = i;
  }
  for (std::size_t i = 0; i < after.size(); ++i)
    if (auto found = counts.find(after[i]); found != counts.end()) {
      ++found->second.now;
      found->second.inNew = i;
    }
  std::vector<Match> pairs; // by line of the new text
  for (std::size_t i = 0; i < after.size(); ++i)
    if (auto found = counts.find(after[i]); found != counts.end() &&
                                            found->second.old == 1 &&
                                            found->second.now == 1)
      pairs.emplace_back(found->second.inOld, i);
  // The longest increasing subsequence of old lines, by patience sorting.
  std::vector<std::size_t> tops, previous(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    auto pile =
        std::ranges::lower_bound(tops, pairs[i].first, {},
                                 [&](std::size_t p) { return pairs[p].first; });
    previous[i] = pile == tops.begin() ? pairs.size() : *(pile - 1);
    if (pile == tops.end())
      tops.push_back(i);
    else
      *pile = i;
  }
  std::vector<Match> matches;
  for (std::size_t i = tops.empty() ? pairs.size() : tops.back();
       i < pairs.size(); i = previous[i])
    matches.push_back(pairs[i]);
  std::ranges::reverse(matches);
  return matches;
}

/// Myers' greedy algorithm; nothing if there are more than kMostEdits edits.
std::vector<Match> shortestMatches(Keys before, Keys after) {
  const auto n = int(before.size()), m = int(after.size());
  const int most = std::min(n + m, kMostEdits);
  std::vector<int> reach(2 * std::size_t(most) + 2, 0); // x by diagonal
  std::vector<std::vector<int>> history;
  const int middle = most;
  for (int edits = 0; edits <= most; ++edits) {
    history.push_back(reach);
    for (int k = -edits; k <= edits; k += 2) {
      const auto at = std::size_t(middle + k);
      int x = k == -edits || (k != edits && reach[at - 1] < reach[at + 1])
                  ? reach[at + 1]
                  : reach[at - 1] + 1;
      while (x < n && x - k < m && x - k >= 0 &&
             before[std::size_t(x)] == after[std::size_t(x - k)])
        ++x;
      reach[at] = x;
      if (x < n || x - k < m)
        continue;
      std::vector<Match> matches;
      for (int y = x - k; edits >= 0; --edits) {
        const std::vector<int> &old = history[std::size_t(edits)];
        const int diagonal = x - y;
        const auto here = std::size_t(middle + diagonal);
        const bool down = diagonal == -edits ||
                          (diagonal != edits && old[here - 1] < old[here + 1]);
        const int fromX = edits == 0 ? 0
                          : down     ? old[here + 1]
                                     : old[here - 1] + 1;
        while (x > fromX && y > 0)
          matches.emplace_back(--x, --y);
        if (edits > 0) {
          if (down)
            --y;
          else
            --x;
        }
      }
      std::ranges::reverse(matches);
      return matches;
    }
  }
  return {};
}

class Differ {
public:
  Differ(Keys before, Keys after) : before(before), after(after) {}
  std::vector<DiffRun> run() {
    compare(0, before.size(), 0, after.size());
    advance(before.size(), after.size());
    flush();
    return std::move(runs);
  }

private:
  void compare(std::size_t a, std::size_t aEnd, std::size_t b,
               std::size_t bEnd);
  void keep(std::size_t a, std::size_t b) {
    advance(a, b);
    if (current.remove || current.add)
      flush();
    ++current.keep;
    nextOld = a + 1;
    nextNew = b + 1;
  }
  void advance(std::size_t a, std::size_t b) {
    current.remove += std::uint32_t(a - nextOld);
    current.add += std::uint32_t(b - nextNew);
    nextOld = a;
    nextNew = b;
  }
  void flush() {
    if (current != DiffRun())
      runs.push_back(current);
    current = {};
  }

  Keys before, after;
  std::vector<DiffRun> runs;
  DiffRun current;
  std::size_t nextOld = 0, nextNew = 0;
};

void Differ::compare(std::size_t a, std::size_t aEnd, std::size_t b,
                     std::size_t bEnd) {
  while (a < aEnd && b < bEnd && before[a] == after[b])
    keep(a++, b++);
  std::size_t tail = 0;
  while (a < aEnd && b < bEnd && before[aEnd - 1] == after[bEnd - 1]) {
    --aEnd;
    --bEnd;
    ++tail;
  }
  const Keys olds = before.subspan(a, aEnd - a),
             news = after.subspan(b, bEnd - b);
  if (!olds.empty() && !news.empty()) {
    std::vector<Match> anchors = uniqueMatches(olds, news);
    const bool isUnique = !anchors.empty();
    if (!isUnique)
      anchors = shortestMatches(olds, news);
    std::size_t fromOld = a, fromNew = b;
    for (const auto &[i, k] : anchors) {
      if (isUnique)
        compare(fromOld, a + i, fromNew, b + k);
      keep(a + i, b + k);
      fromOld = a + i + 1;
      fromNew = b + k + 1;
    }
    if (isUnique)
      compare(fromOld, aEnd, fromNew, bEnd);
  }
  for (std::size_t i = 0; i < tail; ++i)
    keep(aEnd + i, bEnd + i);
}

} // namespace

std::vector<DiffRun> diffLines(std::span<const std::uint64_t> before,
                               std::span<const std::uint64_t> after) {
  return Differ(before, after).run();
}

} // namespace tessera::report
