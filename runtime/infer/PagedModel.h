// A model that appends tokens to sequences whose keys and values are stored in
// pages of a KV cache (Kwon et al. 2023). The caller owns the pages and passes
// each sequence's block table. A model with recurrent layers has a state for
// each sequence, too, of all tokens so far: the caller owns its slot.
// DecodePrograms implements it with compiled programs.
#pragma once
#include "runtime/infer/TokenGuide.h"
#include "runtime/support/Status.h"
#include "runtime/support/TokenChoice.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

/// The sizes that the programs were compiled for.
struct DecoderShape {
  int64_t context = 0; ///< tokens of a sequence at most
  int64_t page = 0;    ///< tokens of a page
  int64_t pages = 0;   ///< of the KV cache
  int64_t chunk = 0;   ///< tokens of a prefill chunk
  int64_t vocab = 0;
  std::vector<int64_t> buckets; ///< batch sizes of the decode programs
  /// Logits that one sampling may change; -1: the model does not sample, and
  /// samplings are ignored.
  int64_t changes = -1;
  int64_t adapters = 0; ///< slots for adapters
  /// The tokens of a prompt see each other (attention.prompts: bidirectional):
  /// the first chunk of a sequence is its whole prompt.
  bool hasWholePrompts = false;
  /// Slots for the states of sequences; 0: no recurrent layers.
  int64_t states = 0;
  /// Whether a sequence can begin with the cached tokens of another, or return
  /// to its own earlier ones. A state is of all tokens, and has no past.
  bool reusesPrefixes() const { return !hasWholePrompts && states == 0; }
};

/// Whether a prompt of so many tokens is one chunk, if it must be.
Status checkPrompt(int64_t tokens, const DecoderShape &shape);

struct ChangedLogit {
  int32_t token = 0;
  LogitChange change;
};

/// A token for the model to sample itself, so that its logits need not be read.
struct TokenSampling {
  TokenChoice choice = {};
  /// No token twice; tokens at or after `choices` are ignored.
  std::span<const ChangedLogit> changes = {};
  const TokenMask *allowed = nullptr; ///< null: the first `choices`
  int64_t choices = 0;
};

/// Which results of a call are read.
struct Wanted {
  bool logits = true;
  std::span<const TokenSampling> samplings = {}; ///< empty, or one per row
};

/// A sequence's block table: token i is stored in pages[i / page]. The pages
/// hold `length` tokens and those that a call appends.
struct CachedText {
  std::span<const int32_t> pages;
  int64_t length = 0;
  int32_t adapter = -1; ///< the slot of its adapter; -1: none
  /// The slot of its state, if the model has states: no other sequence's until
  /// this one ends. At length 0 it is cleared.
  int32_t state = -1;
};

/// Not thread-safe.
class PagedModel {
public:
  virtual ~PagedModel() = default;
  virtual const DecoderShape &shape() const = 0;
  /// The error with which prefill() or decode() would refuse these arguments,
  /// before anything is computed.
  virtual Status checkPrefill(const CachedText &,
                              std::span<const int32_t> /*tokens*/,
                              const Wanted &) const {
    return Status::success();
  }
  virtual Status checkDecode(std::span<const CachedText>,
                             std::span<const int32_t> /*tokens*/,
                             const Wanted &) const {
    return Status::success();
  }
  /// Appends 1 to shape().chunk tokens; row 0 then predicts the token after the
  /// last of them. Ids must be inside the vocabulary. With hasWholePrompts, the
  /// tokens of a sequence that was empty see each other.
  virtual Status prefill(const CachedText &text,
                         std::span<const int32_t> tokens,
                         const Wanted &wanted) = 0;
  /// Appends token i to sequence i, at most as many as the largest bucket; row
  /// i then predicts sequence i's next token. Consecutive entries may be one
  /// growing sequence, with the same pages and each one token longer, unless
  /// the model has states; otherwise no page that is written is shared.
  virtual Status decode(std::span<const CachedText> sequences,
                        std::span<const int32_t> tokens,
                        const Wanted &wanted) = 0;
  /// [vocab], if Wanted::logits was set; valid until the next call.
  virtual std::span<const float> logits(int64_t row) const = 0;
  /// log Σ exp of these logits as a training step computes it, if the model was
  /// compiled with inference.numerics: training.
  virtual std::optional<float> logSum(int64_t) const { return std::nullopt; }
  /// The sampled token, or an error code of TokenChoice.h.
  virtual int32_t token(int64_t row) const = 0;
};

} // namespace tessera
