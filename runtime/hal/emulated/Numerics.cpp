#include "runtime/hal/emulated/Numerics.h"
#include "runtime/hal/emulated/MatrixOperand.h"
#include "runtime/hal/emulated/Random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>

#if defined(__has_feature)
#define TESSERA_HAS_TSAN __has_feature(thread_sanitizer)
#else
#define TESSERA_HAS_TSAN 0
#endif

namespace tessera::emulated {

using device::MatrixElement;

//===--- mode -------------------------------------------------------------===//

StatusOr<Numerics> parseNumerics(std::string_view text, std::string_view what) {
  constexpr std::string_view kHardware = "hardware";
  if (text == "exact")
    return Numerics{};
  Numerics numerics{true, 0};
  if (text == kHardware)
    return numerics;
  if (text.starts_with(kHardware) && text[kHardware.size()] == ':') {
    const char *first = text.data() + kHardware.size() + 1,
               *end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(first, end, numerics.seed);
    if (error == std::errc() && stopped == end)
      return numerics;
  }
  return Status::error(
      "{} is '{}'; expected exact, hardware or hardware:SEED, an integer of at "
      "most 64 bits",
      what, text);
}

StatusOr<Numerics> numericsOfEnvironment() {
  constexpr const char *kName = "TESSERA_EMU_NUMERICS";
  const char *text = std::getenv(kName);
  return text ? parseNumerics(text, kName) : Numerics{};
}

//===--- functions --------------------------------------------------------===//

float approximate(float exact, float argument, unsigned ulps,
                  std::uint64_t seed) {
  if (exact == 0 || !std::isfinite(exact) || argument == 0)
    return exact;
  auto bits = std::bit_cast<std::uint32_t>(exact);
  Random random(
      seed ^
      (std::uint64_t(std::bit_cast<std::uint32_t>(argument)) << 32 | bits));
  auto away = static_cast<std::int64_t>(random() % (2 * ulps + 1)) - ulps;
  // Magnitudes are ordered as their bits; the sign stays. No sine, hyperbolic
  // tangent or error function is beyond 1.
  constexpr std::int64_t kOne = 0x3f800000, kLargestFinite = 0x7f7fffff;
  const auto largest = std::abs(exact) <= 1 ? kOne : kLargestFinite;
  std::int64_t magnitude =
      std::clamp<std::int64_t>((bits & 0x7fffffff) + away, 0, largest);
  return std::bit_cast<float>(static_cast<std::uint32_t>(magnitude) |
                              (bits & 0x80000000));
}

//===--- tensor cores -----------------------------------------------------===//

// The smallest exponent of a normal number.
static int smallestExponent(MatrixElement element) {
  switch (element) {
  case MatrixElement::bf16:
  case MatrixElement::tf32:
    return -126;
  case MatrixElement::f16:
  case MatrixElement::e5m2:
    return -14;
  case MatrixElement::e4m3:
    return -6;
  }
  return -126;
}

// A subnormal number has the smallest exponent of its type.
static int exponentOf(float value, int smallest) {
  constexpr int kNone = -1000; // what is zero does not move the others
  if (value == 0)
    return kNone;
  auto bits = std::bit_cast<std::uint32_t>(value);
  return std::max(static_cast<int>(bits >> 23 & 255) - 127, smallest);
}

// Towards zero, with `fractionBits` bits after the first.
static float truncated(double value, unsigned fractionBits) {
  auto rounded = static_cast<float>(value);
  auto bits = std::bit_cast<std::uint32_t>(rounded);
  bits -= std::abs(double(rounded)) > std::abs(value);
  auto cut = std::bit_cast<float>(bits & ~0u << (23 - fractionBits));
  return std::abs(value) >= 0x1p128 ? rounded : cut;
}

// 2 to the power of `exponent`, of a normal double.
static double powerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023)
                               << 52);
}

