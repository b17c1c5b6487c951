// Two modes of arithmetic. Exact: sums term by term, functions as the host's,
// so the bits are those of plain loops. Hardware: as GPUs compute, as far as is
// known; README.md says from where.
#pragma once
#include "runtime/device/emulated/Machine.h"
#include "runtime/support/Status.h"

#include <boost/container/small_vector.hpp>

#include <cstdint>
#include <string_view>

namespace tessera::emulated {

struct Numerics {
  bool isHardware = false;
  /// Which results within their error bounds approximate functions have.
  std::uint64_t seed = 0;
};

/// Of "exact", "hardware" or "hardware:SEED"; `what` names the text in errors.
StatusOr<Numerics> parseNumerics(std::string_view text, std::string_view what);
/// What the environment variable TESSERA_EMU_NUMERICS says; exact without it.
StatusOr<Numerics> numericsOfEnvironment();

/// A float at most `ulps` units in the last place from `exact`: always the same
/// one for this argument, result and seed. Zeros, infinities and NaN stay.
float approximate(float exact, float argument, unsigned ulps,
                  std::uint64_t seed);

/// How tensor cores of one architecture add. All products of a step are exact.
/// They and the accumulator are aligned to the largest exponent, cut off after
/// `fractionBits` bits below it, added exactly, and cut off to a float.
struct CoreSums {
  unsigned fractionBits = 25, stepBytes = 32; ///< Hopper's
};

/// Products with one right operand, 32 bytes deep, by tensor cores.
class CoreProduct {
public:
  /// `b`: [depth, columns], which must outlive this.
  CoreProduct(const CoreSums &cores, device::MatrixElement element,
              const float *b, unsigned columns);
  /// c[j] += Σ a[k] × b[k, j].
  void add(float *c, const float *a) const;

private:
  void addStep(float *c, const float *a, unsigned first) const;
  template <unsigned N>
  void addColumns(float *c, const float *a, const int *left, unsigned first,
                  unsigned j) const;
  void addEach(float *c, const float *a, const int *left, unsigned first,
               unsigned begin, unsigned end) const;
  double sumOf(double sum, const float *a, unsigned first, unsigned j) const;

  unsigned fractionBits, resultBits, depth, terms; ///< terms of a step
  int smallest, exponentOfZero;
  const float *b;
  unsigned columns;
  bool isFinite = true; ///< b
  /// Of b; as many as an mma.sync has without an allocation.
  boost::container::small_vector<short, 128> exponents;
};

} // namespace tessera::emulated
