// Which tokens a grammar allows next (technique: Dong et al., XGrammar, 2024).
// Of a place in the grammar most tokens are allowed or not whatever stands
// around it; that is found out once for each place. Only tokens that reach out
// of the place's rule depend on the calls around it, and are followed each
// time.
#pragma once
#include "runtime/infer/TokenGuide.h"
#include "runtime/infer/grammar/Automaton.h"
#include "runtime/infer/grammar/Vocabulary.h"

#include <memory>
#include <mutex>
#include <unordered_map>

namespace tessera::grammar {

/// A grammar for the tokens of a vocabulary, shared by all texts of that form.
class TokenGrammar {
public:
  /// The grammar is finished.
  TokenGrammar(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary)
      : rules(std::move(grammar)), tokens(std::move(vocabulary)),
        automaton(rules) {}

  /// What may follow at a node, by what can be said without the calls around.
  struct Continuations {
    TokenMask allowed;
    /// Nodes of the trie where the node's rule may have ended.
    std::vector<uint32_t> leaving;
  };
  StatusOr<std::shared_ptr<const Continuations>> after(uint32_t node);

  const Grammar &grammar() const { return rules; }
  const Vocabulary &vocabulary() const { return *tokens; }

private:
  const Grammar rules;
  const std::shared_ptr<const Vocabulary> tokens;
  std::mutex mutex; ///< guards what follows
  Automaton automaton;
  std::unordered_map<uint32_t, std::shared_ptr<const Continuations>> cache;
  size_t cacheBytes = 0;
};

class GrammarGuide final : public TokenGuide {
public:
  /// `ends` are the tokens that end a text.
  GrammarGuide(std::shared_ptr<TokenGrammar> grammar,
               std::vector<int32_t> ends);
  StatusOr<const TokenMask *> allowed() override;
  Status accept(int32_t token) override;
  bool mayEnd() const override { return reached.ends; }
  bool isComplete() const override {
    return reached.ends && reached.places.empty();
  }

private:
  void allowFrom(uint32_t trieNode, uint32_t state);
  Status allowAfter(const Place &place);

  const std::shared_ptr<TokenGrammar> grammar;
  const std::vector<int32_t> ends;
  Automaton automaton;
  Reached reached;
  size_t steps = 0; ///< that are left for this token
  TokenMask mask;
};

} // namespace tessera::grammar
