// What colors cannot say: how an axis cuts each op by itself. All ops and
// arguments of the programs become one problem of the solver, as in Alpa's
// pass inside operators (Zheng et al. 2022): a node chooses among the ways to
// be cut along the axis, an edge is what moving a value between two of them
// costs.
#pragma once
#include "passes/sharding/Estimate.h"
#include "passes/sharding/solver/Problem.h"
#include "llvm/ADT/MapVector.h"

namespace tessera::sharding {

class OpSearch {
public:
  /// For an axis of `shardings`, which are built: along other axes all stays as
  /// it is there. Of what is cut along the axis there, values without a color
  /// of `tokens` stay so wherever they are used: weights and their gradients
  /// are not gathered. And who multiplies stays cut, one way or another.
  /// `mayUndo`, for tests, lifts both.
  OpSearch(mlir::ModuleOp module, const Congruence &classes, const Mesh &mesh,
           Shardings &shardings, unsigned axis, llvm::ArrayRef<Color> tokens,
           LinkPrice price, bool mayUndo = false);

  /// Costs are in parts of what `shardings` cost.
  const solver::Problem &problem() const { return stated; }
  /// What `shardings` say.
  const std::vector<int> &incumbent() const { return incumbents; }
  /// Seconds of a cost of the problem.
  double seconds(solver::Cost cost) const { return cost * unit; }
  /// How a choice for each node cuts single ops.
  Exceptions exceptions(llvm::ArrayRef<int> choice) const;
  /// In how many nodes it differs from the incumbent.
  unsigned changes(llvm::ArrayRef<int> choice) const;

private:
  /// One way to cut a step or an argument.
  struct Option {
    std::optional<Cutting> cutting; ///< none: as colors say
    Plan plan;                      ///< of an argument: made, one
  };
  struct Node {
    std::vector<Option> options;
    std::vector<double> costs;
    int incumbent = 0;
    std::optional<unsigned> step;
    std::optional<ValueClass> value;
  };
  using Places = llvm::SmallVector<const Placement *, 6>;
  /// Where something is, for each option of a node.
  struct Place {
    int node = -1;
    Places places;
  };
  /// One who wants a value that cannot be made anywhere.
  struct Demand {
    mlir::Value value; ///< of those that are alike the first
    Place where;
    double times;
  };
  using Demands = llvm::MapVector<mlir::Value, llvm::SmallVector<Demand, 2>>;

  int addNode(std::vector<Option> options, const Plan &incumbent);
  int addStep(unsigned number);
  Place addValue(mlir::Value value, mlir::DictionaryAttr attrs, bool isFixed);
  Place fixed(const Placement &placement);
  Place madeBy(int node, unsigned result) const;
  Place wantedBy(int node, unsigned use) const;
  Place withoutPartial(Place place);
  const Place &asUsed(ValueClass value) const {
    return places[classes.settledLike(value).value_or(value)];
  }
  const Place &asUsed(mlir::Value value) const {
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
  void addUses(unsigned number, llvm::ArrayRef<Place> wanted, Demands &demands);
  void addSettling(unsigned number);
  struct SharedMoves;
  SharedMoves sharedMoves(const Place &from,
                          llvm::ArrayRef<Demand> demands) const;
  void addShared(const Place &from, llvm::ArrayRef<Demand> demands);
  bool canMove(const Demand &demand, const Placement &from,
               const Placement &to) const;
  double ofMove(const Demand &demand, const Placement &from,
                const Placement &to) const;
  void addMove(const Place &from, const Demand &demand);
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
  std::vector<Place> places; ///< by class of values, as made
  std::vector<int> nodeOfStep;
  llvm::DenseMap<mlir::Block *, double> times;
  /// What blocks that were met hand out.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<Place>> callees;
  /// Of ops of one kind whose operands are alike along other axes.
  std::map<std::vector<uintptr_t>, std::vector<Option>> knownOptions;

  solver::Problem stated;
  std::vector<int> incumbents;
  double unit = 1;
};

} // namespace tessera::sharding
