// The functions that generated kernels call by name, for scalars. On a GPU they
// are CUDA's own; the accurate ones, since a training step spends its time
// elsewhere.
#pragma once
#include "runtime/device/Types.cuh"

namespace tessera::device {

#if !defined(__CUDACC__)
/// `exact`, or what a GPU's function, which may err by `ulps` units in the last
/// place, may result in.
inline float asOnGpu(double exact, float argument, unsigned ulps) {
  return machine->approximate(static_cast<float>(exact), argument, ulps);
}
inline bool isApproximate() { return machine && machine->approximates; }
#endif

// The last argument is the largest error in units in the last place (CUDA C++
// Programming Guide, "Mathematical Functions"; CUDA calls them tested, not
// guaranteed).
#if defined(__CUDACC__)
#define TESSERA_FUNCTION(name, implementation, ulps)                           \
  TESSERA_DEVICE float name(float x) { return ::implementation##f(x); }        \
  TESSERA_DEVICE double name(double x) { return ::implementation(x); }
#else
#define TESSERA_FUNCTION(name, implementation, ulps)                           \
  inline float name(float x) {                                                 \
    return ulps && isApproximate()                                             \
               ? asOnGpu(::implementation(double(x)), x, ulps)                 \
               : ::implementation##f(x);                                       \
  }                                                                            \
  inline double name(double x) { return ::implementation(x); }
#endif

TESSERA_FUNCTION(exp, exp, 2)
TESSERA_FUNCTION(exp2, exp2, 2)
TESSERA_FUNCTION(expm1, expm1, 1)
TESSERA_FUNCTION(log, log, 1)
TESSERA_FUNCTION(log2, log2, 1)
TESSERA_FUNCTION(log10, log10, 2)
TESSERA_FUNCTION(log1p, log1p, 1)
TESSERA_FUNCTION(tanh, tanh, 2)
TESSERA_FUNCTION(erf, erf, 2)
TESSERA_FUNCTION(sin, sin, 2)
TESSERA_FUNCTION(cos, cos, 2)
TESSERA_FUNCTION(sqrt, sqrt, 0)
TESSERA_FUNCTION(abs, fabs, 0)
TESSERA_FUNCTION(floor, floor, 0)
TESSERA_FUNCTION(ceil, ceil, 0)
TESSERA_FUNCTION(trunc, trunc, 0)
TESSERA_FUNCTION(roundEven, rint, 0)

#undef TESSERA_FUNCTION

TESSERA_DEVICE float rsqrt(float x) {
#if defined(__CUDACC__)
  return ::rsqrtf(x);
#else
  return isApproximate() ? asOnGpu(1 / ::sqrt(double(x)), x, 2)
                         : 1 / ::sqrtf(x);
#endif
}
TESSERA_DEVICE double rsqrt(double x) { return 1 / sqrt(x); }

TESSERA_DEVICE float pow(float x, float y) {
#if !defined(__CUDACC__)
  if (isApproximate())
    return asOnGpu(::pow(double(x), double(y)), x, 9);
#endif
  return ::powf(x, y);
}
TESSERA_DEVICE double pow(double x, double y) { return ::pow(x, y); }
TESSERA_DEVICE float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
TESSERA_DEVICE double fma(double x, double y, double z) {
  return ::fma(x, y, z);
}

/// x / y within two units in the last place (PTX ISA, div.full.f32); without
/// branches.
TESSERA_DEVICE float divide(float x, float y) {
#if defined(__CUDACC__)
  float result;
  asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
#else
  return isApproximate() ? asOnGpu(double(x) / double(y), x, 2) : x / y;
#endif
}

/// 2^x within 2^-22 times the result, at least two units in the last place; 0
/// if it would be subnormal.
TESSERA_DEVICE float exp2Approximate(float x) {
#if defined(__CUDACC__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  float result =
      isApproximate() ? asOnGpu(::exp2(double(x)), x, 2) : ::exp2f(x);
  return result < 0x1p-126f ? 0 : result;
#endif
}

/// 1 / x within one unit in the last place; 0 if it would be subnormal.
TESSERA_DEVICE float reciprocalApproximate(float x) {
#if defined(__CUDACC__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  float result = isApproximate() ? asOnGpu(1 / double(x), x, 1) : 1 / x;
  return fabsf(result) < 0x1p-126f ? 0 : result;
#endif
}

/// tanh x within 2^-21: for sums with 1, where that is what counts.
TESSERA_DEVICE float tanhApproximate(float x) {
  float power = exp2Approximate(x * 0x1.715476p+1f); // e^2x
  return fma(-2.0f, reciprocalApproximate(1.0f + power), 1.0f);
}

/// NaN if one is NaN, as arith.maximumf and minimumf.
template <typename T> TESSERA_DEVICE T maximum(T x, T y) {
  return x != x || x > y ? x : y;
}
template <typename T> TESSERA_DEVICE T minimum(T x, T y) {
  return x != x || x < y ? x : y;
}
#if defined(__CUDACC__)
/// The same of floats, in one instruction.
TESSERA_DEVICE float maximum(float x, float y) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
TESSERA_DEVICE float minimum(float x, float y) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
#endif

/// T, where it is not to be deduced: literals are ints.
template <typename T> struct Same {
  using Type = T;
};

/// Signless arithmetic wraps around; that of C++'s signed types must not.
template <typename T>
TESSERA_DEVICE T addWrapping(T x, typename Same<T>::Type y) {
  return static_cast<T>(asUnsigned(x) + asUnsigned(y));
}
template <typename T>
TESSERA_DEVICE T subtractWrapping(T x, typename Same<T>::Type y) {
  return static_cast<T>(asUnsigned(x) - asUnsigned(y));
}
template <typename T>
TESSERA_DEVICE T multiplyWrapping(T x, typename Same<T>::Type y) {
  return static_cast<T>(asUnsigned(x) * asUnsigned(y));
}
template <typename T>
TESSERA_DEVICE T divideUnsigned(T x, typename Same<T>::Type y) {
  return static_cast<T>(asUnsigned(x) / asUnsigned(y));
}
template <typename T>
TESSERA_DEVICE T remainderUnsigned(T x, typename Same<T>::Type y) {
  return static_cast<T>(asUnsigned(x) % asUnsigned(y));
}
template <typename T>
TESSERA_DEVICE T shiftRightUnsigned(T x, typename Same<T>::Type y) {
  return static_cast<T>(asUnsigned(x) >> asUnsigned(y));
}
/// The upper half of the product of two unsigned numbers.
TESSERA_DEVICE int32_t multiplyHigh(int32_t x, int32_t y) {
  return static_cast<int32_t>(
      static_cast<uint64_t>(asUnsigned(x)) * asUnsigned(y) >> 32);
}

} // namespace tessera::device
