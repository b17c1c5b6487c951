// A hash map from pairs of token ids to small values: the one structure that
// both merging and training live in.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::tokenizer {

/// Two neighbouring tokens, the left one in the high half.
using Pair = uint64_t;
inline Pair makePair(uint32_t left, uint32_t right) {
  return uint64_t{left} << 32 | right;
}
inline uint32_t leftOf(Pair pair) { return static_cast<uint32_t>(pair >> 32); }
inline uint32_t rightOf(Pair pair) { return static_cast<uint32_t>(pair); }

/// Open addressing with linear probing; nothing is ever erased. No token id is
/// 0xFFFFFFFF, so the pair of two such marks an empty slot.
template <typename Value> class PairMap {
public:
  explicit PairMap(size_t expected = 0) {
    slots.resize(std::bit_ceil(expected * 2 + 16));
  }
  size_t size() const { return count; }

  /// The value of `pair`, or null.
  const Value *find(Pair pair) const {
    const Slot &slot = slots[place(pair)];
    return slot.first == pair ? &slot.second : nullptr;
  }
  Value *find(Pair pair) {
    return const_cast<Value *>(std::as_const(*this).find(pair));
  }
  /// The value of `pair`, made if it is absent; valid until the next call.
  Value &operator[](Pair pair) {
    if ((count + 1) * 2 > slots.size())
      grow();
    Slot &slot = slots[place(pair)];
    if (slot.first != pair) {
      slot.first = pair;
      ++count;
    }
    return slot.second;
  }

private:
  static constexpr Pair empty = ~Pair{0};
  struct Slot {
    Pair first = empty;
    Value second{};
  };

  size_t place(Pair pair) const {
    // Fibonacci hashing after folding: the left id must reach the high bits.
    uint64_t hash = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u;
    size_t mask = slots.size() - 1;
    size_t at = (hash ^ hash >> 32) & mask;
    while (slots[at].first != pair && slots[at].first != empty)
      at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> old = std::exchange(slots, {});
    slots.resize(old.size() * 2);
    for (Slot &slot : old)
      if (slot.first != empty)
        slots[place(slot.first)] = std::move(slot);
  }

  std::vector<Slot> slots;
  size_t count = 0;
};

} // namespace tessera::tokenizer
