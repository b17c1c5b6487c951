// Where a text that is read byte by byte stands in a grammar: everywhere that
// it may stand, each place with the calls that it has to come back from.
#pragma once
#include "runtime/infer/grammar/Grammar.h"

#include <compare>
#include <unordered_map>

namespace tessera::grammar {

/// A place: a node with an edge of bytes, and the calls around it.
struct Place {
  uint32_t node = 0, stack = 0;
  auto operator<=>(const Place &) const = default;
};

/// Ascending, each once.
using PlaceSet = std::vector<Place>;

/// What a byte leads to.
struct Reached {
  PlaceSet places;
  bool ends = false; ///< the outermost rule may end here
  bool empty() const { return places.empty() && !ends; }
  auto operator<=>(const Reached &) const = default;
};

/// Stacks of calls. Equal stacks are one number, so that a set of places has no
/// place twice.
class Stacks {
public:
  static constexpr uint32_t kEmpty = 0;
  /// JSON that is nested deeper is read by few; what a text may be ends there.
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

/// Reads bytes. The grammar must outlive it.
class Matcher {
public:
  explicit Matcher(const Grammar &grammar) : grammar(grammar) {}

  Reached start() { return follow({{grammar.startOf(0), Stacks::kEmpty}}); }
  Reached step(const PlaceSet &from, uint8_t byte);
  /// After the rule at which the stack stands has ended.
  Reached leave(uint32_t stack) { return follow({{kLeaving, stack}}); }

  /// Of frames in all and of places at a time. Beyond that the grammar is
  /// ambiguous without measure, and no answer is right any more.
  static constexpr size_t kMaxFrames = size_t(1) << 20, kMaxPlaces = 1024;
  bool overflowed() const { return hasOverflowed; }
  const Stacks &calls() const { return stacks; }

private:
  static constexpr uint32_t kLeaving = UINT32_MAX;
  /// From everywhere in `todo` on along what takes no byte.
  Reached follow(std::vector<Place> todo);

  const Grammar &grammar;
  Stacks stacks;
  bool hasOverflowed = false;
};

} // namespace tessera::grammar
