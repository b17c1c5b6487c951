// Classes of equivalent values and ops: a decision for one holds for all, so a
// search plans one layer, however many call the same block. The results of a
// call are placed as the block returns them, whatever its operands, so layers
// are equivalent although each reads the one before.
#pragma once
#include "passes/sharding/Factors.h"
#include "llvm/ADT/Hashing.h"
#include <unordered_map>

namespace tessera::sharding {

/// A class of values: a small number.
using ValueClass = unsigned;

class Congruence {
public:
  /// For a module whose factors are connected. Both must outlive this, and the
  /// module must not change.
  Congruence(mlir::ModuleOp module, const Factors &factors);

  /// An operand of a step.
  struct Use {
    unsigned operand; ///< its number
    ValueClass value;
    bool isSplat, isZero, hasOneUse;
    unsigned count = 1; ///< how many operands of the op are equivalent to it
  };
  /// Equivalent ops of one block.
  struct Step {
    mlir::Operation *op; ///< the first of them
    unsigned count = 1;
    /// Equal for ops that Shardings plans alike if their operands have equal
    /// placements; none if the plan depends on more.
    std::optional<unsigned> kind;
    llvm::SmallVector<Use, 2> uses; ///< one for each class of operands
    llvm::SmallVector<ValueClass, 2> results;
    /// The use of each operand; empty if each operand has its own.
    std::vector<unsigned> useOf;

    /// How many results are equivalent to this one, in all ops of the step.
    unsigned countOf(unsigned result) const {
      return mlir::isa<graph::LoopOp>(op) ? count * uses[result].count : count;
    }
    unsigned useFor(unsigned operand) const {
      return useOf.empty() ? operand : useOf[operand];
    }
  };

  const Factors &factors;

  ValueClass of(mlir::Value value) const { return values.at(value); }
  /// The number of classes of values, and of ops.
  size_t valueCount() const { return settlements.size(); }
  size_t stepCount() const { return steps.size(); }
  const Step &step(unsigned number) const { return steps[number]; }
  unsigned stepOf(mlir::Operation *op) const { return ops.at(op); }
  /// The steps of a block, in program order.
  llvm::ArrayRef<unsigned> stepsOf(mlir::Block &block) const {
    return blocks.at(&block);
  }
  /// One argument of a function for each class.
  llvm::ArrayRef<mlir::BlockArgument> argumentsOf(mlir::func::FuncOp f) const {
    return arguments.at(f);
  }
  /// The argument of a tensor of state in the first program that takes it.
  std::optional<ValueClass> stateOf(mlir::Attribute name) const {
    auto known = state.find(name);
    return known == state.end() ? std::nullopt : std::optional(known->second);
  }
  /// For a gradient, the optimizer state whose placement it takes.
  std::optional<ValueClass> settledLike(ValueClass value) const {
    return settlements[value];
  }

private:
  using Key = llvm::SmallVector<uint64_t, 32>;
  struct Hash {
    size_t operator()(const Key &key) const {
      return llvm::hash_combine_range(key.begin(), key.end());
    }
  };
  using Numbers = std::unordered_map<Key, unsigned, Hash>;

  void addNames(mlir::func::FuncOp function);
  void appendPort(mlir::DictionaryAttr attrs, Key &key) const;
  void addArguments(mlir::func::FuncOp function);
  void addGradients(mlir::func::FuncOp function);
  void addBlock(mlir::Block &block);
  void addOp(mlir::Operation *op);
  void addReturn(mlir::func::ReturnOp ret);
  void addResults(mlir::Operation *op, Step &step);
  ValueClass fresh();
  ValueClass add(mlir::Value value, const Key &key);
  Use useOf(mlir::OpOperand &operand) const;

  Numbers valueNumbers, stepNumbers, kinds;
  llvm::DenseMap<mlir::Value, ValueClass> values;
  llvm::DenseMap<mlir::Value, ValueClass> gradients;  ///< to their state
  std::vector<std::optional<ValueClass>> settlements; ///< by class
  llvm::DenseMap<mlir::Operation *, unsigned> ops;
  std::vector<Step> steps;
  llvm::DenseMap<mlir::Block *, std::vector<unsigned>> blocks;
  llvm::DenseMap<mlir::Operation *, std::vector<mlir::BlockArgument>> arguments;
  /// The roles of a state tensor in all programs, as bits.
  llvm::DenseMap<mlir::Attribute, unsigned> roles;
  /// State that programs take, by name.
  llvm::DenseMap<mlir::Attribute, ValueClass> state;
};

} // namespace tessera::sharding
