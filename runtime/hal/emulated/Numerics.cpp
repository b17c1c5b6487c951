#include "runtime/hal/emulated/Numerics.h"
#include "runtime/hal/emulated/MatrixOperand.h"
#include "runtime/hal/emulated/Random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>

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
  if (std::abs(value) >= 0x1p128)
    return value < 0 ? -INFINITY : INFINITY;
  auto rounded = static_cast<float>(value);
  auto bits = std::bit_cast<std::uint32_t>(rounded);
  if (std::abs(double(rounded)) > std::abs(value))
    --bits;
  return std::bit_cast<float>(bits & ~0u << (23 - fractionBits));
}

// 2 to the power of `exponent`, of a normal double.
static double powerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023)
                               << 52);
}

namespace {
/// One step of the cores for all columns of a row.
class Step {
public:
  Step(const CoreSums &cores, MatrixElement element, unsigned columns)
      : smallest(smallestExponent(element)),
        // Hopper's FP8 keeps fewer bits (DeepSeek-V3, section 3.3.2).
        isFp8(bytesOf(element) == 1),
        fractionBits(isFp8 ? 13 : cores.fractionBits),
        exponentOfZero(-108 - static_cast<int>(cores.fractionBits)),
        columns(columns) {}

  void add(float *c, const float *a, const float *b, unsigned terms) {
    align(c, a, b, terms);
    for (unsigned j = 0; j < columns; ++j)
      at[j].sum = at[j].kept(c[j]);
    for (unsigned k = 0; k < terms; ++k)
      for (unsigned j = 0; j < columns; ++j)
        at[j].sum += at[j].kept(double(a[k]) * b[std::size_t(k) * columns + j]);
    for (unsigned j = 0; j < columns; ++j)
      c[j] = result(at[j]);
  }

private:
  struct Column {
    int largest;  ///< exponent among its terms
    double plain; ///< sum, to find what is no number
    double scale; ///< makes the last bit that is kept 1
    double sum;   ///< of scaled terms
    /// Scaled, less than 2^28: sums of 33 are exact.
    double kept(double term) const {
      return std::isfinite(plain) ? static_cast<std::int32_t>(term * scale) : 0;
    }
  };

  void align(const float *c, const float *a, const float *b, unsigned terms) {
    for (unsigned j = 0; j < columns; ++j)
      at[j] = {std::max(exponentOf(c[j], -126), exponentOfZero), c[j], 1, 0};
    for (unsigned k = 0; k < terms; ++k) {
      const int left = exponentOf(a[k], smallest);
      for (unsigned j = 0; j < columns; ++j) {
        const float term = b[std::size_t(k) * columns + j];
        at[j].largest =
            std::max(at[j].largest, left + exponentOf(term, smallest));
        at[j].plain += double(a[k]) * term;
      }
    }
    for (unsigned j = 0; j < columns; ++j)
      at[j].scale = powerOfTwo(static_cast<int>(fractionBits) - at[j].largest);
  }

  float result(const Column &column) const {
    if (!std::isfinite(column.plain)) // an operand is infinite or NaN
      return static_cast<float>(column.plain);
    return truncated(column.sum / column.scale, isFp8 ? 13 : 23);
  }

  int smallest;
  bool isFp8;
  unsigned fractionBits;
  int exponentOfZero;
  unsigned columns;
  std::array<Column, 256> at; ///< as many as wgmma has at most
};
} // namespace

void addByCores(const CoreSums &cores, MatrixElement element, float *c,
                const float *a, const float *b, unsigned depth,
                unsigned columns) {
  Step step(cores, element, columns);
  const unsigned terms = std::min(cores.stepBytes / bytesOf(element), depth);
  for (unsigned k = 0; k < depth; k += terms)
    step.add(c, a + k, b + std::size_t(k) * columns, terms);
}

} // namespace tessera::emulated
