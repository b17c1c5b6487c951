#include "compiler/target/cuda/sass/Thread.h"

#include <bit>

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

const Operand &at(const Decoded &one, std::size_t i) {
  static const Operand none;
  return i < one.from->operands.size() ? one.from->operands[i] : none;
}

/// The predicates that follow the result: carries out of an addition.
std::size_t countCarries(const Decoded &one) {
  std::size_t count = 0;
  while (at(one, 1 + count).kind == OperandKind::predicate && count < 2)
    ++count;
  return count;
}

} // namespace

Thread::Thread(const Surroundings &around) : around(around) {}

//===--- operands ---------------------------------------------------------===//

Thread::Word Thread::reg(bool isUniform, std::int16_t number) const {
  if (number == Operand::kZero)
    return 0;
  return isUniform ? uniforms[number & 63] : registers[number & 255];
}

Thread::Word Thread::constant(std::int64_t offset) const {
  if (offset == 0)
    return around.threads;
  if (offset == 4 || offset == 8)
    return 1;
  if (offset == 12)
    return around.blocks;
  if (offset == 16 || offset == 20)
    return 1;
  const std::int64_t byte = offset - around.parameters;
  if (byte < 0 || byte % 4 || std::size_t(byte / 8) >= around.arguments.size())
    return std::nullopt;
  return static_cast<std::uint32_t>(around.arguments[byte / 8] >>
                                    (byte % 8 ? 32 : 0));
}

Thread::Word Thread::word(const Operand &operand) const {
  Word value;
  switch (operand.kind) {
  case OperandKind::reg:
  case OperandKind::uniform:
    value = reg(operand.kind == OperandKind::uniform, operand.number);
    break;
  case OperandKind::immediate:
    return static_cast<std::uint32_t>(operand.value);
  case OperandKind::constant: {
    const Word base =
        operand.hasBase ? reg(operand.isOfUniform, operand.number) : Word(0);
    value = base ? constant(*base + operand.value) : std::nullopt;
    break;
  }
  default:
    return std::nullopt;
  }
  if (value && operand.isInverted)
    value = ~*value;
  return value;
}

Thread::Long Thread::pair(const Operand &operand) const {
  if (operand.kind == OperandKind::immediate)
    return static_cast<std::uint64_t>(operand.value);
  Operand high = operand;
  if (operand.kind == OperandKind::constant)
    high.value += 4;
  else if (operand.number != Operand::kZero)
    ++high.number;
  const Word low = word(operand), upper = word(high);
  if (!low || !upper)
    return std::nullopt;
  const std::uint64_t value = *low | std::uint64_t(*upper) << 32;
  return operand.isNegated ? 0 - value : value;
}

std::optional<bool> Thread::predicate(const Operand &operand) const {
  if (operand.kind != OperandKind::predicate)
    return std::nullopt;
  std::optional<bool> value = true;
  if (operand.number != Operand::kZero)
    value = (operand.isUniform ? uniformPredicates
                               : predicates)[operand.number & 7];
  if (value && operand.isInverted)
    value = !*value;
  return value;
}

std::optional<std::uint64_t> Thread::address(const Operand &operand) const {
  if (operand.kind != OperandKind::memory)
    return std::nullopt;
  std::uint64_t sum = static_cast<std::uint64_t>(operand.value);
  if (operand.hasBase) {
    Operand base;
    base.kind = operand.isOfUniform ? OperandKind::uniform : OperandKind::reg;
    base.number = operand.number;
    const Long value = operand.isWide ? pair(base) : Long(word(base));
    if (!value)
      return std::nullopt;
    sum += *value;
  }
  if (operand.other != Operand::kZero) {
    const Word value = reg(true, operand.other);
    if (!value)
      return std::nullopt;
    sum += *value;
  }
  return sum;
}

void Thread::set(const Operand &to, Word value) {
  if (to.number == Operand::kZero)
    return;
  if (to.kind == OperandKind::reg)
    registers[to.number & 255] = value;
  else if (to.kind == OperandKind::uniform)
    uniforms[to.number & 63] = value;
}

void Thread::setPair(const Operand &to, Long value) {
  Operand high = to;
  if (to.number != Operand::kZero)
    ++high.number;
  set(to, value ? Word(static_cast<std::uint32_t>(*value)) : std::nullopt);
  set(high,
      value ? Word(static_cast<std::uint32_t>(*value >> 32)) : std::nullopt);
}

void Thread::setPredicate(const Operand &to, std::optional<bool> value) {
  if (to.kind == OperandKind::predicate && to.number != Operand::kZero)
    (to.isUniform ? uniformPredicates : predicates)[to.number & 7] = value;
}

