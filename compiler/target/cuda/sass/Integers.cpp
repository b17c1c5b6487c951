// What integer instructions compute, operand by operand as nvdisasm prints
// them.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "compiler/target/cuda/sass/Thread.h"

namespace tessera::sass {
namespace {

constexpr std::uint64_t kCarry = std::uint64_t(1) << 32;

std::uint64_t signExtend(std::uint32_t value) {
  return static_cast<std::uint64_t>(
      static_cast<std::int64_t>(static_cast<std::int32_t>(value)));
}

bool holds(char comparison, std::int64_t a, std::int64_t b) {
  switch (comparison) {
  case '<':
    return a < b;
  case '>':
    return a > b;
  case '{':
    return a <= b;
  case '}':
    return a >= b;
  case '=':
    return a == b;
  default:
    return a != b;
  }
}

/// Of a logic function's table: bit 4a + 2b + c.
bool entry(std::uint64_t table, bool a, bool b, bool c) {
  return table >> (4 * a + 2 * b + c) & 1;
}

/// The bits of the number as an f16, if it is one.
std::optional<std::uint32_t> halfBits(std::string_view text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      !std::isfinite(value))
    return std::nullopt;
  const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  if (value == 0)
    return sign;
  // Of normal numbers 1024 to 2047 times 2^(exponent), of others less.
  const int exponent = std::max(std::ilogb(value) - 10, -24);
  const double fraction = std::ldexp(std::fabs(value), -exponent);
  if (fraction != std::floor(fraction) || exponent > 5)
    return std::nullopt;
  // A number of 1024 has the first exponent that is not zero.
  return sign | (static_cast<std::uint32_t>(exponent + 24) << 10) +
                    static_cast<std::uint32_t>(fraction);
}

} // namespace

/// The predicates that follow the result: carries out of an addition.
std::size_t Thread::countCarries(const Decoded &one) {
  std::size_t count = 0;
  while (at(one, 1 + count).kind == OperandKind::predicate && count < 2)
    ++count;
  return count;
}

void Thread::multiplyAdd(const Decoded &one) {
  const std::size_t carries = countCarries(one);
  const Operand &a = at(one, 1 + carries), &b = at(one, 2 + carries),
                &c = at(one, 3 + carries);
  const Word x = word(a), y = word(b);
  for (std::size_t i = 0; i < carries; ++i)
    setPredicate(at(one, 1 + i), std::nullopt);
  std::optional<std::uint64_t> product;
  if (x && y)
    product = one.isUnsigned ? std::uint64_t(*x) * *y
                             : signExtend(*x) * signExtend(*y);
  if ((x && *x == 0) || (y && *y == 0))
    product = 0;
  if (product && (a.isNegated != b.isNegated))
    product = 0 - *product;
  if (one.isWide) {
    const Long sum = pair(c);
    const bool known = product && sum && !one.isExtended;
    setPair(at(one, 0), known ? Long(*product + *sum) : std::nullopt);
    return;
  }
  Word sum = word(c);
  if (sum && c.isNegated)
    sum = 0 - *sum;
  if (one.isHigh) { // the third operand is a pair; other than zero is rare
    const bool known = product && c.number == Operand::kZero;
    set(at(one, 0), known ? Word(*product >> 32) : std::nullopt);
    return;
  }
  std::optional<bool> carry = false;
  if (one.isExtended)
    carry = predicate(at(one, 4 + carries));
  set(at(one, 0), product && sum && carry
                      ? Word(std::uint32_t(*product) + *sum + *carry)
                      : std::nullopt);
}

void Thread::add(const Decoded &one) {
  const std::size_t carries = countCarries(one);
  bool isKnown = true;
  std::uint64_t sum = 0;
  std::size_t i = 1 + carries;
  for (; i < 4 + carries && i < one.from->operands.size(); ++i) {
    const Operand &operand = one.from->operands[i];
    if (operand.kind == OperandKind::predicate)
      break;
    const Word value = word(operand);
    isKnown &= value.has_value();
    // -x is ~x + 1, whose carry tells that nothing was borrowed.
    if (value)
      sum += operand.isNegated ? std::uint64_t(~*value) + 1 : *value;
  }
  if (one.isExtended)
    for (; i < one.from->operands.size(); ++i) {
      const std::optional<bool> carry = predicate(one.from->operands[i]);
      isKnown &= carry.has_value();
      sum += carry.value_or(false);
    }
  set(at(one, 0),
      isKnown ? Word(static_cast<std::uint32_t>(sum)) : std::nullopt);
  for (std::size_t carry = 0; carry < carries; ++carry)
    setPredicate(at(one, 1 + carry),
                 isKnown ? std::optional(sum >= (carry + 1) * kCarry)
                         : std::nullopt);
}

