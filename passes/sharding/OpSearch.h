// Chooses for each op by itself how an axis shards it, which sharding groups
// cannot express. All ops and arguments of the programs become one problem of
// the solver, as in Alpa's intra-operator pass (Zheng et al. 2022): a node
// chooses a sharding along the axis, an edge is the cost of moving a value
// between two of them.
#pragma once
#include "passes/sharding/Estimate.h"
#include "passes/sharding/solver/Problem.h"
#include "llvm/ADT/MapVector.h"

namespace tessera::sharding {

class OpSearch {
public:
  /// For an axis of `shardings`, which are built; other axes stay as they are
  /// there. Values that the axis shards there and that have no group of
  /// `tokens` stay sharded wherever they are used: weights and their gradients
  /// are not gathered. Ops that it shards stay sharded in some way. `mayUndo`,
  /// for tests, lifts both restrictions.
  OpSearch(mlir::ModuleOp module, const Congruence &classes, const Mesh &mesh,
           Shardings &shardings, unsigned axis, llvm::ArrayRef<Color> tokens,
           LinkPrice price, bool mayUndo = false);

  /// Costs are relative to the cost of `shardings`.
  const solver::Problem &problem() const { return stated; }
  /// The choice that equals `shardings`.
  const std::vector<int> &incumbent() const { return incumbents; }
  /// A cost of the problem in seconds.
  double seconds(solver::Cost cost) const { return cost * unit; }
  /// The exceptions that a choice for each node means.
  Exceptions exceptions(llvm::ArrayRef<int> choice) const;
  /// In how many nodes it differs from the incumbent.
  unsigned changes(llvm::ArrayRef<int> choice) const;

private:
  /// One way to shard a step or an argument.
  struct Option {
    std::optional<Cutting> cutting; ///< none: by sharding groups
    Plan plan;                      ///< of an argument: one `made`
  };
  struct Node {
    std::vector<Option> options;
    std::vector<double> costs;
    int incumbent = 0;
    std::optional<unsigned> step;
    std::optional<ValueClass> value;
  };
  /// The placement of a value for each option of a node.
  struct PlacementChoice {
    int node = -1;
    llvm::SmallVector<const Placement *, 6> placements;
  };
  /// A use of a value that is not a splat.
  struct Demand {
    mlir::Value value; ///< the first of its class
    PlacementChoice where;
    double times;
  };
  using Demands = llvm::MapVector<mlir::Value, llvm::SmallVector<Demand, 2>>;

  int addNode(std::vector<Option> options, const Plan &incumbent);
  int addStep(unsigned number);
  PlacementChoice addValue(mlir::Value value, mlir::DictionaryAttr attrs,
                           bool isFixed);
  PlacementChoice fixed(const Placement &placement);
  PlacementChoice madeBy(int node, unsigned result) const;
  PlacementChoice wantedBy(int node, unsigned use) const;
  PlacementChoice withoutPartial(PlacementChoice place);
  PlacementChoice withPartial(PlacementChoice place,
                              llvm::ArrayRef<unsigned> axes);
  const PlacementChoice &asUsed(ValueClass value) const {
    return choices[classes.settledLike(value).value_or(value)];
  }
  const PlacementChoice &asUsed(mlir::Value value) const {
    return asUsed(classes.of(value));
  }
  std::vector<Cutting> cuttingsOf(mlir::Operation *op) const;
  const std::vector<Option> &optionsOf(unsigned number);
  bool cuts(const Placement &placement) const;
  bool cuts(const Plan &plan) const;
  bool isEven(const Plan &plan) const;
  bool isFixed(mlir::Operation *op, const Plan &plan) const;
  bool isOfTokens(mlir::Value value) const;
  bool keepsWeights(mlir::Operation *op, const Plan &now,
                    const Plan &then) const;

  void count(mlir::Block &block, double runs);
  void addState(mlir::func::FuncOp program);
  void addFunction(mlir::func::FuncOp function, const Congruence::Step *call);
  void addBlock(mlir::Block &block);
  void addCall(unsigned number, Demands &demands);
  void addLoop(unsigned number, Demands &demands);
  void addReturn(unsigned number, Demands &demands);
  void addUses(unsigned number, llvm::ArrayRef<PlacementChoice> wanted,
               Demands &demands);
  void addSettling(unsigned number);
  struct SharedMoves;
  SharedMoves sharedMoves(const PlacementChoice &from,
                          llvm::ArrayRef<Demand> demands) const;
  void addShared(const PlacementChoice &from, llvm::ArrayRef<Demand> demands);
  bool canMove(const Demand &demand, const Placement &from,
               const Placement &to) const;
  double ofMove(const Demand &demand, const Placement &from,
                const Placement &to) const;
  void addMove(const PlacementChoice &from, const Demand &demand);
  void addTo(int node, int other, size_t count, size_t others,
             llvm::function_ref<double(size_t, size_t)> of);
  void state();

  const Congruence &classes;
  const Factors &factors;
  const Mesh &mesh;
  Shardings &shardings;
  unsigned axis;
  llvm::SmallVector<Color> tokens;
  LinkPrice price;
  bool mayUndo;
  OpCosts costs;

  std::vector<Node> nodes;
  std::map<std::pair<int, int>, std::vector<double>> edges;
  std::vector<PlacementChoice>
      choices; ///< of results as produced, by class of values
  std::vector<int> nodeOfStep;
  llvm::DenseMap<mlir::Block *, double> times;
  /// The results of the blocks that were visited.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<PlacementChoice>> callees;
  /// By kind of op and the placements of its operands along other axes.
  std::map<std::vector<uintptr_t>, std::vector<Option>> knownOptions;

  solver::Problem stated;
  std::vector<int> incumbents;
  double unit = 1;
};

} // namespace tessera::sharding
