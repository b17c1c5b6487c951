#include "runtime/infer/grammar/GrammarGuide.h"

#include <algorithm>

namespace tessera::grammar {
namespace {

// Of all Continuations of a grammar; beyond this the cache is cleared.
constexpr size_t kCacheBytes = size_t(64) << 20;
// Steps for one token: about ten passes over a large vocabulary, since other
// requests wait.
constexpr size_t kMaxSteps = size_t(4) << 20;

Status tooAmbiguous() {
  return Status::error("the requested structured output is too ambiguous: "
                       "too many alternatives continue alike");
}

/// Follows the tokens of the subtree at `from`, with the automaton in `state`.
/// Calls visit(trie node, state) for each node that is reached. Stops when
/// `steps` are used up.
template <typename Visit>
void walk(const Vocabulary &vocabulary, Automaton &automaton, uint32_t from,
          uint32_t state, size_t &steps, const Visit &visit) {
  auto trie = vocabulary.trie();
  uint32_t base = trie[from].depth;
  std::vector<uint32_t> states(vocabulary.longest() + 1);
  states[0] = state;
  for (uint32_t i = from + 1; i < trie[from].end && steps > 0; --steps) {
    uint32_t depth = trie[i].depth - base;
    uint32_t next = automaton.step(states[depth - 1], trie[i].byte);
    states[depth] = next;
    if (next == Automaton::kDead) {
      i = trie[i].end;
      continue;
    }
    visit(i, next);
    ++i;
  }
}

} // namespace

StatusOr<std::shared_ptr<const TokenGrammar::Continuations>>
TokenGrammar::after(uint32_t node) {
  std::lock_guard lock(mutex);
  if (auto found = cache.find(node); found != cache.end())
    return found->second;
  automaton.trim();
  auto made = std::make_shared<Continuations>();
  made->allowed = TokenMask(tokens->size());
  uint32_t start = automaton.stateOf({{{node, Stacks::kEmpty}}, false});
  size_t steps = tokens->trie().size(); // enough for the whole trie
  walk(*tokens, automaton, 0, start, steps, [&](uint32_t at, uint32_t state) {
    if (!automaton.at(state).positions.empty())
      for (uint32_t token : tokens->endingAt(tokens->trie()[at]))
        made->allowed.insert(token);
    if (automaton.at(state).ends)
      made->leaving.push_back(at);
  });
  if (automaton.overflowed())
    return tooAmbiguous();
  size_t bytes = tokens->size() / 8 + made->leaving.size() * sizeof(uint32_t);
  if (cacheBytes + bytes > kCacheBytes) {
    cache.clear();
    cacheBytes = 0;
  }
  cacheBytes += bytes;
  cache.emplace(node, made);
  return std::shared_ptr<const Continuations>(made);
}

GrammarGuide::GrammarGuide(std::shared_ptr<TokenGrammar> given,
                           std::vector<int32_t> ends)
    : grammar(std::move(given)), ends(std::move(ends)),
      automaton(grammar->grammar()), reached(automaton.positions().start()),
      mask(grammar->vocabulary().size()) {}

/// Allows the tokens that end at the node or below it.
void GrammarGuide::allowFrom(uint32_t trieNode, uint32_t state) {
  const Vocabulary &vocabulary = grammar->vocabulary();
  auto allow = [&](uint32_t node, uint32_t) {
    for (uint32_t token : vocabulary.endingAt(vocabulary.trie()[node]))
      mask.insert(token);
  };
  if (state == Automaton::kDead)
    return;
  allow(trieNode, state);
  walk(vocabulary, automaton, trieNode, state, steps, allow);
}

Status GrammarGuide::allowAfter(const Position &position) {
  // Near the depth limit the calls around the position matter.
  const Stacks &calls = automaton.positions().calls();
  if (calls.top(position.stack).depth + grammar->vocabulary().longest() >
      Stacks::kMaxDepth) {
    allowFrom(0, automaton.stateOf({{position}, false}));
    return Status::success();
  }
  auto found = grammar->after(position.node);
  if (!found.ok())
    return found.status();
  const TokenGrammar::Continuations &after = **found;
  mask.insertAll(after.allowed);
  if (after.leaving.empty())
    return Status::success();
  uint32_t outside =
      automaton.stateOf(automaton.positions().leave(position.stack));
  for (uint32_t node : after.leaving)
    allowFrom(node, outside);
  return Status::success();
}

StatusOr<const TokenMask *> GrammarGuide::allowed() {
  mask.clear();
  automaton.trim();
  steps = kMaxSteps;
  for (const Position &position : reached.positions)
    TESSERA_RETURN_IF_ERROR(allowAfter(position));
  if (automaton.overflowed() || steps == 0)
    return tooAmbiguous();
  // A token that ends the output may have bytes of its own, which are ignored.
  for (int32_t token : ends)
    if (reached.ends)
      mask.insert(size_t(token));
    else
      mask.erase(size_t(token));
  if (mask.empty())
    return Status::error("no token continues the structured output: it nests "
                         "deeper than {}, or the model has no token for what "
                         "follows",
                         Stacks::kMaxDepth);
  return &mask;
}

Status GrammarGuide::accept(int32_t token) {
  for (char byte : grammar->vocabulary().text(uint32_t(token)))
    reached = automaton.positions().step(reached.positions, uint8_t(byte));
  if (automaton.overflowed())
    return tooAmbiguous();
  if (reached.empty())
    return Status::error("the output is nested deeper than {}, the limit of "
                         "structured output",
                         Stacks::kMaxDepth);
  return Status::success();
}

} // namespace tessera::grammar
