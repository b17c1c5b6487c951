#include "runtime/comm/Reduce.h"

#include "runtime/support/Floats.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace tessera::comm {
namespace {

/// Elements that are accumulated at a time: they stay in the L1 cache.
constexpr std::uint64_t kBlock = 1024;

/// How a type is stored and in what it is accumulated.
template <typename T> struct Plain {
  using Stored = T;
  using Sum = T;
  static Sum upcast(Stored value) { return value; }
  static Stored narrow(Sum value) { return value; }
};
struct Bf16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum upcast(Stored value) { return bf16ToFloat(value); }
  static Stored narrow(Sum value) { return floatToBf16(value); }
};
struct F16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum upcast(Stored value) { return f16ToFloat(value); }
  static Stored narrow(Sum value) { return floatToF16(value); }
};

// Classes, so that each loop below is compiled for its own.
struct Add {
  template <typename T> T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using Bits = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
    } else {
      return a + b;
    }
  }
};
// b != b: it is a NaN. One in `a` stays, since it compares false.
struct Larger {
  template <typename T> T operator()(T a, T b) const {
    return a < b || b != b ? b : a;
  }
};
struct Smaller {
  template <typename T> T operator()(T a, T b) const {
    return b < a || b != b ? b : a;
  }
};

template <typename Format, typename Combine>
void reduceAs(std::span<const std::byte *const> contributions,
              std::byte *result, std::uint64_t count, Combine combine) {
  using Stored = typename Format::Stored;
  Stored block[kBlock];
  typename Format::Sum sums[kBlock];
  for (std::uint64_t first = 0; first < count; first += kBlock) {
    const std::uint64_t length = std::min(kBlock, count - first);
    const std::uint64_t offset = first * sizeof(Stored);
    for (std::size_t c = 0; c < contributions.size(); ++c) {
      std::memcpy(block, contributions[c] + offset, length * sizeof(Stored));
      for (std::uint64_t i = 0; i < length; ++i) {
        const auto value = Format::upcast(block[i]);
        sums[i] = c == 0 ? value : combine(sums[i], value);
      }
    }
    for (std::uint64_t i = 0; i < length; ++i)
      block[i] = Format::narrow(sums[i]);
    std::memcpy(result + offset, block, length * sizeof(Stored));
  }
}

template <typename Format>
void reduceBy(Reduction reduction,
              std::span<const std::byte *const> contributions,
              std::byte *result, std::uint64_t count) {
  switch (reduction) {
  case Reduction::sum:
    return reduceAs<Format>(contributions, result, count, Add());
  case Reduction::max:
    return reduceAs<Format>(contributions, result, count, Larger());
  case Reduction::min:
    return reduceAs<Format>(contributions, result, count, Smaller());
  }
}

} // namespace

void reduceInOrder(ElementType type, Reduction reduction,
                   std::span<const std::byte *const> contributions,
                   std::byte *result, std::uint64_t count) {
  switch (type) {
  case ElementType::f64:
    return reduceBy<Plain<double>>(reduction, contributions, result, count);
  case ElementType::f32:
    return reduceBy<Plain<float>>(reduction, contributions, result, count);
  case ElementType::bf16:
    return reduceBy<Bf16>(reduction, contributions, result, count);
  case ElementType::f16:
    return reduceBy<F16>(reduction, contributions, result, count);
  case ElementType::i64:
    return reduceBy<Plain<std::int64_t>>(reduction, contributions, result,
                                         count);
  case ElementType::i32:
    return reduceBy<Plain<std::int32_t>>(reduction, contributions, result,
                                         count);
  case ElementType::i16:
    return reduceBy<Plain<std::int16_t>>(reduction, contributions, result,
                                         count);
  case ElementType::i8:
    return reduceBy<Plain<std::int8_t>>(reduction, contributions, result,
                                        count);
  case ElementType::u8:
  case ElementType::i1:
    return reduceBy<Plain<std::uint8_t>>(reduction, contributions, result,
                                         count);
  }
}

} // namespace tessera::comm
