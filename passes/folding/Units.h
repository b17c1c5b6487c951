// The same layer several times in one function: what corresponds to what. A
// *unit* is one layer, or as many as are repeated as one.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tessera::folding {
struct Ports;

/// Layers that are repeated: `period` from `first` on, `units` times.
struct Repetition {
  int64_t first = 0, period = 1, units = 0;

  /// Nothing where a module has no such attribute; a failure with a diagnostic
  /// where it makes no sense.
  static llvm::FailureOr<std::optional<Repetition>> of(mlir::ModuleOp module);
  void writeTo(mlir::ModuleOp module) const;
  static constexpr int kOuter = -2;   ///< of no unit
  static constexpr int kForeign = -3; ///< of a unit that is not there
  /// How many units the third one of a folded module represents, itself
  /// included: all but the first two and the last.
  int64_t repeatCount() const { return units - 3; }
  /// Whether the layer is of that unit.
  bool isRepeated(int64_t layer) const {
    return layer >= first && (layer - first) / period == 2;
  }
  /// The index in `numbers`, the units that are there, of a layer's unit.
  int unitOf(graph::LayerAttr layer, llvm::ArrayRef<int64_t> numbers) const;
};

/// The units of one function. Those in the middle, all but the first and the
/// last, are equal: ops one by one, operands, and values of the preceding and
/// following unit. Of the other two only state is known.
class Units {
public:
  /// The unit and slot of a value in the middle. Values with equal slots
  /// correspond.
  struct Place {
    unsigned unit, slot;
  };

  /// `ports` are those of the function. `numbers` are the units that the
  /// function has, among those of the repetition: 0, 1, 2, … and the last. At
  /// least four. Nothing, and a reason, where they do not do the same.
  static std::optional<Units> match(mlir::func::FuncOp function,
                                    const Ports &ports,
                                    const Repetition &repetition,
                                    llvm::ArrayRef<int64_t> numbers,
                                    std::string &reason);

  /// The units of a function of a folded module, without the marks of the one
  /// that represents others. A failure with a diagnostic where they do not do
  /// the same.
  static llvm::FailureOr<Units> matchFolded(mlir::func::FuncOp function,
                                            const Repetition &repetition);

  /// With those at the ends.
  unsigned count() const { return ops.size(); }
  bool empty() const { return arguments[1].empty() && results[1].empty(); }
  std::optional<Place> placeOf(mlir::Value value) const;
  mlir::Value at(unsigned unit, unsigned slot) const {
    return values[unit][slot];
  }
  unsigned slotCount() const { return slots; }
  /// Whether units in the middle differ in a number that would be a constant of
  /// their kernels, or something reads a value of each of them, but for a table
  /// that planning makes.
  bool needKernelsOfTheirOwn() const;
  /// Whether it is an op of a unit in the middle.
  bool contains(mlir::Operation *op) const {
    return positionsOfOps.contains(op);
  }
  /// Puts another value in the place of one.
  void replace(mlir::Value value, mlir::Value with);

  /// By unit, in corresponding order: ops, and numbers of the function's
  /// arguments and results.
  std::vector<std::vector<mlir::Operation *>> ops;
  std::vector<std::vector<unsigned>> arguments, results;
  std::vector<graph::LoopOp> loops; ///< inner ones first
  /// Ops outside all units that read a value of every unit, such as a table of
  /// all layers: the index of the third unit's first operand, and the number of
  /// operands per unit. If the third represents others, its operands are
  /// repeated.
  struct Collector {
    mlir::Operation *op;
    unsigned begin, size;
  };
  std::vector<Collector> collectors;
  /// Operands of what is of no unit that read of the last one in the middle.
  std::vector<mlir::OpOperand *> leaving;

private:
  friend class Matcher;
  /// Gives the value its place; setValue alone where its op has one.
  void place(mlir::Value value, Place place);
  void setValue(mlir::Value value, Place place);

  llvm::DenseMap<mlir::Operation *, Place> positionsOfOps; ///< first results'
  /// Arguments of functions, and what loops carry.
  llvm::DenseMap<mlir::Value, Place> positionsOfOthers;
  std::vector<std::vector<mlir::Value>> values; ///< by unit and slot
  unsigned slots = 0;
};

/// The op's operands, and of ops in its regions those from outside of it.
llvm::SmallVector<mlir::OpOperand *> readsOf(mlir::Operation *op);

/// Whether the ops have equal attributes, so that nothing is extrapolated.
bool haveEqualAttributes(mlir::Operation *one, mlir::Operation *other);

} // namespace tessera::folding
