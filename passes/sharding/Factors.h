// Sharding groups: rules of ops, calls and loops connect the factors of the
// dimensions of their operands and results. All connected factors are one
// *sharding group*, such as "heads" or "tokens of a sequence", and shard alike.
// A mesh axis shards groups, not tensors. `Color` is the number of a group.
#pragma once
#include "passes/sharding/Callees.h"
#include "passes/sharding/RuleCache.h"

namespace tessera::sharding {

using Color = unsigned;
/// The group of a value that no op reads.
inline constexpr Color kNoColor = ~0u;

/// A constant of one number. It can be made anywhere, so it does not connect
/// the dimensions of its users.
bool isSplat(mlir::Value value);

/// The rule of an op or of a pointwise call. Calls, loops and returns have
/// none: callers handle them first.
mlir::FailureOr<OpRule> ruleOfComputation(mlir::Operation *op);

/// Valid as long as the module does not change.
class Factors {
public:
  explicit Factors(mlir::ModuleOp module) : module(module), callees(module) {}

  /// Connects everything in the module. An error if an op has no rule.
  mlir::LogicalResult build();
  const Callees &functions() const { return callees; }

  /// A factor: its size and its sharding group.
  struct Atom {
    int64_t size;
    Color color;
  };
  using Atoms = llvm::SmallVector<Atom, 2>;

  /// The finest factors of a dimension of a value, the slowest-varying first;
  /// none for size 1.
  llvm::SmallVector<Atoms, 4> of(mlir::Value value) const;
  /// The finest factors of the loops of an op's rule.
  struct Computation {
    const OpRule &rule;
    llvm::SmallVector<Atoms> loops;
  };
  Computation of(mlir::Operation *op) const;
  /// Whether the op has a rule; a call does if it is of a pointwise function.
  bool computes(mlir::Operation *op) const { return computations.contains(op); }

  /// Whether the value is a dequantized matrix, or a block's argument for one.
  /// Only its reader's registers ever hold it, so nothing can reshard it.
  bool isDequantized(mlir::Value value) const {
    return !matrices.empty() && matrices.contains(value);
  }
  /// Whether all ops that read the matrix of a graph.dequantize divide its
  /// dimensions as it does, so that they can be sharded as it is.
  bool isReadAsMade(mlir::Operation *dequantize) const {
    return !readOtherwise.contains(dequantize);
  }

  /// Whether an axis may shard the factor of a dimension of an argument: of
  /// quantized values and scales, only those that graph.dequantize can shard.
  bool isShardable(mlir::Value argument, unsigned dim, unsigned factor) const;

  /// Appends numbers to `key` that are equal for two values of one type, or for
  /// two ops, only if `of` is, before and after any split.
  void appendKey(mlir::Value value, llvm::SmallVectorImpl<uint64_t> &key) const;
  void appendKey(mlir::Operation *op,
                 llvm::SmallVectorImpl<uint64_t> &key) const;

  /// Splits a factor in two, the inner of the given size; returns its group.
  Color splitColor(Color color, int64_t inner) {
    split(color, inner);
    return nodes[color].parts.back();
  }

private:
  struct Node {
    int64_t size;
    unsigned parent;
    llvm::SmallVector<unsigned, 2> parts; ///< outer and inner, if it was split
  };
  using List = llvm::SmallVector<unsigned, 2>;

  unsigned create(int64_t size);
  unsigned find(unsigned node) const;
  void expand(unsigned node, List &out) const;
  List expand(llvm::ArrayRef<unsigned> list) const;
  void split(unsigned node, int64_t inner);
  void unify(llvm::ArrayRef<unsigned> a, llvm::ArrayRef<unsigned> b);
  void unify(mlir::Value a, mlir::Value b);
  llvm::SmallVector<List, 4> &dimsOf(mlir::Value value);
  mlir::LogicalResult connect(mlir::Operation *op);
  mlir::LogicalResult connectCall(mlir::func::CallOp call);
  void connectGroups(mlir::Operation *op, const OpRule &rule, unsigned first);
  Atoms atoms(llvm::ArrayRef<unsigned> list) const;
  List loopsOf(mlir::Operation *op, const OpRule::Dim &names) const;
  void findMatrices();
  bool isReadAsMade(mlir::OpOperand &use,
                    llvm::SmallVectorImpl<mlir::Value> &arguments) const;

  /// An op's rule; its loops are consecutive nodes.
  struct Loops {
    const OpRule *rule;
    unsigned first;
  };

  mlir::ModuleOp module;
  Callees callees;
  RuleCache rules;
  mutable std::vector<Node> nodes;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<List, 4>> values;
  llvm::DenseMap<mlir::Operation *, Loops> computations;
  llvm::DenseSet<mlir::Value> matrices;
  /// Of values and scales, the operand that reads them.
  llvm::DenseMap<mlir::Value, mlir::OpOperand *> quantized;
  llvm::DenseSet<mlir::Operation *> readOtherwise;
};

} // namespace tessera::sharding
