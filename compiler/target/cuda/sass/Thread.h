// The integer state of one thread: registers and predicates whose values follow
// from its number, its block's and the launch. What comes from memory, or from
// an instruction that is not modelled, is unknown.
#pragma once
#include <array>
#include <optional>
#include <unordered_map>

#include "compiler/target/cuda/sass/Decode.h"

namespace tessera::sass {

/// What a thread can know.
struct Surroundings {
  std::uint32_t threads = 0; ///< of a block
  std::uint32_t blocks = 0;  ///< of the grid
  std::uint32_t thread = 0, block = 0;
  std::uint32_t parameters = 0;         ///< offset in constant bank 0
  std::vector<std::uint64_t> arguments; ///< words there
  /// Words of global memory, by address.
  const std::unordered_map<std::uint64_t, std::uint32_t> *memory = nullptr;
};

class Thread {
public:
  explicit Thread(const Surroundings &around);

  /// Whether the instruction executes; nullopt: unknown.
  std::optional<bool> guard(const Instruction &one) const {
    return predicate(one.guard);
  }
  std::optional<bool> predicate(const Operand &operand) const;
  /// The value of an operand of 32 bits.
  std::optional<std::uint32_t> word(const Operand &operand) const;
  /// The address of a memory operand.
  std::optional<std::uint64_t> address(const Operand &operand) const;
  /// Sets the results of `one`; with `isCertain` false it may not execute, and
  /// they become unknown.
  void execute(const Decoded &one, bool isCertain);

private:
  using Word = std::optional<std::uint32_t>;
  using Long = std::optional<std::uint64_t>;

  /// An operand; one of kind `word` if there are fewer.
  static const Operand &at(const Decoded &one, std::size_t i);
  static std::size_t countCarries(const Decoded &one);
  Word reg(bool isUniform, std::int16_t number) const;
  Long pair(const Operand &operand) const;
  Word constant(std::int64_t offset) const;
  void set(const Operand &to, Word value);
  void setPair(const Operand &to, Long value);
  void setPredicate(const Operand &to, std::optional<bool> value);
  void forget(const Decoded &one);

  void multiplyAdd(const Decoded &one);
  void add(const Decoded &one);
  void add64(const Decoded &one);
  void shiftAdd(const Decoded &one);
  void logic(const Decoded &one);
  void shift(const Decoded &one);
  void compare(const Decoded &one);
  void predicateLogic(const Decoded &one);
  void permute(const Decoded &one);
  void halves(const Decoded &one);
  void packPredicates(const Decoded &one);
  void shuffle(const Decoded &one);
  void load(const Decoded &one);
  void loadConstant(const Decoded &one);
  Word special(std::string_view name) const;

  const Surroundings &around;
  std::array<Word, 256> registers;
  std::array<Word, 64> uniforms;
  std::array<std::optional<bool>, 8> predicates, uniformPredicates;
};

} // namespace tessera::sass
