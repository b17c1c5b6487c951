// Sequences that grow token by token over a paged KV cache (Kwon et al. 2023):
// the programs `prefill_T` and `decode_B` of an artifact that was compiled with
// --mode infer, and the pages that they write.
#pragma once
#include "runtime/infer/DecodePrograms.h"
#include "runtime/infer/Sampler.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// A sequence in the KV cache. Decoder::release alone returns its pages.
class Sequence {
public:
  Sequence() = default;
  Sequence(Sequence &&other) noexcept
      : pages(std::move(other.pages)), tokens(std::exchange(other.tokens, 0)),
        state(std::exchange(other.state, -1)) {}
  Sequence &operator=(Sequence &&other) = delete;
  int64_t length() const { return tokens; }

private:
  friend class Decoder;
  std::vector<int32_t> pages;
  int64_t tokens = 0;
  int32_t state = -1; ///< slot
};

/// Owns the pages of a session's KV cache. Not thread-safe.
class Decoder {
public:
  /// Checks that the session's programs have the inputs, outputs and KV caches
  /// that decoding needs. The session must outlive the decoder. The caller
  /// fills the weights before the first token is read.
  static StatusOr<std::unique_ptr<Decoder>> create(hal::Session &session);
  /// Over another model, such as one of several ranks.
  explicit Decoder(std::unique_ptr<PagedModel> model);

  const DecoderShape &shape() const { return programs->shape(); }
  int64_t freePages() const { return int64_t(unused.size()); }
  /// Whether the context and the free pages hold `count` more tokens.
  bool hasRoom(const Sequence &sequence, int64_t count) const;

  /// Appends at least one token; row 0 then predicts the token after the last
  /// one. Ids must be inside the vocabulary. Tokens that do not fit change
  /// nothing; after an error of the device the sequence may be incomplete and
  /// should be released.
  Status read(Sequence &sequence, std::span<const int32_t> tokens,
              const Wanted &wanted = {});
  /// Appends token i to sequence i. The sequences are distinct, at most as many
  /// as the largest bucket; row i then predicts the next token of sequence i.
  Status step(std::span<Sequence *const> sequences,
              std::span<const int32_t> tokens, const Wanted &wanted = {});
  /// See PagedModel; valid until the next read or step.
  std::span<const float> logits(int64_t row) const {
    return programs->logits(row);
  }
  int32_t token(int64_t row) const { return programs->token(row); }
  /// Drops all but the first `length` tokens and frees the pages that only the
  /// others used. Without reusesPrefixes() drops all tokens, unless `length` is
  /// that of the sequence: see its length() afterwards.
  void truncate(Sequence &sequence, int64_t length);
  /// The adapter slot with which sequences are computed from here on; those in
  /// the cache should be released before. -1: none.
  void useAdapter(int32_t slot) { adapter = slot; }
  /// Frees the pages; the sequence is empty again.
  void release(Sequence &sequence);

private:
  Status noContext(int64_t tokens) const;
  Status reserve(Sequence &sequence, int64_t count);
  CachedText cached(const Sequence &sequence) const {
    return {sequence.pages, sequence.tokens, adapter, sequence.state};
  }
  Status reserveAll(std::span<Sequence *const> sequences);

  std::unique_ptr<PagedModel> programs;
  std::vector<int32_t> unused; ///< free pages; the last one is taken next
  std::vector<int32_t> unusedStates;
  int32_t adapter = -1;
};

/// Draw number `draw` of the sampler among the first `choices` tokens that are
/// `allowed` (null: all). `run` computes row 0 of the decoder with the given
/// sampling, which the model applies itself where it can.
StatusOr<int32_t> drawNext(const Decoder &decoder, Sampler &sampler,
                           int64_t choices, uint64_t draw,
                           const TokenMask *allowed,
                           const std::function<Status(const Wanted &)> &run);

} // namespace tessera
