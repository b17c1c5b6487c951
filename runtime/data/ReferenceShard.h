// Log-probabilities of the tokens of packed rows by a reference model, which
// preference losses compare with: NAME.ref next to NAME.tok. A 64-byte header,
// then an f32 for each token in the order of NAME.tok: ln of the probability of
// the token after the earlier ones of its document. It is 0 for the first one.
//
//   offset  size  field of NAME.ref, little-endian
//        0     8  magic "TSRAREFS"
//        8     8  version: 1, or 2 if the tokens of a prompt saw each other
//                 (attention.prompts: bidirectional); prompts then have zeros
//       16     8  tokenCount
//       24     8  tokensHash: the payloadHash of NAME.tok
//       32     8  payloadHash: XXH3-64 of the numbers
//       40     8  headerHash: XXH3-64 of the 40 bytes before it
//       48    16  0
#pragma once
#include "runtime/data/PackedShard.h"

namespace tessera {

class ReferenceShard {
public:
  /// Maps `path`, which must belong to the tokens of a shard of that header.
  static StatusOr<ReferenceShard> open(const std::string &path,
                                       const PackedHeader &of);

  /// Of the tokens from `first` on. Refuses numbers that are not
  /// log-probabilities.
  Status read(uint64_t first, std::span<float> out) const;
  /// Verifies the hash of the numbers.
  Status verify() const;
  bool hasWholePrompts() const { return ofWholePrompts; }

private:
  ReferenceShard() = default;
  MappedFile file;
  std::string name;
  uint64_t payloadHash = 0;
  bool ofWholePrompts = false;
};

/// Writes `folder`/`name`.ref in one step, in place of an earlier one.
Status writeReferenceShard(const std::string &folder, const std::string &name,
                           const PackedHeader &of,
                           std::span<const float> logProbabilities,
                           bool hasWholePrompts = false);

/// Removes `folder`/`name`.ref; success if there is none.
Status removeReferenceShard(const std::string &folder, const std::string &name);

} // namespace tessera