void Thread::add64(const Decoded &one) {
  const std::size_t carries = countCarries(one);
  Long sum = 0;
  for (std::size_t i = 1 + carries; i < one.from->operands.size(); ++i) {
    const Long value = pair(one.from->operands[i]);
    sum = sum && value ? Long(*sum + *value) : std::nullopt;
  }
  setPair(at(one, 0), sum);
  for (std::size_t carry = 0; carry < carries; ++carry)
    setPredicate(at(one, 1 + carry), std::nullopt);
}

// LEA d, a, b, s: (a << s) + b. HI: the upper word of the pair c:a shifted, or
// of a extended by its sign.
void Thread::shiftAdd(const Decoded &one) {
  const std::size_t carries = countCarries(one);
  const bool hasPair = one.isHigh && !one.isSignExtended;
  const Operand &a = at(one, 1 + carries);
  Word x = word(a), y = word(at(one, 2 + carries));
  const Word upper = hasPair ? word(at(one, 3 + carries)) : Word(0);
  const Word shift = word(at(one, (hasPair ? 4 : 3) + carries));
  std::optional<bool> carry = false;
  if (one.isExtended)
    carry = predicate(at(one, (hasPair ? 5 : 4) + carries));
  std::optional<std::uint64_t> sum;
  if (x && y && upper && shift && carry) {
    if (a.isNegated)
      x = 0 - *x;
    std::uint64_t shifted =
        (one.isSignExtended ? signExtend(*x) : *x | std::uint64_t(*upper) << 32)
        << (*shift & 31);
    shifted = one.isHigh ? shifted >> 32 : shifted & (kCarry - 1);
    sum = shifted + *y + *carry;
  }
  set(at(one, 0), sum ? Word(static_cast<std::uint32_t>(*sum)) : std::nullopt);
  for (std::size_t i = 0; i < carries; ++i)
    setPredicate(at(one, 1 + i),
                 sum ? std::optional(*sum >= kCarry) : std::nullopt);
}

// LOP3 [p,] d, a, b, c, table, q: p is q or whether any bit is set.
void Thread::logic(const Decoded &one) {
  const std::size_t first = at(one, 0).kind == OperandKind::predicate;
  const Word a = word(at(one, first + 1)), b = word(at(one, first + 2)),
             c = word(at(one, first + 3)), table = word(at(one, first + 4));
  Word result;
  if (table) {
    // A bit is known if all values of what is unknown give it.
    std::uint32_t ones = ~0U, zeros = ~0U;
    for (int i = 0; i < 8; ++i) {
      std::uint32_t possible = ~0U;
      possible &= a ? (i & 4 ? *a : ~*a) : ~0U;
      possible &= b ? (i & 2 ? *b : ~*b) : ~0U;
      possible &= c ? (i & 1 ? *c : ~*c) : ~0U;
      (*table >> i & 1 ? zeros : ones) &= ~possible;
    }
    if ((ones | zeros) == ~0U)
      result = ones;
  }
  set(at(one, first), result);
  if (first) {
    const std::optional<bool> other = predicate(at(one, first + 5));
    setPredicate(at(one, 0), result && other
                                 ? std::optional(*result != 0 || *other)
                                 : std::nullopt);
  }
}

// SHF d, a, s, c of the pair c:a.
void Thread::shift(const Decoded &one) {
  const Word a = word(at(one, 1)), s = word(at(one, 2)), c = word(at(one, 3));
  Word result;
  const bool isPair = one.is64 || one.isHigh;
  if (a && s && c) {
    const std::uint64_t limit = one.is64 ? 63 : 32,
                        count = one.from->has("W")
                                    ? *s & (one.is64 ? 63 : 31)
                                    : std::min<std::uint64_t>(*s, limit);
    const std::uint64_t pair = *a | std::uint64_t(*c) << 32;
    std::uint64_t shifted;
    if (!one.isRight)
      shifted = (isPair ? pair : *a) << count;
    else if (one.from->has("S32") || one.from->has("S64"))
      shifted =
          static_cast<std::uint64_t>(static_cast<std::int64_t>(pair) >> count);
    else
      shifted = pair >> count;
    result = static_cast<std::uint32_t>(one.isHigh ? shifted >> 32 : shifted);
  }
  set(at(one, 0), result);
}

