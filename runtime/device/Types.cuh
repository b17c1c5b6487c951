// bf16 as kernels hold it, and conversions between the types of elements. Of
// f16, which scales of quantized weights have, there is but its value as a
// float: no model here computes in it.
#pragma once
#include "runtime/device/Platform.cuh"

namespace tessera::device {

/// The upper sixteen bits of a float, as stored.
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

TESSERA_DEVICE float bitsToFloat(uint32_t bits) {
#if defined(__CUDACC__)
  return __uint_as_float(bits);
#else
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

TESSERA_DEVICE uint32_t floatToBits(float value) {
#if defined(__CUDACC__)
  return __float_as_uint(value);
#else
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

TESSERA_DEVICE float toFloat(bf16 value) {
  return bitsToFloat(static_cast<uint32_t>(value.bits) << 16);
}

#if !defined(__CUDACC__)
inline float halfToFloat(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31,
           mantissa = bits & 0x3ff;
  if (exponent == 31)
    return bitsToFloat(sign | 0x7f800000 | mantissa << 13);
  if (exponent)
    return bitsToFloat(sign | (exponent + 112) << 23 | mantissa << 13);
  float tiny = ::ldexpf(static_cast<float>(mantissa), -24);
  return sign ? -tiny : tiny;
}
#endif

TESSERA_DEVICE float toFloat(f16 value) {
#if defined(__CUDACC__)
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#else
  return halfToFloat(value.bits);
#endif
}

/// To the nearest, ties to even; NaN stays NaN.
TESSERA_DEVICE bf16 toBf16(float value) {
#if defined(__CUDACC__)
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return {bits};
#else
  uint32_t bits = floatToBits(value);
  if (value != value)
    return {static_cast<uint16_t>(bits >> 16 | 64)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
#endif
}

/// Two of them side by side, as tensor cores take them.
TESSERA_DEVICE uint32_t packPair(bf16 low, bf16 high) {
  return low.bits | static_cast<uint32_t>(high.bits) << 16;
}
TESSERA_DEVICE uint32_t toBf16Pair(float low, float high) {
#if defined(__CUDACC__)
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return packPair(toBf16(low), toBf16(high));
#endif
}

/// static_cast with bf16 among the types.
template <typename To> struct Convert {
  template <typename From> static TESSERA_DEVICE To from(From value) {
    return static_cast<To>(value);
  }
  static TESSERA_DEVICE To from(bf16 value) {
    return static_cast<To>(toFloat(value));
  }
};
template <> struct Convert<bf16> {
  template <typename From> static TESSERA_DEVICE bf16 from(From value) {
    return toBf16(static_cast<float>(value));
  }
  static TESSERA_DEVICE bf16 from(bf16 value) { return value; }
};

/// Signless integers as unsigned ones of their width.
template <typename T> struct Unsigned;
template <> struct Unsigned<bool> {
  using Type = unsigned char;
};
template <> struct Unsigned<int8_t> {
  using Type = uint8_t;
};
template <> struct Unsigned<int16_t> {
  using Type = uint16_t;
};
template <> struct Unsigned<int32_t> {
  using Type = uint32_t;
};
template <> struct Unsigned<int64_t> {
  using Type = uint64_t;
};

template <typename T>
TESSERA_DEVICE typename Unsigned<T>::Type asUnsigned(T value) {
  return static_cast<typename Unsigned<T>::Type>(value);
}

} // namespace tessera::device
