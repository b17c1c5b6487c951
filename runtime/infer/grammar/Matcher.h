// Matches a string byte by byte against a grammar: keeps all positions that are
// possible, each with the stack of calls to return from.
#pragma once
#include "runtime/infer/grammar/Grammar.h"

#include <compare>
#include <unordered_map>

namespace tessera::grammar {

/// A position: a node with an edge of bytes, and the calls around it.
struct Position {
  uint32_t node = 0, stack = 0;
  auto operator<=>(const Position &) const = default;
};

/// Ascending, without duplicates.
using PositionSet = std::vector<Position>;

/// The result of a byte.
struct Reached {
  PositionSet positions;
  bool ends = false; ///< the outermost rule may end here
  bool empty() const { return positions.empty() && !ends; }
  auto operator<=>(const Reached &) const = default;
};

/// Stacks of calls. Equal stacks have one number, so a set of positions has no
/// duplicates.
class Stacks {
public:
  static constexpr uint32_t kEmpty = 0;
  /// JSON that is nested deeper is rare; the output must end there.
  static constexpr uint32_t kMaxDepth = 256;

  struct Frame {
    uint32_t back;  ///< the node after the call
    uint32_t below; ///< the stack around it
    uint32_t depth;
  };
  const Frame &top(uint32_t stack) const { return frames[stack]; }
  /// kEmpty if it would be deeper than kMaxDepth.
  uint32_t push(uint32_t back, uint32_t below);
  size_t size() const { return frames.size(); }

private:
  std::vector<Frame> frames = {{0, 0, 0}};
  std::unordered_map<uint64_t, uint32_t> known;
};

/// Matches bytes. The grammar must outlive it.
class Matcher {
public:
  explicit Matcher(const Grammar &grammar) : grammar(grammar) {}

  Reached start() { return follow({{grammar.startOf(0), Stacks::kEmpty}}); }
  Reached step(const PositionSet &from, uint8_t byte);
  /// The result of the end of the stack's innermost rule.
  Reached leave(uint32_t stack) { return follow({{kLeaving, stack}}); }

  /// Limits of frames in total and of positions at a time. Beyond them the
  /// grammar is too ambiguous, and results are invalid.
  static constexpr size_t kMaxFrames = size_t(1) << 20, kMaxPositions = 1024;
  bool overflowed() const { return hasOverflowed; }
  const Stacks &calls() const { return stacks; }

private:
  static constexpr uint32_t kLeaving = UINT32_MAX;
  /// Follows all edges from `todo` that consume no byte.
  Reached follow(std::vector<Position> todo);

  const Grammar &grammar;
  Stacks stacks;
  bool hasOverflowed = false;
};

} // namespace tessera::grammar
