// A request on its way through a scheduler: its tokens, its pages, and which
// token may come next.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/infer/engine/NgramDraft.h"
#include "runtime/infer/engine/PagePool.h"
#include "runtime/infer/engine/Request.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

struct ScheduledSequence {
  ScheduledSequence(uint64_t id, EngineRequest given,
                    EngineClock::time_point arrived, int64_t drafts)
      : id(id), request(std::move(given)), sampler(request.sampling),
        draft(drafts), tokens(request.prompt), arrived(arrived) {
    sampler.sawPrompt(tokens);
    result.promptTokens = int64_t(tokens.size());
  }

  /// Tokens that are not in the cache yet; at least the last one.
  int64_t unread() const { return int64_t(tokens.size()) - computed; }
  bool generates() const { return request.maxTokens > 0; }
  /// Of those, what is to be read before the text goes on: the last token only
  /// for what follows it.
  int64_t toRead() const { return unread() - int64_t(!generates()); }
  /// Tokens of the prompt whose logprobs nobody has yet.
  bool scores() const {
    return request.scoresPrompt && scored < result.promptTokens;
  }

  /// Before what is in the cache is given back.
  void noteRead() {
    result.readTokens =
        std::max(result.readTokens, std::min(computed, result.promptTokens));
  }
  /// The tokens that may come next, null for all of them.
  StatusOr<const TokenMask *> allowed();
  /// Adds a wish for each of its next rows; false if one of them cannot be
  /// told before the rows are computed.
  bool addSamplings(int64_t changes, int64_t choices,
                    std::vector<TokenSampling> &samplings);
  /// The next token, which then is part of the text: what `model` has been
  /// asked for in this row, or by its logits. `failure` is what an error is of.
  StatusOr<int32_t> draw(const PagedModel &model, int64_t row, int64_t choices,
                         FinishReason &failure);
  /// Nothing more may follow.
  bool hasItsForm() const {
    return request.guide && request.guide->isComplete();
  }
  bool stopsAt(int32_t token) const {
    return std::ranges::count(request.stopTokens, token) > 0;
  }

  uint64_t id;
  EngineRequest request;
  Sampler sampler;
  NgramDraft draft;
  std::span<const int32_t> drafts; ///< of this iteration
  bool isSampled = false;          ///< so are its tokens
  std::vector<int32_t> tokens;     ///< the prompt's and the generated
  PageList list;
  int64_t computed = 0; ///< tokens in the cache
  int64_t scored = 1;   ///< the next of the prompt; the first has no logprob
  EngineResult result;
  bool finished = false;
  EngineClock::time_point arrived;
  std::optional<EngineClock::time_point> started, first, last;
};

} // namespace tessera
