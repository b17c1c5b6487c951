// The placements of a module under a strategy: of every value, and of every
// operand as its op requires it. Computed without touching the IR, so that a
// search can evaluate many strategies, and once for each class of equivalent
// values and ops.
#pragma once
#include "dialects/graph/Constants.h"
#include "passes/sharding/Congruence.h"
#include "passes/sharding/PlacementPool.h"
#include <deque>

namespace tessera::sharding {

/// What ZeRO keeps sharded over the data axis (Rajbhandari et al. 2020).
enum class ZeroStage { none, optimizer, gradients, parameters };

/// How one axis shards a single op or value.
struct Cutting {
  enum class Kind {
    none,
    factor, ///< along `factor` of the loopDim or dimension `name`
    parts   ///< not sharded, but partial values along the axis pass through
  };
  Kind kind = Kind::none;
  unsigned name = 0, factor = 0;

  bool operator==(const Cutting &) const = default;
};

/// The ops and values that one axis shards differently from its groups.
struct Exceptions {
  unsigned axis = 0;
  std::vector<std::optional<Cutting>> ofStep;  ///< loops of the op's rule
  std::vector<std::optional<Cutting>> ofValue; ///< dimensions, by class
};

/// Determines a module's placements.
struct Strategy {
  /// For each axis of the mesh the sharding groups that it shards, the most
  /// important first: an op or a value is sharded along the first that it has.
  llvm::SmallVector<llvm::SmallVector<Color, 8>, 4> colors;
  ZeroStage zero = ZeroStage::none;
  /// Programs compute with copies of the parameters in a narrower type: the
  /// parameters are master weights, and `zero` shards them from stage 1.
  bool hasMasters = false;
  /// The axes over which `zero` shards state.
  llvm::SmallVector<unsigned, 2> zeroAxes;
  /// The axes that shard sequences, and over which each device has the same
  /// state whatever `zero` is: replicas (hybrid sharded data parallelism).
  llvm::SmallVector<unsigned, 1> replicaAxes = {};
  /// The axes along which experts' rows are exchanged (all-to-all) where
  /// possible: each device numbers the rows of its tokens and sends them to the
  /// devices of their groups.
  llvm::SmallVector<unsigned, 1> exchanged = {};
  /// Found op by op (OpSearch).
  std::optional<Exceptions> exceptions = {};
};

/// Which uses of a value share one move to another placement.
enum class MoveScope {
  use,    ///< none: each use moves it
  block,  ///< those in one block
  program ///< all: it is moved where it is defined
};

/// The placements of an op's operands, by uses of its step, and its results.
struct Plan {
  llvm::SmallVector<const Placement *, 4> wanted;
  llvm::SmallVector<const Placement *, 2> made;
};

bool isInteger(mlir::Value value);

class Shardings {
public:
  Shardings(const Congruence &classes, const Mesh &mesh,
            const Strategy &strategy)
      : classes(classes), factors(classes.factors), mesh(mesh) {
    restart(strategy);
  }

  const Congruence &classes;

  /// Plans all public functions of the module, @init only if `withInit`, and
  /// the functions that they call.
  mlir::LogicalResult build(mlir::ModuleOp module, bool withInit = true);
  /// Starts over with another strategy, and reuses the memory.
  void restart(const Strategy &other);
  /// Whether the op is a call of a pointwise function; does not look up the
  /// callee.
  bool isPointwiseCall(mlir::Operation *op) const {
    return mlir::isa<mlir::func::CallOp>(op) && factors.computes(op);
  }

