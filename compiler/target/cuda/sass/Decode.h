// What the analyses need to know of an instruction's opcode, found once.
#pragma once
#include "compiler/target/cuda/sass/Sass.h"

namespace tessera::sass {

enum class Op : std::uint8_t {
  other, ///< its results are unknown
  // Integer arithmetic, of registers and of uniform registers.
  move,
  multiplyAdd, ///< IMAD with all its names
  add,         ///< IADD3, VIADD
  add64,       ///< UIADD3.64
  shiftAdd,    ///< LEA
  logic,       ///< LOP3
  shift,       ///< SHF
  compare,     ///< ISETP
  select,
  predicateLogic, ///< PLOP3
  permute,        ///< PRMT
  absolute,       ///< IABS
  special,        ///< S2R
  zero,           ///< CS2R Rn, SRZ
  constant,       ///< LDC
  halves,         ///< HFMA2, by which constants are made
  packPredicates, ///< P2R
  vote,           ///< VOTE.ALL into a predicate
  elect,
  shuffle,
  // Control.
  branch,
  call,
  ret,
  exit,
  // Memory.
  load,
  store,
  copyAsync,      ///< LDGSTS
  closeCopies,    ///< LDGDEPBAR
  waitScoreboard, ///< DEPBAR
  bulkCopy,       ///< UTMALDG, UBLKCP
  barrier,        ///< BAR
  tryWait,        ///< SYNCS.PHASECHK, USETMAXREG.TRY_ALLOC
  arrive,         ///< SYNCS.ARRIVE
  // Tensor cores.
  multiplyTiles,      ///< HMMA
  multiplyWarpgroups, ///< HGMMA, QGMMA
  waitProducts,       ///< WARPGROUP.DEPBAR
  multifunction,      ///< MUFU
};

enum class Space : std::uint8_t { global, generic, shared, local };

struct Decoded {
  const Instruction *from = nullptr;
  Op op = Op::other;
  Space space = Space::global;
  std::uint8_t bytes = 0; ///< of a load, store or copy: of one thread
  bool isUnsigned = false, isWide = false, isHigh = false, isExtended = false;
  bool isRight = false, is64 = false, isSignExtended = false, isOr = false;
  char comparison = 0; ///< '<', '>', '{' (<=), '}' (>=), '=', '!'
  std::int64_t target = Operand::kZero; ///< of a branch or call: instruction
  std::int64_t tensorCycles = 0; ///< of a product, on the SM's tensor cores
};

/// One for each instruction of `function`, which must live as long.
std::vector<Decoded> decode(const Function &function);

} // namespace tessera::sass
