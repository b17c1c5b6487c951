// Which bytes of a space have been written.
#pragma once
#include <cstdint>
#include <map>

namespace tessera::hal {

/// A set of byte offsets, kept as disjoint ranges that do not touch.
class ByteSet {
public:
  /// Adds [begin, end).
  void insert(std::uint64_t begin, std::uint64_t end);
  /// The first offset of [begin, end) that is not in the set; `end` if all are.
  std::uint64_t firstMissing(std::uint64_t begin, std::uint64_t end) const;

private:
  std::map<std::uint64_t, std::uint64_t> ranges; // begin → end
};

} // namespace tessera::hal
