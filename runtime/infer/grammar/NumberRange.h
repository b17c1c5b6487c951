// Numbers of JSON between bounds, as their digits say.
#pragma once
#include "runtime/infer/grammar/JsonText.h"

namespace tessera::grammar {

/// A bound that is not there bounds nothing.
struct NumberRange {
  struct Bound {
    double value = 0;
    bool isExcluded = false;
  };
  std::optional<Bound> least, most;

  /// Makes the range smaller; of two equal bounds the one that excludes its
  /// value.
  void raiseLeast(Bound bound);
  void lowerMost(Bound bound);
};

/// The numbers of the range, without exponents and with so few digits behind
/// the point that none is rounded to a bound; where they lead. An error says
/// that no number is in the range, or that a bound has too many digits: 15 are
/// served, as a double keeps them.
StatusOr<uint32_t> addNumberWithin(Grammar &grammar, JsonText &json,
                                   uint32_t from, const NumberRange &range);

} // namespace tessera::grammar
