#include "compiler/target/cuda/sass/Thread.h"

namespace tessera::sass {

const Operand &Thread::at(const Decoded &one, std::size_t i) {
  static const Operand none;
  return i < one.from->operands.size() ? one.from->operands[i] : none;
}

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

//===--- results --------------------------------------------------------===//

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
  case Op::halves:
    return halves(one);
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
