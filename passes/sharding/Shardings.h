// Where everything is computed: a placement for every value, and for every
// operand the placement in which its op wants it. Found without touching the
// IR, so that a search can ask for many.
#pragma once
#include "dialects/graph/Constants.h"
#include "passes/sharding/Factors.h"
#include "passes/sharding/Placement.h"
#include "llvm/ADT/StringMap.h"

namespace tessera::sharding {

/// What of the step is kept cut over the data axis (Rajbhandari et al. 2020).
enum class ZeroStage { none, optimizer, gradients, parameters };

/// What decides a module's placements.
struct Strategy {
  /// For each axis of the mesh the colors that it cuts, the most important
  /// first: an op or a value is cut along the first that it has.
  llvm::SmallVector<llvm::SmallVector<Color, 8>, 4> colors;
  ZeroStage zero = ZeroStage::none;
  /// The axes over which state is cut by `zero`.
  llvm::SmallVector<unsigned, 2> zeroAxes;
  /// The axes along which rows of experts are exchanged where they can be: each
  /// device numbers those of its own tokens and sends them to their groups.
  llvm::SmallVector<unsigned, 1> exchanged = {};
};

class Shardings {
public:
  Shardings(const Factors &factors, const Mesh &mesh, const Strategy &strategy)
      : factors(factors), mesh(mesh), strategy(&strategy) {}

  /// Decides for all public functions of the module, but for the one of the
  /// name `except`, and what they call.
  mlir::LogicalResult build(mlir::ModuleOp module, llvm::StringRef except = {});
  /// As new, by another strategy. A search that asks for many keeps the memory.
  void restart(const Strategy &other);
  /// Whether the op is a call of a pointwise function: as sharding says it, but
  /// without looking for the callee.
  bool isPointwiseCall(mlir::Operation *op) const {
    return mlir::isa<mlir::func::CallOp>(op) && factors.computes(op);
  }

  /// Of a result as its op makes it, or of an argument.
  const Placement &of(mlir::Value value) const { return values.at(value); }
  /// In which the owner of the operand takes it.
  const Placement &wanted(mlir::OpOperand &operand) const {
    return operands.at(&operand);
  }
  /// In which all uses find the result, if that is another than the op makes:
  /// gradients as the optimizer's state is cut.
  const Placement *settled(mlir::Value value) const {
    auto known = settlements.find(value);
    return known == settlements.end() ? nullptr : &known->second;
  }

private:
  struct Cut;

  Placement blank(mlir::Value value) const;
  Placement byColors(mlir::Value value) const;
  Placement ofState(mlir::Value value, graph::Role role) const;
  Placement ofPort(mlir::Value value, mlir::DictionaryAttr attrs);
  bool cutByZero(graph::Role role) const;
  bool fits(const Factor &factor, unsigned axis) const;
  const Placement &asUsed(mlir::Value value) const;
  void placeArguments(mlir::func::FuncOp function);
  void settleGradients(mlir::func::FuncOp function);
  mlir::LogicalResult planFunction(mlir::func::FuncOp function,
                                   mlir::func::CallOp call);
  mlir::LogicalResult planBlock(mlir::Block &block);
  mlir::LogicalResult planOp(mlir::Operation *op);
  mlir::LogicalResult planCall(mlir::func::CallOp call);
  mlir::LogicalResult planLoop(graph::LoopOp loop);
  bool dropLostParts(graph::LoopOp loop);
  void planReturn(mlir::func::ReturnOp op);
  bool takesOwnRows(mlir::OpOperand &operand, const OpRule &rule) const;
  mlir::LogicalResult checkOwnRows(mlir::Operation *op,
                                   const OpRule &rule) const;
  bool followRows(mlir::Operation *op, unsigned axis, Cut &cut) const;
  void numberRows(mlir::Operation *op, unsigned axis, Cut &cut) const;
  bool cutTokens(mlir::Operation *op, unsigned axis, Color color,
                 Cut &cut) const;
  bool numberToSend(mlir::Operation *op, unsigned axis, Cut &cut) const;
  Placement placeRows(const Cut &cut, const OpRule::Dims &dims,
                      bool isSent) const;
  Factor *factorOf(Cut &cut, const OpRule::Dim &names, unsigned number) const;
  bool cutGroups(Cut &cut, unsigned axis, std::optional<Color> color) const;
  void chooseCuts(mlir::Operation *op, Cut &cut) const;
  bool keepsIntegers(mlir::Operation *op, const Cut &cut, unsigned letter,
                     unsigned factor, unsigned axis) const;
  void inherit(mlir::Operation *op, unsigned axis, Cut &cut) const;
  void keepParts(mlir::Operation *op, Cut &cut) const;
  Placement assemble(const Cut &cut, const OpRule::Dims &dims) const;

  const Factors &factors;
  const Mesh &mesh;
  const Strategy *strategy;
  llvm::DenseMap<mlir::Value, Placement> values, settlements;
  llvm::DenseMap<mlir::OpOperand *, Placement> operands;
  llvm::DenseSet<mlir::Operation *> planned; ///< functions
  llvm::StringMap<Placement> state;          ///< by name, in all programs
  /// Arguments of blocks that are rows as their first caller has them.
  llvm::DenseMap<mlir::Value, Placement> ownRows;
  /// Accumulators that start at zero and have no placement yet: they take that
  /// of what is first added to them.
  llvm::DenseSet<mlir::Value> open;
};

/// Zeros are also the sum of zeros on every device.
using graph::isZero;
bool isInteger(mlir::Value value);

} // namespace tessera::sharding
