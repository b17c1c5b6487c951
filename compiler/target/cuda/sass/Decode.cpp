#include "compiler/target/cuda/sass/Decode.h"

#include <charconv>
#include <unordered_map>

namespace tessera::sass {
namespace {

using Table = std::unordered_map<std::string_view, Op>;

const Table &table() {
  static const Table ops = {
      {"MOV", Op::move},
      {"UMOV", Op::move},
      {"R2UR", Op::move},
      {"IMAD", Op::multiplyAdd},
      {"UIMAD", Op::multiplyAdd},
      {"IADD3", Op::add},
      {"UIADD3", Op::add},
      {"VIADD", Op::add},
      {"LEA", Op::shiftAdd},
      {"ULEA", Op::shiftAdd},
      {"LOP3", Op::logic},
      {"ULOP3", Op::logic},
      {"SHF", Op::shift},
      {"USHF", Op::shift},
      {"ISETP", Op::compare},
      {"UISETP", Op::compare},
      {"SEL", Op::select},
      {"USEL", Op::select},
      {"PLOP3", Op::predicateLogic},
      {"UPLOP3", Op::predicateLogic},
      {"PRMT", Op::permute},
      {"UPRMT", Op::permute},
      {"IABS", Op::absolute},
      {"S2R", Op::special},
      {"S2UR", Op::special},
      {"CS2R", Op::zero},
      {"LDC", Op::constant},
      {"ULDC", Op::constant},
      {"HFMA2", Op::halves},
      {"P2R", Op::packPredicates},
      {"VOTE", Op::vote},
      {"VOTEU", Op::vote},
      {"ELECT", Op::elect},
      {"SHFL", Op::shuffle},
      {"BRA", Op::branch},
      {"CALL", Op::call},
      {"RET", Op::ret},
      {"EXIT", Op::exit},
      {"LDG", Op::load},
      {"LD", Op::load},
      {"LDS", Op::load},
      {"LDSM", Op::load},
      {"LDL", Op::load},
      {"STG", Op::store},
      {"ST", Op::store},
      {"STS", Op::store},
      {"STSM", Op::store},
      {"STL", Op::store},
      {"LDGSTS", Op::copyAsync},
      {"LDGDEPBAR", Op::closeCopies},
      {"DEPBAR", Op::waitScoreboard},
      {"UTMALDG", Op::bulkCopy},
      {"UBLKCP", Op::bulkCopy},
      {"BAR", Op::barrier},
      {"HMMA", Op::multiplyTiles},
      {"HGMMA", Op::multiplyWarpgroups},
      {"QGMMA", Op::multiplyWarpgroups},
      {"MUFU", Op::multifunction},
  };
  return ops;
}

Space spaceOf(std::string_view base) {
  if (base == "LD" || base == "ST")
    return Space::generic;
  if (base == "LDL" || base == "STL")
    return Space::local;
  return base == "LDG" || base == "STG" || base == "LDGSTS" ? Space::global
                                                            : Space::shared;
}

std::uint8_t bytesOf(const Instruction &one) {
  if (one.base() == "LDSM" || one.base() == "STSM")
    return one.has("4") ? 16 : one.has("2") ? 8 : 4;
  if (one.has("128"))
    return 16;
  if (one.has("64"))
    return 8;
  if (one.has("U16") || one.has("S16") || one.has("16"))
    return 2;
  return one.has("U8") || one.has("S8") || one.has("8") ? 1 : 4;
}

char comparisonOf(const Instruction &one) {
  struct Name {
    std::string_view modifier;
    char comparison;
  };
  for (const Name &name : {Name{"LT", '<'},
                           {"GT", '>'},
                           {"LE", '{'},
                           {"GE", '}'},
                           {"EQ", '='},
                           {"NE", '!'}})
    if (one.has(name.modifier))
      return name.comparison;
  return 0;
}

/// The number after the last 'x' but one of "64x128x16"; 0 if there is none.
std::int64_t columnsOf(const Instruction &one) {
  const std::size_t rows = one.opcode.find(".64x");
  std::int64_t columns = 0;
  if (rows != one.opcode.npos)
    std::from_chars(one.opcode.data() + rows + 4,
                    one.opcode.data() + one.opcode.size(), columns);
  constexpr std::int64_t kMostColumns = 256; // of an MMA instruction
  return columns >= 0 && columns <= kMostColumns ? columns : 0;
}

void decodeSync(Decoded &to) {
  if (to.from->has("TRYWAIT"))
    to.op = Op::tryWait;
  else if (to.from->has("ARRIVE"))
    to.op = Op::arrive;
}

Decoded decodeOne(const Instruction &one) {
  Decoded to;
  to.from = &one;
  const std::string_view base = one.base();
  if (auto found = table().find(base); found != table().end())
    to.op = found->second;
  to.isUnsigned = one.has("U32") || one.has("U64");
  to.isWide = one.has("WIDE");
  to.isHigh = one.has("HI");
  to.isExtended = one.has("X") || one.has("EX");
  to.isRight = one.has("R");
  to.is64 = one.has("64") || one.has("U64") || one.has("S64");
  to.isSignExtended = one.has("SX32");
  to.isOr = one.has("OR");
  if (to.op == Op::add && to.is64)
    to.op = Op::add64;
  if (to.op == Op::compare)
    to.comparison = comparisonOf(one);
  if (base == "SYNCS")
    decodeSync(to);
  if (base == "USETMAXREG" && one.has("TRY_ALLOC"))
    to.op = Op::tryWait;
  if (base == "WARPGROUP" && one.has("DEPBAR"))
    to.op = Op::waitProducts;
  if (to.op == Op::load || to.op == Op::store || to.op == Op::copyAsync) {
    to.space = spaceOf(base);
    to.bytes = bytesOf(one);
  }
  // 4096 FLOPs a cycle and SM: the peak of Hopper in bf16 by its clock; fp8
  // has twice the terms in as many cycles.
  if (to.op == Op::multiplyWarpgroups)
    to.tensorCycles = columnsOf(one) / 2;
  for (const Operand &operand : one.operands)
    if (operand.kind == OperandKind::label &&
        (to.op == Op::branch || to.op == Op::call))
      to.target = operand.value;
  return to;
}

} // namespace

std::vector<Decoded> decode(const Function &function) {
  std::vector<Decoded> result;
  result.reserve(function.instructions.size());
  for (const Instruction &one : function.instructions)
    result.push_back(decodeOne(one));
  return result;
}

} // namespace tessera::sass
