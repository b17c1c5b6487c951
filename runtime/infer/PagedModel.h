// What appends tokens to sequences whose keys and values stand in pages of a
// cache (Kwon et al. 2023). Whoever calls owns the pages and says where each
// text stands; DecodePrograms is the compiled model behind it.
#pragma once
#include "runtime/infer/TokenGuide.h"
#include "runtime/support/Status.h"
#include "runtime/support/TokenChoice.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// What the programs of an artifact were made for.
struct DecoderShape {
  int64_t context = 0; ///< tokens of a sequence at most
  int64_t page = 0;    ///< tokens of a page
  int64_t pages = 0;   ///< of the cache
  int64_t chunk = 0;   ///< tokens of a prompt that are read at once
  int64_t vocab = 0;
  std::vector<int64_t> buckets; ///< numbers of sequences of decode programs
  /// Logits that a sampling may change; -1: tokens are not chosen where the
  /// logits are, so that samplings are not heard.
  int64_t changes = -1;
};

struct ChangedLogit {
  int32_t token = 0;
  LogitChange change;
};

/// A token that is to be chosen where its logits are, so that they need not be
/// read.
struct TokenSampling {
  TokenChoice choice = {};
  /// No token twice; of those that are no choice nothing comes.
  std::span<const ChangedLogit> changes = {};
  const TokenMask *allowed = nullptr; ///< null: the first `choices`
  int64_t choices = 0;
};

/// What a call is to leave behind.
struct Wanted {
  bool logits = true;
  std::span<const TokenSampling> samplings = {}; ///< none, or one for each row
};

/// A text's place in the cache: token i stands in pages[i / page]. There are
/// pages for `length` tokens and for those that a call appends.
struct CachedText {
  std::span<const int32_t> pages;
  int64_t length = 0;
};

/// One thread at a time.
class PagedModel {
public:
  virtual ~PagedModel() = default;
  virtual const DecoderShape &shape() const = 0;
  /// Appends 1 to shape().chunk tokens; row 0 is then what follows the last of
  /// them. Ids must be inside the vocabulary.
  virtual Status prefill(const CachedText &text,
                         std::span<const int32_t> tokens,
                         const Wanted &wanted) = 0;
  /// Appends token i to text i, at most as many as the largest bucket; row i is
  /// then what follows it. Texts that follow one another may be
  /// one text that grows, each with a length of one more and all with the same
  /// pages; otherwise none shares a page that is written.
  virtual Status decode(std::span<const CachedText> sequences,
                        std::span<const int32_t> tokens,
                        const Wanted &wanted) = 0;
  /// [vocab], where they were wanted; valid until the next call.
  virtual std::span<const float> logits(int64_t row) const = 0;
  /// What was requested: a token, or what TokenChoice.h has in its place.
  virtual int32_t token(int64_t row) const = 0;
};

} // namespace tessera
