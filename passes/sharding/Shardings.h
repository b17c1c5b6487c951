// Where everything is computed: a placement for every value, and for every
// operand the placement in which its op wants it. Found without touching the
// IR, so that a search can ask for many, and for one each of values and ops
// that are alike.
#pragma once
#include "dialects/graph/Constants.h"
#include "passes/sharding/Congruence.h"
#include "passes/sharding/PlacementPool.h"
#include <deque>

namespace tessera::sharding {

/// What of the step is kept cut over the data axis (Rajbhandari et al. 2020).
enum class ZeroStage { none, optimizer, gradients, parameters };

/// How one axis cuts a single op or value.
struct Cutting {
  enum class Kind {
    none,
    factor, ///< `factor` of the loopDim or dimension `name`
    parts   ///< not, but parts of sums along the axis pass through
  };
  Kind kind = Kind::none;
  unsigned name = 0, factor = 0;

  bool operator==(const Cutting &) const = default;
};

/// What is cut along one axis otherwise than its colors say.
struct Exceptions {
  unsigned axis = 0;
  std::vector<std::optional<Cutting>> ofStep;  ///< loops of the op's rule
  std::vector<std::optional<Cutting>> ofValue; ///< dimensions, by class
};

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
  /// Found op by op (OpSearch).
  std::optional<Exceptions> exceptions = {};
};

/// How an op takes its operands, by uses of its step, and makes its results.
struct Plan {
  llvm::SmallVector<const Placement *, 4> wanted;
  llvm::SmallVector<const Placement *, 2> made;
};

class Shardings {
public:
  Shardings(const Congruence &classes, const Mesh &mesh,
            const Strategy &strategy)
      : classes(classes), factors(classes.factors), mesh(mesh) {
    restart(strategy);
  }

  const Congruence &classes;

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
  const Placement &of(mlir::Value value) const {
    return *values[classes.of(value)];
  }
  /// In which all uses find the value: gradients as the optimizer's state is
  /// cut, which may be otherwise than they are made. Equal placements of one
  /// Shardings are one object, here and in plans.
  const Placement &asUsed(ValueClass value) const {
    auto like = classes.settledLike(value);
    return *values[like ? *like : value];
  }
  const Placement &asUsed(mlir::Value value) const {
    return asUsed(classes.of(value));
  }
  /// What is decided of a step of `classes`; one object for equal decisions.
  const Plan &plan(unsigned step) const { return *plans[step]; }
  /// In which the owner of the operand takes it.
  const Placement &wanted(mlir::OpOperand &operand) const {
    unsigned step = classes.stepOf(operand.getOwner());
    return *plan(step)
                .wanted[classes.step(step).useFor(operand.getOperandNumber())];
  }
  /// A plan of the step if `cutting` were how the axis cuts it and operands
  /// were cut, or parts of sums, along the axis as that needs; along other axes
  /// they are as decided. None where the axis cannot cut it so.
  std::optional<Plan> planIf(unsigned step, unsigned axis,
                             const Cutting &cutting);
  /// Where an argument or what a loop carries would be, likewise.
  const Placement *placeIf(mlir::Value value, mlir::DictionaryAttr attrs,
                           unsigned axis, const Cutting &cutting);
  /// Whether loops add up gradients where the optimizer's state is.
  bool accumulatesSettled() const {
    return strategy->zero >= ZeroStage::gradients;
  }
  /// One object for equal ones.
  const Placement *intern(Placement placement) {
    return pool.intern(std::move(placement));
  }
  /// For how many ops it was found out how they are cut, since the beginning:
  /// as many, however often a block is called.
  uint64_t decisions() const { return decided; }

private:
  struct Cut;
  using Step = Congruence::Step;

  const Placement *place(ValueClass value, Placement placement) {
    return values[value] = pool.intern(std::move(placement));
  }
  Plan &remember(unsigned step) {
    plans[step] = &planStore.emplace_back();
    return planStore.back();
  }
  Placement blank(mlir::Value value) const;
  Placement byColors(mlir::Value value) const;
  Placement ofState(mlir::Value value, graph::Role role) const;
  Placement ofPort(mlir::Value value, mlir::DictionaryAttr attrs);
  bool cutByZero(graph::Role role) const;
  bool fits(const Factor &factor, unsigned axis) const;
  /// Null where single ops follow colors along the axis.
  const Exceptions *exceptionsAlong(unsigned axis) const {
    const auto &all = strategy->exceptions;
    return all && all->axis == axis ? &*all : nullptr;
  }
  std::optional<Cutting> exceptionOf(mlir::Operation *op, unsigned axis) const;
  std::optional<Cutting> exceptionOf(mlir::Value value, unsigned axis) const;
  Placement suiting(mlir::OpOperand &operand, const Factors::Computation &of,
                    unsigned axis, const Cutting &cutting) const;
  bool isOpen(mlir::Value value) const {
    return !open.empty() && open.contains(classes.of(value));
  }
  void placeArguments(mlir::func::FuncOp function);
  mlir::LogicalResult planFunction(mlir::func::FuncOp function,
                                   mlir::func::CallOp call);
  mlir::LogicalResult planBlock(mlir::Block &block);
  mlir::LogicalResult planOp(unsigned step);
  mlir::LogicalResult decide(const Step &step, Plan &plan);
  void complete(mlir::Operation *op, const Cut &cut, Plan &plan);
  mlir::LogicalResult planCall(mlir::func::CallOp call, unsigned step);
  mlir::LogicalResult planLoop(graph::LoopOp loop, unsigned step);
  bool dropLostParts(graph::LoopOp loop);
  void planReturn(mlir::func::ReturnOp op, unsigned step);
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
  bool keepsIntegers(mlir::Operation *op, const Cut &cut, unsigned loopDim,
                     unsigned factor, unsigned axis) const;
  void inherit(mlir::Operation *op, unsigned axis, Cut &cut) const;
  void keepParts(mlir::Operation *op, Cut &cut) const;
  Placement assemble(const Cut &cut, const OpRule::Dims &dims) const;

  /// What a decision depends on: a kind of op, and of every operand where it is
  /// and what else is known of it.
  using Situation = llvm::SmallVector<uintptr_t, 32>;
  struct Hash {
    size_t operator()(const Situation &key) const {
      return llvm::hash_combine_range(key.begin(), key.end());
    }
  };

  const Factors &factors;
  const Mesh &mesh;
  const Strategy *strategy;
  /// What planIf and placeIf ask for, along an axis.
  std::optional<std::pair<unsigned, Cutting>> trial;
  PlacementPool pool;
  std::deque<Plan> planStore;
  std::vector<const Placement *> values; ///< by class
  std::vector<const Plan *> plans;       ///< by step
  std::unordered_map<Situation, const Plan *, Hash> known;
  uint64_t decided = 0;
  llvm::DenseMap<mlir::Operation *, const Plan *> blocks; ///< of calls of them
  /// By name, in all programs.
  llvm::DenseMap<mlir::Attribute, const Placement *> state;
  /// Arguments of blocks that are rows as their first caller has them.
  llvm::DenseMap<mlir::Value, const Placement *> ownRows;
  /// Accumulators that start at zero and have no placement yet: they take that
  /// of what is first added to them.
  llvm::DenseSet<ValueClass> open;
};

/// Zeros are also the sum of zeros on every device.
using graph::isZero;
bool isInteger(mlir::Value value);

} // namespace tessera::sharding
