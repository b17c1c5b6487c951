// The most probable next tokens by a teacher, for distillation: NAME.teacher
// next to NAME.tok. A 64-byte header, then a record for each token in the order
// of NAME.tok, of the distribution from which the token comes, after the
// earlier ones of its document:
//
//   top × i32        tokens, the most probable first; all −1 in a document's
//                    first record, where nothing is predicted
//   (top + 1) × f32  ln of their probabilities, then of all others together
//
// and at the end the 8 bytes of the XXH3-64 of all records.
//
//   offset  size  field of NAME.teacher, little-endian
//        0     8  magic "TSRATEAC"
//        8     8  version, 1
//       16     8  tokenCount
//       24     8  tokensHash: the payloadHash of NAME.tok
//       32     8  temperature, f64: divided the teacher's logits
//       40     4  top
//       44     4  vocabSize: of the teacher
//       48     8  headerHash: XXH3-64 of the 48 bytes before it
//       56     8  0
#pragma once
#include "runtime/data/FileOperations.h"
#include "runtime/data/PackedShard.h"
#include "runtime/support/Hash.h"

#include <span>
#include <string>
#include <utility>

namespace tessera {

/// Of a distribution.
struct TeacherFacts {
  double temperature = 1;
  uint32_t top = 0;
  uint32_t vocabSize = 0;
};

/// Instead of all tokens, in records where nothing is predicted.
inline constexpr int32_t kNoTeacherToken = -1;

/// Numbers are stored no lower: e^-80 is still a number in f32.
inline constexpr float kLeastLogProb = -80;

class TeacherShard {
public:
  /// Maps `path`, which must belong to the tokens of a shard of that header.
  static StatusOr<TeacherShard> open(const std::string &path,
                                     const PackedHeader &of);
  const TeacherFacts &facts() const { return known; }

  /// Of tokens [first, first + count) the `top` ≤ facts().top most probable:
  /// `tokens` [count, top], `logProbs` [count, top + 1]. Records in which
  /// nothing is predicted have kNoTeacherToken. Refuses what is not a
  /// distribution whose most probable tokens come first.
  Status read(uint64_t first, uint64_t count, std::size_t top,
              std::span<int32_t> tokens, std::span<float> logProbs) const;
  /// Verifies the hash of the records.
  Status verify() const;

private:
  TeacherShard() = default;
  Status check(uint64_t token, std::span<const int32_t> tokens,
               std::span<const float> logProbs) const;

  MappedFile file;
  std::string name;
  TeacherFacts known;
  uint64_t tokenCount = 0;
};

/// A file that is removed, unless it is kept.
class PartialFile {
public:
  explicit PartialFile(std::string path) : where(std::move(path)) {}
  PartialFile(PartialFile &&other) noexcept
      : where(std::exchange(other.where, {})) {}
  PartialFile &operator=(PartialFile &&) = delete;
  ~PartialFile();
  const std::string &path() const { return where; }
  void keep() { where.clear(); }

private:
  std::string where;
};

/// Writes `folder`/`name`.teacher record by record; it appears whole or not at
/// all.
class TeacherWriter {
public:
  static StatusOr<TeacherWriter> create(const std::string &folder,
                                        const std::string &name,
                                        const PackedHeader &of,
                                        const TeacherFacts &facts);

  /// Records one after the other: tokens [count, top], logProbs [count, top +
  /// 1].
  Status add(std::span<const int32_t> tokens, std::span<const float> logProbs);
  /// After as many records as there are tokens.
  Status finish();

private:
  TeacherWriter(std::string folder, std::string name, PartialFile partial,
                uint64_t tokenCount, std::size_t top, DurableFile file)
      : folder(std::move(folder)), name(std::move(name)),
        partial(std::move(partial)), tokenCount(tokenCount), top(top),
        file(std::move(file)) {}

  std::string folder, name; ///< of the file
  PartialFile partial;      ///< which becomes it
  uint64_t tokenCount, written = 0;
  std::size_t top;
  DurableFile file;
  Hasher64 hasher;
  std::vector<std::byte> buffer;
};

/// Removes `folder`/`name`.teacher; success if there is none.
Status removeTeacherShard(const std::string &folder, const std::string &name);

} // namespace tessera
