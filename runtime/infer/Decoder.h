// Sequences that grow token by token over a paged cache of keys and values
// (Kwon et al. 2023): the programs `prefill_T` and `decode_B` of an artifact
// that was compiled with --mode infer, and the pages that they write.
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

/// A text's tokens in the cache. It gives its pages back to the decoder only by
/// Decoder::release.
class Sequence {
public:
  Sequence() = default;
  Sequence(Sequence &&other) noexcept
      : pages(std::move(other.pages)), tokens(std::exchange(other.tokens, 0)) {}
  Sequence &operator=(Sequence &&other) = delete;
  int64_t length() const { return tokens; }

private:
  friend class Decoder;
  std::vector<int32_t> pages;
  int64_t tokens = 0;
};

/// Owns the pages of a session's cache. One thread at a time.
class Decoder {
public:
  /// Proves that the session's programs have the inputs, outputs and caches
  /// that decoding needs. The session must outlive the decoder; whoever opened
  /// it has filled its weights before the first token is read.
  static StatusOr<std::unique_ptr<Decoder>> create(hal::Session &session);

  const DecoderShape &shape() const { return programs->shape(); }
  int64_t freePages() const { return int64_t(unused.size()); }
  /// Whether the context and the pages that are left hold `count` more tokens.
  bool hasRoom(const Sequence &sequence, int64_t count) const;

  /// Appends at least one token; row 0 is then what follows the last one.
  /// Ids must be inside the vocabulary. What does not fit changes nothing; an
  /// error of the device may leave the sequence in part, to be released.
  Status read(Sequence &sequence, std::span<const int32_t> tokens,
              const Wanted &wanted = {});
  /// Appends token i to sequence i, all of them different sequences, at most
  /// as many as the largest bucket; row i is then what follows it.
  Status step(std::span<Sequence *const> sequences,
              std::span<const int32_t> tokens, const Wanted &wanted = {});
  /// As those of a PagedModel; valid until the next read or step.
  std::span<const float> logits(int64_t row) const {
    return programs->logits(row);
  }
  int32_t token(int64_t row) const { return programs->token(row); }
  /// Forgets all but the first `length` tokens and gives back the pages that
  /// only others had.
  void truncate(Sequence &sequence, int64_t length);
  /// Gives the pages back; the sequence is empty again.
  void release(Sequence &sequence);

private:
  explicit Decoder(std::unique_ptr<DecodePrograms> programs);
  Status noContext(int64_t tokens) const;
  Status reserve(Sequence &sequence, int64_t count);
  Status reserveAll(std::span<Sequence *const> sequences);

  std::unique_ptr<DecodePrograms> programs;
  std::vector<int32_t> unused; ///< pages, the next one last
};

/// Draw number `draw` of the sampler among the first `choices` tokens, of those
/// that are `allowed` (null: all): `run` leaves row 0 of the decoder as it is
/// asked to, which chooses where it can.
StatusOr<int32_t> drawNext(const Decoder &decoder, Sampler &sampler,
                           int64_t choices, uint64_t draw,
                           const TokenMask *allowed,
                           const std::function<Status(const Wanted &)> &run);

} // namespace tessera
