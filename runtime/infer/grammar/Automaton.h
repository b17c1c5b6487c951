// Sets of places as the states of a machine that is made while it runs: a step
// that was taken once is a look into a table.
#pragma once
#include "runtime/infer/grammar/Matcher.h"

#include <array>
#include <map>

namespace tessera::grammar {

/// One thread at a time. The grammar must outlive it.
class Automaton {
public:
  explicit Automaton(const Grammar &grammar) : matcher(grammar) { reset(); }

  /// Where nothing can follow and nothing ends.
  static constexpr uint32_t kDead = 0;
  uint32_t stateOf(Reached reached);
  uint32_t step(uint32_t state, uint8_t byte);
  const Reached &at(uint32_t state) const { return *states[state].reached; }
  Matcher &places() { return matcher; }

  /// Forgets all states if there are many; numbers of states are void then.
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
