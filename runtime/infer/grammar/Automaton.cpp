#include "runtime/infer/grammar/Automaton.h"

namespace tessera::grammar {

static constexpr uint32_t kUnknown = UINT32_MAX;

void Automaton::reset() {
  known.clear();
  states.clear();
  stateOf({}); // kDead
}

uint32_t Automaton::stateOf(Reached reached) {
  auto [found, isNew] =
      known.try_emplace(std::move(reached), uint32_t(states.size()));
  if (isNew) {
    State &state = states.emplace_back();
    state.reached = &found->first;
    state.next.fill(kUnknown);
  }
  return found->second;
}

uint32_t Automaton::step(uint32_t state, uint8_t byte) {
  uint32_t next = states[state].next[byte];
  if (next != kUnknown)
    return next;
  next = overflowed()
             ? kDead
             : stateOf(matcher.step(states[state].reached->positions, byte));
  states[state].next[byte] = next;
  return next;
}

} // namespace tessera::grammar
