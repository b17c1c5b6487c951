// Masks of the tokens that a grammar allows next (technique: Dong et al.,
// XGrammar, 2024). At a position of the grammar, most tokens are allowed or not
// whatever calls surround it; this is computed once per position. Only tokens
// that leave the position's rule depend on those calls, and are followed every
// time.
#pragma once
#include "runtime/infer/TokenGuide.h"
#include "runtime/infer/grammar/Automaton.h"
#include "runtime/infer/grammar/Vocabulary.h"

#include <memory>
#include <mutex>
#include <unordered_map>

namespace tessera::grammar {

/// A grammar for the tokens of a vocabulary, shared by all requests with it.
class TokenGrammar {
public:
  /// The grammar must be finished.
  TokenGrammar(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary)
      : rules(std::move(grammar)), tokens(std::move(vocabulary)),
        automaton(rules) {}

  /// What may follow at a node, as far as it does not depend on the calls
  /// around it.
  struct Continuations {
    TokenMask allowed;
    /// Trie nodes at which the node's rule may have ended.
    std::vector<uint32_t> leaving;
  };
  StatusOr<std::shared_ptr<const Continuations>> after(uint32_t node);

  const Grammar &grammar() const { return rules; }
  const Vocabulary &vocabulary() const { return *tokens; }

private:
  const Grammar rules;
  const std::shared_ptr<const Vocabulary> tokens;
  std::mutex mutex; ///< guards the members below
  Automaton automaton;
  std::unordered_map<uint32_t, std::shared_ptr<const Continuations>> cache;
  size_t cacheBytes = 0;
};

class GrammarGuide final : public TokenGuide {
public:
  /// `ends` are the tokens that end the output.
  GrammarGuide(std::shared_ptr<TokenGrammar> grammar,
               std::vector<int32_t> ends);
  StatusOr<const TokenMask *> allowed() override;
  Status accept(int32_t token) override;
  bool mayEnd() const override { return reached.ends; }
  bool isComplete() const override {
    return reached.ends && reached.positions.empty();
  }

private:
  void allowFrom(uint32_t trieNode, uint32_t state);
  Status allowAfter(const Position &position);

  const std::shared_ptr<TokenGrammar> grammar;
  const std::vector<int32_t> ends;
  Automaton automaton;
  Reached reached;
  size_t steps = 0; ///< left for this token
  TokenMask mask;
};

} // namespace tessera::grammar