// ISETP p, q, a, b, r [, low]: p is (a ? b) and r, q is not (a ? b) and r. EX
// compares the upper words; `low` is the comparison of the lower ones.
void Thread::compare(const Decoded &one) {
  const Operand &x = at(one, 2), &y = at(one, 3);
  Word a = word(x), b = word(y);
  const std::optional<bool> with = predicate(at(one, 4));
  std::optional<bool> result;
  if (a && b) {
    if (x.isNegated)
      a = 0 - *a;
    if (y.isNegated)
      b = 0 - *b;
    const auto extend = [&](std::uint32_t value) {
      return one.isUnsigned ? std::int64_t(value)
                            : std::int64_t(static_cast<std::int32_t>(value));
    };
    result = holds(one.comparison, extend(*a), extend(*b));
    if (one.isExtended) {
      const std::optional<bool> low = predicate(at(one, 5));
      if (*a == *b)
        result = low;
      else if (one.comparison == '{' || one.comparison == '}' ||
               one.comparison == '<' || one.comparison == '>')
        result = holds(one.comparison, extend(*a), extend(*b));
      else
        result = one.comparison == '!';
    }
  }
  const auto combine = [&](std::optional<bool> value) -> std::optional<bool> {
    if (one.isOr) {
      if ((value && *value) || (with && *with))
        return true;
      return value && with ? std::optional(false) : std::nullopt;
    }
    if ((value && !*value) || (with && !*with))
      return false;
    return value && with ? std::optional(true) : std::nullopt;
  };
  const auto inverse = result ? std::optional(!*result) : std::nullopt;
  setPredicate(at(one, 0), combine(result));
  setPredicate(at(one, 1), combine(inverse));
}

void Thread::predicateLogic(const Decoded &one) {
  const std::optional<bool> a = predicate(at(one, 2)),
                            b = predicate(at(one, 3)),
                            c = predicate(at(one, 4));
  for (std::size_t i : {0, 1}) {
    const Word table = word(at(one, 5 + i));
    bool canBe[2] = {false, false};
    for (int bits = 0; table && bits < 8; ++bits)
      if ((!a || *a == !!(bits & 4)) && (!b || *b == !!(bits & 2)) &&
          (!c || *c == !!(bits & 1)))
        canBe[entry(*table, bits & 4, bits & 2, bits & 1)] = true;
    setPredicate(at(one, i),
                 canBe[0] != canBe[1] ? std::optional(canBe[1]) : std::nullopt);
  }
}

void Thread::permute(const Decoded &one) {
  const Word a = word(at(one, 1)), selector = word(at(one, 2)),
             c = word(at(one, 3));
  Word result;
  if (a && selector && c) {
    const std::uint64_t bytes = *a | std::uint64_t(*c) << 32;
    result = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t from = *selector >> (4 * i) & 15;
      std::uint32_t byte = bytes >> (8 * (from & 7)) & 255;
      if (from & 8) // its sign, eight times
        byte = byte & 128 ? 255 : 0;
      result = *result | byte << (8 * i);
    }
  }
  set(at(one, 0), result);
}

// HFMA2 d, -RZ, RZ, x, y: a constant of two halves, the upper one first.
void Thread::halves(const Decoded &one) {
  const Operand &a = at(one, 1), &b = at(one, 2);
  const auto isZero = [](const Operand &operand) {
    return operand.kind == OperandKind::reg && operand.number == Operand::kZero;
  };
  const auto upper = halfBits(at(one, 3).text),
             lower = halfBits(at(one, 4).text);
  const bool isConstant = isZero(a) && isZero(b) && upper && lower;
  set(at(one, 0), isConstant ? Word(*upper << 16 | *lower) : std::nullopt);
}

// P2R d, PR, a, mask: the predicates of the mask.
void Thread::packPredicates(const Decoded &one) {
  const Word into = word(at(one, 2)), mask = word(at(one, 3));
  Word result;
  if (into && mask) {
    result = *into & ~*mask;
    for (int i = 0; i < 7; ++i) {
      if (!(*mask >> i & 1))
        continue;
      if (!predicates[i]) {
        result = std::nullopt;
        break;
      }
      result = *result | std::uint32_t(*predicates[i]) << i;
    }
  }
  set(at(one, 0), result);
}

// SHFL.IDX p, d, a, lane: of lane 0 it is known, since it is this one.
void Thread::shuffle(const Decoded &one) {
  const Word lane = word(at(one, 3));
  const bool isOwn = one.from->has("IDX") && lane && *lane % 32 == 0 &&
                     around.thread % 32 == 0;
  set(at(one, 1), isOwn ? word(at(one, 2)) : std::nullopt);
  setPredicate(at(one, 0), std::nullopt);
}

Thread::Word Thread::special(std::string_view name) const {
  if (name == "SR_TID.X")
    return around.thread;
  if (name == "SR_CTAID.X")
    return around.block;
  if (name == "SR_LANEID")
    return around.thread % 32;
  if (name == "SR_TID.Y" || name == "SR_TID.Z" || name == "SR_CTAID.Y" ||
      name == "SR_CTAID.Z" || name == "SR_CgaCtaId")
    return 0;
  return std::nullopt;
}

void Thread::loadConstant(const Decoded &one) {
  if (one.is64)
    setPair(at(one, 0), pair(at(one, 1)));
  else
    set(at(one, 0), word(at(one, 1)));
}

} // namespace tessera::sass
