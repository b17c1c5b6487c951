#include "runtime/infer/grammar/Matcher.h"

#include <algorithm>
#include <set>

namespace tessera::grammar {

uint32_t Stacks::push(uint32_t back, uint32_t below) {
  uint32_t depth = frames[below].depth + 1;
  if (depth > kMaxDepth)
    return kEmpty;
  auto [found, isNew] =
      known.try_emplace(uint64_t(back) << 32 | below, uint32_t(frames.size()));
  if (isNew)
    frames.push_back({back, below, depth});
  return found->second;
}

Reached Matcher::follow(std::vector<Position> todo) {
  Reached reached;
  std::set<Position> seen;
  auto visit = [&](Position position) {
    if (seen.insert(position).second)
      todo.push_back(position);
  };
  while (!todo.empty()) {
    auto [at, stack] = todo.back();
    todo.pop_back();
    bool leaves = at == kLeaving || grammar.node(at).isFinal;
    if (leaves && stack == Stacks::kEmpty)
      reached.ends = true;
    else if (leaves)
      visit({stacks.top(stack).back, stacks.top(stack).below});
    if (at == kLeaving)
      continue;
    bool hasBytes = false;
    for (const Edge &edge : grammar.node(at).edges) {
      if (edge.kind == Edge::Kind::bytes) {
        hasBytes = true;
      } else if (edge.kind == Edge::Kind::skip) {
        visit({edge.target, stack});
      } else if (grammar.isEnd(edge.target)) {
        // Tail call: nothing comes after it, so its return is the return of the
        // caller.
        visit({grammar.startOf(edge.rule), stack});
      } else if (uint32_t inner = stacks.push(edge.target, stack)) {
        visit({grammar.startOf(edge.rule), inner});
      }
    }
    if (hasBytes)
      reached.positions.push_back({at, stack});
    if (seen.size() > kMaxPositions || stacks.size() > kMaxFrames) {
      hasOverflowed = true;
      return {};
    }
  }
  std::ranges::sort(reached.positions);
  auto doubled = std::ranges::unique(reached.positions);
  reached.positions.erase(doubled.begin(), doubled.end());
  return reached;
}

Reached Matcher::step(const PositionSet &from, uint8_t byte) {
  std::vector<Position> next;
  for (const Position &position : from)
    for (const Edge &edge : grammar.node(position.node).edges)
      if (edge.kind == Edge::Kind::bytes && edge.first <= byte &&
          byte <= edge.last)
        next.push_back({edge.target, position.stack});
  return next.empty() ? Reached() : follow(std::move(next));
}

} // namespace tessera::grammar
