// Machine code of NVIDIA GPUs (SASS), read from the text that nvdisasm prints.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/support/Status.h"

namespace tessera::sass {

enum class OperandKind : std::uint8_t {
  reg,       ///< R0 …; RZ is kZero
  uniform,   ///< UR0 …; URZ is kZero
  predicate, ///< P0 …, UP0 …; PT and UPT are kZero
  immediate,
  constant, ///< c[bank][number + value]
  memory,   ///< [number + other + value]
  label,
  word ///< anything else, kept as text
};

struct Operand {
  static constexpr std::int16_t kZero = -1; ///< RZ, URZ; of predicates: true
  OperandKind kind = OperandKind::word;
  bool isUniform = false;                     ///< of predicates: UP
  bool isNegated = false, isInverted = false; ///< -x; ~x, or !p
  std::int16_t number = kZero;                ///< of a register
  std::int16_t other = kZero; ///< of memory: the uniform register that is added
  bool isWide = false;        ///< of memory: its base is a pair of registers
  bool hasBase = false;       ///< of memory and constants: `number` counts
  bool isOfUniform = false;   ///< of memory and constants: `number` is uniform
  std::int64_t value = 0; ///< immediate or offset; of labels the instruction
  std::string text;       ///< of labels and words
};

/// How the scheduler treats an instruction: bits 105 to 122 of its encoding,
/// which NVIDIA does not document. Found by Jia et al., "Dissecting the NVIDIA
/// Volta GPU Architecture via Microbenchmarking" (2018), section 2.1.
struct Control {
  static constexpr std::uint8_t kNone = 7;
  std::uint8_t stall = 0; ///< cycles until the warp's next instruction
  std::uint8_t written =
      kNone;                 ///< scoreboard released when results are written
  std::uint8_t read = kNone; ///< … when operands have been read
  std::uint8_t waits = 0;    ///< mask of the scoreboards it waits for
};

struct Instruction {
  std::uint32_t address = 0; ///< from the function's start
  Operand guard;             ///< a predicate; kZero: always
  std::string opcode;        ///< with its modifiers: "IMAD.WIDE.U32"
  std::vector<Operand> operands;
  Control control;
  /// Whether `modifier` is one of the opcode's.
  bool has(std::string_view modifier) const;
  /// "IMAD".
  std::string_view base() const;
};

struct Function {
  std::string name; ///< without the prefix of kernels, tessera_
  std::vector<Instruction> instructions;
  std::map<std::string, std::int64_t> labels; ///< index of an instruction
};

/// The functions of `text`, which nvdisasm -c -hex has printed. An error names
/// the line.
StatusOr<std::vector<Function>> parse(std::string_view text);

} // namespace tessera::sass