  /// The placement of a result as its op produces it, or of an argument.
  const Placement &of(mlir::Value value) const {
    return *values[classes.of(value)];
  }
  /// The placement in which all uses find the value: that of the optimizer's
  /// state for a gradient, which may differ from how it is produced. Equal
  /// placements of one Shardings are one object, here and in plans.
  const Placement &asUsed(ValueClass value) const {
    auto like = classes.settledLike(value);
    return *values[like ? *like : value];
  }
  const Placement &asUsed(mlir::Value value) const {
    return asUsed(classes.of(value));
  }
  /// The plan of a step of `classes`; equal plans are one object.
  const Plan &plan(unsigned step) const { return *plans[step]; }
  /// The placement that the operand's owner requires.
  const Placement &wanted(mlir::OpOperand &operand) const {
    unsigned step = classes.stepOf(operand.getOwner());
    return *plan(step)
                .wanted[classes.step(step).useFor(operand.getOperandNumber())];
  }
  /// The plan of the step if the axis sharded it as `cutting` says and operands
  /// had the sharding along the axis, or partial values, that this requires;
  /// along other axes they are as decided. None if that is not possible.
  std::optional<Plan> planIf(unsigned step, unsigned axis,
                             const Cutting &cutting);
  /// Likewise the placement of an argument or a loop-carried value.
  const Placement *placeIf(mlir::Value value, mlir::DictionaryAttr attrs,
                           unsigned axis, const Cutting &cutting);
  /// Whether loops accumulate gradients in the optimizer state's placement.
  bool accumulatesSettled() const {
    return strategy->zero >= ZeroStage::gradients;
  }
  /// With ZeRO 3 each use of a parameter, or of its copy in another type,
  /// gathers it: a shared gather would keep it alive from the first use to the
  /// last. Master weights of stages 1 and 2 are gathered once in a step.
  MoveScope moveScope(mlir::Value value) const;
  /// One object for equal placements.
  const Placement *intern(Placement placement) {
    return pool.intern(std::move(placement));
  }
  /// How many ops were planned so far; a block counts once, however often it is
  /// called.
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
  const Placement *ofGradientSum(const Placement &state);
  Placement ofPort(mlir::Value value, mlir::DictionaryAttr attrs);
  bool cutByZero(graph::Role role) const;
  bool fits(const Factor &factor, unsigned axis) const;
  /// Null if all ops follow the axis's sharding groups.
  const Exceptions *exceptionsAlong(unsigned axis) const {
    const auto &all = strategy->exceptions;
    return all && all->axis == axis ? &*all : nullptr;
  }
  std::optional<Cutting> exceptionOf(mlir::Operation *op, unsigned axis) const;
  std::optional<Cutting> exceptionOf(mlir::Value value, unsigned axis) const;
  Placement suiting(mlir::OpOperand &operand, const Factors::Computation &of,
                    unsigned axis, const Cutting &cutting) const;
  /// Whether no reshard can shard the value further.
  bool isPinned(mlir::Value value) const {
    return isInteger(value) || factors.isDequantized(value);
  }
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
  bool numbersOwnRows(mlir::Operation *op, const OpRule &rule,
                      unsigned loopDim) const;
  int64_t roomOf(mlir::Operation *op) const;
  int64_t roomToSend(mlir::Operation *op, const Placement &home,
                     const Placement &sent) const;
  Placement placeRows(const Cut &cut, const OpRule::Dims &dims,
                      bool isSent) const;
  Factor *factorOf(Cut &cut, const OpRule::Dim &names, unsigned number) const;
  bool cutGroups(Cut &cut, unsigned axis, std::optional<Color> color) const;
  void chooseCuts(mlir::Operation *op, Cut &cut) const;
  bool keepsSharding(mlir::Operation *op, const Cut &cut, unsigned loopDim,
                     unsigned factor, unsigned axis) const;
  bool followMatrix(mlir::Operation *op, unsigned axis, Cut &cut) const;
  void inherit(mlir::Operation *op, unsigned axis, Cut &cut) const;
  void inheritOrder(mlir::Operation *op, Cut &cut) const;
  void keepParts(mlir::Operation *op, Cut &cut) const;
  Placement assemble(const Cut &cut, const OpRule::Dims &dims) const;

  /// What a decision depends on: the kind of op, and for every operand its
  /// placement and the properties that planOp reads.
  using Situation = llvm::SmallVector<uintptr_t, 32>;
  struct Hash {
    size_t operator()(const Situation &key) const {
      return llvm::hash_combine_range(key.begin(), key.end());
    }
  };

  const Factors &factors;
  const Mesh &mesh;
  const Strategy *strategy;
  /// The cutting along an axis that planIf or placeIf evaluates.
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
  /// Block arguments in device-local row order, as their first caller has them.
  llvm::DenseMap<mlir::Value, const Placement *> ownRows;
  /// Accumulators that start at zero and have no placement yet: they take the
  /// placement of the first value that is added to them.
  llvm::DenseSet<ValueClass> open;
};

/// Whether programs of the module compute with copies of parameters in a
/// narrower type.
bool hasMasters(mlir::ModuleOp module);

/// Zeros are also the sum of zeros on every device.
using graph::isZero;

} // namespace tessera::sharding
