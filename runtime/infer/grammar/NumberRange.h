// JSON numbers between bounds, compared digit by digit.
#pragma once
#include "runtime/infer/grammar/JsonText.h"

namespace tessera::grammar {

/// A missing bound is unbounded.
struct NumberRange {
  struct Bound {
    double value = 0;
    bool isExcluded = false;
  };
  std::optional<Bound> least, most;

  /// Narrows the range; of two equal bounds the exclusive one counts.
  void raiseLeast(Bound bound);
  void lowerMost(Bound bound);
};

/// Adds the numbers of the range, without exponents and with so few decimals
/// that none is rounded to a bound; returns the node after them. Errors: no
/// number is in the range, or a bound has more than 15 digits, the precision of
/// a double.
StatusOr<uint32_t> addNumberWithin(Grammar &grammar, JsonText &json,
                                   uint32_t from, const NumberRange &range);

} // namespace tessera::grammar
