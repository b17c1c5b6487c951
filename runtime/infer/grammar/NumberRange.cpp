#include "runtime/infer/grammar/NumberRange.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

namespace tessera::grammar {

void NumberRange::raiseLeast(Bound bound) {
  if (!least || bound.value > least->value)
    least = bound;
  else if (bound.value == least->value)
    least->isExcluded |= bound.isExcluded;
}

void NumberRange::lowerMost(Bound bound) {
  if (!most || bound.value < most->value)
    most = bound;
  else if (bound.value == most->value)
    most->isExcluded |= bound.isExcluded;
}

namespace {

constexpr size_t kDigits = 15; ///< different decimals are different doubles

/// A bound without its sign.
struct Magnitude {
  int64_t whole = 0;
  std::string fraction; ///< digits after the point, without trailing zeros
  bool isExcluded = false;

  bool isLess(const Magnitude &other) const {
    return whole != other.whole ? whole < other.whole
                                : fraction < other.fraction;
  }
  bool isSame(const Magnitude &other) const {
    return whole == other.whole && fraction == other.fraction;
  }
};

/// The end of a number after its integer digits: nothing, or a point and up to
/// `maxDecimals` digits, between those of the given bounds.
class Fraction {
public:
  Fraction(Grammar &grammar, const Magnitude *low, const Magnitude *high,
           size_t maxDecimals)
      : grammar(grammar), low(low), high(high), maxDecimals(maxDecimals) {}

  bool isPossible() { return leads(start()); }

  void add(uint32_t from, uint32_t to) {
    if (canEnd(start()))
      grammar.addSkip(from, to);
    uint32_t point = grammar.addNode();
    std::map<State, uint32_t> nodes = {{start(), point}};
    bool goesOn = false;
    for (size_t i = 0; i < maxDecimals; ++i) {
      std::map<State, uint32_t> next;
      for (auto [state, node] : nodes)
        for (auto [digit, after] : stepsFrom(state)) {
          if (!leads(after))
            continue;
          auto [found, isNew] = next.try_emplace(after, 0);
          if (isNew) {
            found->second = grammar.addNode();
            if (canEnd(after))
              grammar.addSkip(found->second, to);
          }
          grammar.addBytes(node, uint8_t(digit), uint8_t(digit), found->second);
          goesOn = true;
        }
      nodes = std::move(next);
    }
    if (goesOn)
      grammar.addBytes(from, '.', '.', point);
  }

private:
  /// The number of decimals, and whether all were those of a bound.
  struct State {
    size_t count;
    bool isLow, isHigh;
    auto operator<=>(const State &) const = default;
  };
  State start() const { return {0, low != nullptr, high != nullptr}; }

  static char digitOf(const Magnitude &bound, size_t at) {
    return at < bound.fraction.size() ? bound.fraction[at] : '0';
  }

  // Missing decimals are zeros.
  bool canEnd(State state) const {
    bool isAbove = !state.isLow ||
                   (state.count >= low->fraction.size() && !low->isExcluded);
    bool isBelow = !state.isHigh || state.count < high->fraction.size() ||
                   !high->isExcluded;
    return isAbove && isBelow;
  }

  std::vector<std::pair<char, State>> stepsFrom(State state) const {
    std::vector<std::pair<char, State>> steps;
    if (state.count == maxDecimals)
      return steps;
    char first = state.isLow ? digitOf(*low, state.count) : '0',
         last = state.isHigh ? digitOf(*high, state.count) : '9';
    for (char digit = first; digit <= last; ++digit)
      steps.emplace_back(digit,
                         State{state.count + 1, state.isLow && digit == first,
                               state.isHigh && digit == last});
    return steps;
  }

  /// Whether some number ends there or later.
  bool leads(State state) {
    if (auto found = known.find(state); found != known.end())
      return found->second;
    bool result = canEnd(state);
    for (auto [digit, after] : stepsFrom(state))
      result = result || leads(after);
    return known[state] = result;
  }

