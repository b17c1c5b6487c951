// A request in the scheduler: its tokens, its pages, and the constraints on its
// next token.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/infer/engine/DraftModel.h"
#include "runtime/infer/engine/NgramDraft.h"
#include "runtime/infer/engine/PagePool.h"
#include "runtime/infer/engine/Request.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
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

  /// Whether it runs before `other`, and is preempted after it.
  bool precedes(const ScheduledSequence &other) const {
    return std::pair(request.priority, id) <
           std::pair(other.request.priority, other.id);
  }
  /// Tokens that are not in the KV cache yet; at least the last one.
  int64_t unread() const { return int64_t(tokens.size()) - computed; }
  bool generates() const { return request.maxTokens > 0; }
  /// Of these, the tokens to compute before decoding: the last one is needed
  /// only to predict the next.
  int64_t toRead() const { return unread() - int64_t(!generates()); }
  /// Whether prompt tokens still lack their requested logprobs.
  bool scores() const {
    return request.scoresPrompt && scored < result.promptTokens;
  }

  /// As the model takes a row of it after `length` tokens.
  CachedText cached(int64_t length) const {
    return {list.pages, length, request.adapter ? request.adapter->slot : -1,
            state};
  }
  /// The root of its prefixes in the cache.
  uint64_t root() const {
    return rootOf(request.adapter ? request.adapter->number : 0);
  }

  /// Call before the pages are released.
  void noteRead() {
    result.readTokens =
        std::max(result.readTokens, std::min(computed, result.promptTokens));
  }
  /// The tokens that may come next; null: all of them.
  StatusOr<const TokenMask *> allowed();
  /// Adds a sampling for each of its next rows; false if one of them depends on
  /// rows that are not computed yet.
  bool addSamplings(int64_t changes, int64_t choices,
                    std::vector<TokenSampling> &samplings);
  /// Chooses the next token and appends it: the model's sample of this row if
  /// it was requested, else a draw from its logits. On an error, `failure` is
  /// the reason.
  StatusOr<int32_t> draw(const PagedModel &model, int64_t row, int64_t choices,
                         FinishReason &failure);
  /// Whether structured output must end here.
  bool isComplete() const {
    return request.guide && request.guide->isComplete();
  }
  bool stopsAt(int32_t token) const {
    return std::ranges::count(request.stopTokens, token) > 0;
  }

  uint64_t id;
  EngineRequest request;
  Sampler sampler;
  NgramDraft draft;
  DraftText drafted;               ///< what a draft model has of it
  std::span<const int32_t> drafts; ///< draft tokens of this iteration
  bool isSampled = false;          ///< whether the model samples this iteration
  std::vector<int32_t> tokens;     ///< prompt and generated tokens
  PageList list;
  int32_t state = -1;   ///< the slot of its state, while it runs
  int64_t computed = 0; ///< tokens in the KV cache
  int64_t scored = 1; ///< next prompt token to score; the first has no logprob
  EngineResult result;
  bool finished = false;
  EngineClock::time_point arrived;
  std::optional<EngineClock::time_point> started, first, last;
};

} // namespace tessera