//===--- instructions -----------------------------------------------------===//

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
    const auto widen = [&](std::uint32_t value) {
      return one.isUnsigned ? std::int64_t(value)
                            : std::int64_t(static_cast<std::int32_t>(value));
    };
    result = holds(one.comparison, widen(*a), widen(*b));
    if (one.isExtended) {
      const std::optional<bool> low = predicate(at(one, 5));
      if (*a == *b)
        result = low;
      else if (one.comparison == '{' || one.comparison == '}' ||
               one.comparison == '<' || one.comparison == '>')
        result = holds(one.comparison, widen(*a), widen(*b));
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

void Thread::load(const Decoded &one) {
  // Its registers may be those of the address.
  const std::optional<std::uint64_t> from = address(at(one, 1));
  forget(one);
  if (one.space == Space::shared || one.space == Space::local ||
      !around.memory || one.bytes < 4)
    return;
  const Operand &to = at(one, 0);
  for (int i = 0; from && i < one.bytes / 4; ++i) {
    Operand part = to;
    if (to.number != Operand::kZero)
      part.number = static_cast<std::int16_t>(to.number + i);
    if (auto found = around.memory->find(*from + 4 * i);
        found != around.memory->end())
      set(part, found->second);
  }
}

// Its results are those operands that precede the sources: a register, with as
// many following ones as any instruction of its kind writes, and predicates.
void Thread::forget(const Decoded &one) {
  const auto &operands = one.from->operands;
  std::size_t i = 0;
  while (i < operands.size() && i < 2 &&
         operands[i].kind == OperandKind::predicate)
    setPredicate(operands[i++], std::nullopt);
  const std::string_view base = one.from->base();
  if (base == "R2P")
    predicates.fill(std::nullopt);
  // Comparisons write predicates only.
  if (base.ends_with("SETP") || base == "FCHK" || base == "R2P")
    return;
  if (i >= operands.size() || operands[i].number == Operand::kZero ||
      (operands[i].kind != OperandKind::reg &&
       operands[i].kind != OperandKind::uniform))
    return;
  int count = 1;
  if (one.op == Op::load)
    count = (one.bytes + 3) / 4;
  else if (one.op == Op::multiplyTiles)
    count = 4;
  else if (one.op == Op::multiplyWarpgroups)
    count = static_cast<int>(one.tensorCycles);
  else if (one.is64 || one.isWide || one.from->has("F64") ||
           base.starts_with("D") || base == "CS2R" || base == "ATOMG" ||
           base == "ATOM" || base == "SYNCS")
    count = 2;
  for (int k = 0; k < count; ++k) {
    Operand part = operands[i];
    part.number = static_cast<std::int16_t>(part.number + k);
    if (part.number < (part.kind == OperandKind::reg ? 255 : 63))
      set(part, std::nullopt);
  }
  for (++i; i < operands.size() && i < 4 &&
            operands[i].kind == OperandKind::predicate;
       ++i)
    setPredicate(operands[i], std::nullopt);
}

void Thread::execute(const Decoded &one, bool isCertain) {
  if (!isCertain) {
    forget(one);
    return;
  }
  switch (one.op) {
  case Op::move:
    return set(at(one, 0), word(at(one, 1)));
  case Op::multiplyAdd:
    return multiplyAdd(one);
  case Op::add:
    return add(one);
  case Op::add64:
    return add64(one);
  case Op::shiftAdd:
    return shiftAdd(one);
  case Op::logic:
    return logic(one);
  case Op::shift:
    return shift(one);
  case Op::compare:
    return compare(one);
  case Op::select: {
    const std::optional<bool> chosen = predicate(at(one, 3));
    return set(at(one, 0),
               chosen ? word(at(one, *chosen ? 1 : 2)) : std::nullopt);
  }
  case Op::predicateLogic:
    return predicateLogic(one);
  case Op::permute:
    return permute(one);
  case Op::absolute: {
    const Word value = word(at(one, 1));
    return set(at(one, 0), value && *value >> 31 ? Word(0 - *value) : value);
  }
  case Op::special:
    return set(at(one, 0), special(at(one, 1).text));
  case Op::zero:
    if (at(one, 1).text != "SRZ")
      return forget(one);
    return one.from->has("32") ? set(at(one, 0), 0) : setPair(at(one, 0), 0);
  case Op::constant:
    return loadConstant(one);
  case Op::packPredicates:
    return packPredicates(one);
  case Op::vote: // all threads of a warp are taken to agree
    if (at(one, 0).kind != OperandKind::predicate ||
        one.from->operands.size() != 2)
      return forget(one);
    return setPredicate(at(one, 0), predicate(at(one, 1)));
  case Op::elect:
    return setPredicate(at(one, 0), around.thread % 32 == 0);
  case Op::shuffle:
    return shuffle(one);
  case Op::load:
    return load(one);
  case Op::tryWait: // what it waits for has happened
    return setPredicate(at(one, 0), true);
  case Op::other:
  case Op::multiplyTiles:
  case Op::multiplyWarpgroups:
  case Op::multifunction:
    return forget(one);
  default:
    return; // no results
  }
}

} // namespace tessera::sass