CoreProduct::CoreProduct(const CoreSums &cores, MatrixElement element,
                         const float *b, unsigned columns)
    : fractionBits(cores.fractionBits), resultBits(23),
      depth(kDepthBytes / bytesOf(element)),
      terms(cores.stepBytes / bytesOf(element)),
      smallest(smallestExponent(element)),
      exponentOfZero(-108 - static_cast<int>(cores.fractionBits)), b(b),
      columns(columns), exponents(std::size_t(depth) * columns) {
  if (bytesOf(element) == 1) // Hopper's FP8 keeps fewer bits
    fractionBits = resultBits = 13;
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    exponents[i] = static_cast<short>(exponentOf(b[i], smallest));
    isFinite &= std::isfinite(b[i]);
  }
}

// Infinite or NaN where an operand of the column is.
double CoreProduct::sumOf(double sum, const float *a, unsigned first,
                          unsigned j) const {
  for (unsigned k = first; k < first + terms; ++k)
    sum += double(a[k]) * b[std::size_t(k) * columns + j];
  return sum;
}

// N columns from `j` on, in registers. `left`: the exponents of a's terms.
template <unsigned N>
inline __attribute__((always_inline)) void
CoreProduct::addColumns(float *c, const float *a, const int *left,
                        unsigned first, unsigned j) const {
  int largest[N]; // exponent among a column's terms
  for (unsigned i = 0; i < N; ++i)
    largest[i] = std::max(exponentOf(c[i], -126), exponentOfZero);
  for (unsigned k = 0; k < terms; ++k) {
    const short *right =
        exponents.data() + std::size_t(first + k) * columns + j;
    for (unsigned i = 0; i < N; ++i)
      largest[i] = std::max(largest[i], left[k] + right[i]);
  }
  // Less than 2^28, so that all sums of them are exact.
  auto kept = [](double term, double scale) {
    return static_cast<double>(static_cast<std::int32_t>(term * scale));
  };
  const int bits = static_cast<int>(fractionBits);
  double scales[N], sums[N];
  for (unsigned i = 0; i < N; ++i) {
    scales[i] = powerOfTwo(bits - largest[i]);
    sums[i] = kept(c[i], scales[i]);
  }
  for (unsigned k = first; k < first + terms; ++k) {
    const double factor = a[k];
    const float *right = b + std::size_t(k) * columns + j;
    for (unsigned i = 0; i < N; ++i)
      sums[i] += kept(factor * right[i], scales[i]);
  }
  for (unsigned i = 0; i < N; ++i)
    c[i] = truncated(sums[i] * powerOfTwo(largest[i] - bits), resultBits);
}

// Compiled for wider vectors, too, of which the processor's are chosen when the
// program starts: before ThreadSanitizer does, which crashes then. No bit
// depends on it: products and sums are exact.
#if defined(__x86_64__) && !TESSERA_HAS_TSAN
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void CoreProduct::addStep(float *c, const float *a, unsigned first) const {
  constexpr unsigned kGroup = 8; // columns of an mma.sync
  auto finite = [](double x) { return std::isfinite(x); };
  int left[kDepthBytes];
  bool isRowFinite = isFinite;
  for (unsigned k = 0; k < terms; ++k) {
    left[k] = exponentOf(a[first + k], smallest);
    isRowFinite &= finite(a[first + k]);
  }
  unsigned j = 0;
  for (; j + kGroup <= columns; j += kGroup)
    if (isRowFinite && std::all_of(c + j, c + j + kGroup, finite))
      addColumns<kGroup>(c + j, a, left, first, j);
    else
      addEach(c, a, left, first, j, j + kGroup);
  addEach(c, a, left, first, j, columns);
}

void CoreProduct::addEach(float *c, const float *a, const int *left,
                          unsigned first, unsigned begin, unsigned end) const {
  for (unsigned j = begin; j < end; ++j)
    if (const double plain = sumOf(c[j], a, first, j); std::isfinite(plain))
      addColumns<1>(c + j, a, left, first, j);
    else
      c[j] = static_cast<float>(plain);
}

void CoreProduct::add(float *c, const float *a) const {
  for (unsigned k = 0; k < depth; k += terms)
    addStep(c, a, k);
}

} // namespace tessera::emulated