  Grammar &grammar;
  const Magnitude *low, *high;
  size_t maxDecimals;
  std::map<State, bool> known;
};

class RangeWriter {
public:
  RangeWriter(Grammar &grammar, JsonText &json, uint32_t to, size_t maxDecimals)
      : grammar(grammar), json(json), to(to), maxDecimals(maxDecimals) {}

  /// Adds the magnitudes from `low` to `high`; returns whether there are any.
  bool add(uint32_t from, const Magnitude &low, const Magnitude *high) {
    bool isOne = high && low.whole == high->whole;
    bool any = addWhole(from, low.whole, &low, isOne ? high : nullptr);
    if (isOne)
      return any;
    if (!high || low.whole + 1 < high->whole) {
      auto last = high ? std::optional(high->whole - 1) : std::nullopt;
      Fraction(grammar, nullptr, nullptr, maxDecimals)
          .add(json.integerWithin(from, low.whole + 1, last), to);
      any = true;
    }
    return (high && addWhole(from, high->whole, nullptr, high)) || any;
  }

private:
  bool addWhole(uint32_t from, int64_t whole, const Magnitude *low,
                const Magnitude *high) {
    Fraction fraction(grammar, low, high, maxDecimals);
    if (!fraction.isPossible())
      return false;
    fraction.add(grammar.addText(from, std::to_string(whole)), to);
    return true;
  }

  Grammar &grammar;
  JsonText &json;
  uint32_t to;
  size_t maxDecimals;
};

} // namespace

static StatusOr<Magnitude> magnitudeOf(const NumberRange::Bound &bound) {
  double value = std::abs(bound.value);
  std::array<char, 400> text;
  auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                           std::chars_format::fixed)
                 .ptr;
  std::string_view digits(text.data(), end);
  size_t point = std::min(digits.find('.'), digits.size());
  Magnitude magnitude;
  magnitude.isExcluded = bound.isExcluded;
  if (point < digits.size())
    magnitude.fraction = digits.substr(point + 1);
  if (point + magnitude.fraction.size() > kDigits || !std::isfinite(value))
    return Status::error("the bound {} has more than {} digits", bound.value,
                         kDigits);
  magnitude.whole = static_cast<int64_t>(value);
  return magnitude;
}

StatusOr<uint32_t> addNumberWithin(Grammar &grammar, JsonText &json,
                                   uint32_t from, const NumberRange &range) {
  Magnitude zero, least, most;
  size_t wholeDigits = 1;
  for (auto [bound, magnitude] :
       {std::pair(range.least, &least), {range.most, &most}})
    if (bound) {
      auto read = magnitudeOf(*bound);
      if (!read.ok())
        return read.status();
      *magnitude = *read;
      wholeDigits = std::max(wholeDigits, std::to_string(read->whole).size());
    }
  const size_t maxDecimals = kDigits - wholeDigits;
  if (std::max(least.fraction.size(), most.fraction.size()) > maxDecimals)
    return Status::error("the bounds {} and {} have more than {} digits "
                         "together",
                         range.least->value, range.most->value, kDigits);
  uint32_t to = grammar.addNode();
  RangeWriter writer(grammar, json, to, maxDecimals);
  bool leastIsNegative = !range.least || range.least->value < 0,
       mostIsNegative = range.most && range.most->value < 0, any = false;
  auto isEmpty = [](const Magnitude &low, const Magnitude *high) {
    return high &&
           (high->isLess(low) ||
            (high->isSame(low) && (high->isExcluded || low.isExcluded)));
  };
  if (!mostIsNegative) {
    const Magnitude &low = leastIsNegative ? zero : least;
    const Magnitude *high = range.most ? &most : nullptr;
    any |= !isEmpty(low, high) && writer.add(from, low, high);
  }
  if (leastIsNegative) { // also -0, if 0 is in the range
    const Magnitude &low =
        mostIsNegative || (range.most && most.isSame(zero)) ? most : zero;
    const Magnitude *high = range.least ? &least : nullptr;
    any |= !isEmpty(low, high) &&
           writer.add(grammar.addText(from, "-"), low, high);
  }
  if (!any)
    return Status::error("no number is within the bounds");
  return to;
}

} // namespace tessera::grammar
