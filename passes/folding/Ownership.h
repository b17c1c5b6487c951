// Which layer an op belongs to: a call of a block has an attribute; of other
// ops it is estimated, and Units verifies the estimate.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/folding/Ports.h"
#include "passes/folding/Units.h"

namespace tessera::folding {

class Ownership {
public:
  static constexpr int kNone = -1; ///< what inputs and numbers are made of
  /// Of the model, but of no layer.
  static constexpr int kOuter = Repetition::kOuter;

  /// Of a function that has the units `numbers` of the repetition, to which its
  /// arguments and results belong.
  Ownership(mlir::func::FuncOp function, const Ports &ports,
            llvm::ArrayRef<int> arguments, llvm::ArrayRef<int> results,
            const Repetition &repetition, llvm::ArrayRef<int64_t> numbers);

  int of(mlir::Value value) const { return ownerOf(value).unit; }
  /// The ops of each of `count` units, in the order of the text.
  std::vector<std::vector<mlir::Operation *>> opsOf(unsigned count) const;
  /// Inner ones first.
  llvm::ArrayRef<graph::LoopOp> loops() const { return allLoops; }

private:
  struct Owner {
    int unit = kNone;
    bool isState = true; ///< made of nothing but state and numbers
  };

  Owner ownerOf(mlir::Value value) const;
  void own(mlir::Block &block);
  void ownCarried(graph::LoopOp loop);
  void ownUnread(llvm::ArrayRef<int> results);
  Owner vote(mlir::Operation *op) const;
  bool isOfAll(mlir::Operation *op, int unit) const;

  const Repetition &repetition;
  llvm::ArrayRef<int64_t> numbers;
  mlir::Block *entry;           ///< of the function
  std::vector<Owner> arguments; ///< of the function, by number
  llvm::DenseMap<mlir::Operation *, Owner> owners;    ///< of all its results
  llvm::DenseMap<mlir::Value, Owner> carried;         ///< by loops, in and out
  std::vector<std::pair<mlir::Operation *, int>> ops; ///< all, in order
  std::vector<graph::LoopOp> allLoops;
};

} // namespace tessera::folding
