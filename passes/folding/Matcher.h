// Finds out which ops and values of units correspond; Units alone uses it.
#pragma once
#include "passes/folding/Ownership.h"
#include "passes/folding/Units.h"

namespace tessera::folding {

class Matcher {
public:
  Matcher(Units &units, const Ownership &owners, const Repetition &repetition,
          llvm::ArrayRef<int64_t> numbers, std::string &reason)
      : units(units), owners(owners), repetition(repetition), numbers(numbers),
        reason(reason) {}

  /// Fills in ops and values; false, and a reason, where units differ.
  bool run(mlir::func::FuncOp function);

private:
  using Value = mlir::Value;
  using Place = Units::Place;

  void placeArguments(mlir::func::FuncOp function);
  bool takeMiddle();
  void take(unsigned number, unsigned unit);
  bool isAlike(unsigned number, mlir::Operation *op, unsigned unit);
  bool placeCarried(graph::LoopOp loop);
  bool correspond(Value one, std::optional<Place> place, Value other,
                  std::optional<Place> next, unsigned unit);
  bool correspond(Value one, Value other, unsigned unit) {
    return correspond(one, units.placeOf(one), other, units.placeOf(other),
                      unit);
  }
  bool verifyOps();
  bool verifyCarried(graph::LoopOp loop);
  bool verifyResults(mlir::func::FuncOp function);
  bool verifyOthers(mlir::func::FuncOp function);
  bool isChained(Value value) const;
  bool collects(mlir::Operation *op);

  /// Of those in the middle, from 1.
  unsigned last() const { return units.count() - 2; }
  bool differ(mlir::Operation *op, llvm::StringRef how);

  Units &units;
  const Ownership &owners;
  const Repetition &repetition;
  llvm::ArrayRef<int64_t> numbers;
  std::string &reason;
  /// By number of an op in its unit: whether the first two of the middle have
  /// the same attributes, and the slot of its first result.
  std::vector<bool> areEqual;
  std::vector<unsigned> slotsOfResults;
  /// Slots that a unit reads of the preceding unit, or of the following one.
  llvm::SmallDenseSet<unsigned> fromBefore, fromAfter;
};

} // namespace tessera::folding
