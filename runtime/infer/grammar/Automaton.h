// A deterministic automaton over sets of positions, built lazily: a step that
// was taken once is a table lookup.
#pragma once
#include "runtime/infer/grammar/Matcher.h"

#include <array>
#include <map>

namespace tessera::grammar {

/// Not thread-safe. The grammar must outlive it.
class Automaton {
public:
  explicit Automaton(const Grammar &grammar) : matcher(grammar) { reset(); }

  /// The state from which nothing can follow and nothing ends.
  static constexpr uint32_t kDead = 0;
  uint32_t stateOf(Reached reached);
  uint32_t step(uint32_t state, uint8_t byte);
  const Reached &at(uint32_t state) const { return *states[state].reached; }
  Matcher &positions() { return matcher; }

  /// Drops all states if there are many, which invalidates their numbers.
  void trim() {
    if (states.size() > kManyStates)
      reset();
  }
  bool overflowed() const {
    return states.size() > kMaxStates || matcher.overflowed();
  }

private:
  static constexpr size_t kManyStates = 2048, kMaxStates = 8192;
  struct State {
    const Reached *reached; ///< a key of `known`
    std::array<uint32_t, 256> next;
  };
  void reset();

  Matcher matcher;
  std::map<Reached, uint32_t> known;
  std::vector<State> states;
};

} // namespace tessera::grammar
