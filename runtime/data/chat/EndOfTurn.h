// The tokens that end an answer, so that a model which does not learn to
// predict one of them never stops.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"

namespace tessera::chat {

struct EndOfTurn {
  std::vector<uint32_t> tokens; ///< ids, in ascending order
  std::string text;     ///< of the first that was named; ends plain answers
  uint32_t padding = 0; ///< the pad_token, else an end token
  bool contains(uint32_t token) const;
};

/// The eos_token of tokenizer_config.json and the eos_token_id of
/// generation_config.json and config.json, of those that are there; or `names`
/// instead, unless empty. An error if there is none.
StatusOr<EndOfTurn> findEndOfTurn(const ModelFiles &files,
                                  const tokenizer::Tokenizer &tokenizer,
                                  const std::vector<std::string> &names);

} // namespace tessera::chat
