// Which dimensions of a module are the same one: rules of ops, calls and loops
// connect the factors of their operands and results. What is connected has one
// number, a *color*, such as "heads" or "tokens of a sequence"; a mesh axis is
// put on a color, not on a tensor.
#pragma once
#include "passes/sharding/Callees.h"
#include "passes/sharding/RuleCache.h"

namespace tessera::sharding {

using Color = unsigned;
/// Of a value that nothing computes with.
inline constexpr Color kNoColor = ~0u;

/// A constant of one number: it can be made wherever it is wanted, so that it
/// connects no dimensions of those that use it.
bool isSplat(mlir::Value value);

/// The rule of an op or of a pointwise call. Ops of structure (calls, loops,
/// returns) have none: callers look at them first.
mlir::FailureOr<OpRule> ruleOfComputation(mlir::Operation *op);

/// As long as the module does not change.
class Factors {
public:
  explicit Factors(mlir::ModuleOp module) : module(module), callees(module) {}

  /// Connects everything in the module. Fails after an error where an op has no
  /// rule.
  mlir::LogicalResult build();
  const Callees &functions() const { return callees; }

  /// A factor, its size and its color.
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
  /// Whether it computes: a call does if it is of a pointwise function.
  bool computes(mlir::Operation *op) const { return computations.contains(op); }

  /// Appends numbers to `key`: where they are equal for two values of one type,
  /// or for two ops, so are the answers of `of`, before a split and after it.
  void appendKey(mlir::Value value, llvm::SmallVectorImpl<uint64_t> &key) const;
  void appendKey(mlir::Operation *op,
                 llvm::SmallVectorImpl<uint64_t> &key) const;

  /// Makes two factors of one, the inner of the given size, and says its color.
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
};

} // namespace tessera::sharding
