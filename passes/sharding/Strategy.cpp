// A greedy search over colors. An axis takes the color that lowers the estimate
// most, then the next one behind it, until none does.
#include "passes/sharding/Strategy.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

//===--- what a strategy costs --------------------------------------------===//

namespace {
// A device and its links in round figures: an estimate only ranks strategies.
constexpr double kFlopsPerSecond = 400e12, kBytesPerSecond = 3e12;
// By dist::LinkTier: bytes a second and seconds a message, one way.
constexpr double kLinkBytes[] = {100e9, 300e9, 50e9, 25e9};
constexpr double kLatency[] = {3e-6, 3e-6, 8e-6, 15e-6};

class Estimate {
public:
  Estimate(const Mesh &mesh, const Shardings &shardings)
      : mesh(mesh), shardings(shardings) {}

  double ofFunction(func::FuncOp function) {
    auto [known, isNew] = functions.try_emplace(function, 0.0);
    if (!isNew)
      return known->second;
    double seconds = ofBlock(function.getBody().front());
    return functions[function] = seconds;
  }

private:
  double ofBlock(Block &block) {
    double seconds = 0;
    for (Operation &op : block) {
      for (OpOperand &operand : op.getOpOperands())
        if (!isa<graph::YieldOp, graph::LoopOp>(op))
          seconds += ofMoving(operand);
      if (auto call = dyn_cast<func::CallOp>(op); call && !isPointwiseCall(&op))
        seconds +=
            ofFunction(SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
                call, call.getCalleeAttr()));
      else if (auto loop = dyn_cast<graph::LoopOp>(op))
        seconds += loop.getTrip() * ofBlock(loop.getBody().front());
      else if (!op.hasTrait<OpTrait::IsTerminator>())
        seconds += ofComputing(&op);
    }
    return seconds;
  }

  int64_t pieces(const Placement &placement) const {
    int64_t count = 1;
    for (const DimPlacement &dim : placement.dims)
      for (const Factor &factor : dim)
        count *= mesh.size(factor.axes);
    return count;
  }

  double bytes(Value value) const {
    auto type = tensorType(value);
    return static_cast<double>(type.getNumElements()) *
           std::max(1u, type.getElementTypeBitWidth() / 8);
  }

  // Roofline of one device's share; work is divided by how often the op's loops
  // are cut, which is seen in operands and results together.
  double ofComputing(Operation *op) const {
    llvm::SmallDenseSet<unsigned> axes;
    double traffic = 0;
    auto add = [&](Value value, const Placement &placement) {
      traffic += bytes(value) / pieces(placement);
      for (const DimPlacement &dim : placement.dims)
        for (const Factor &factor : dim)
          axes.insert(factor.axes.begin(), factor.axes.end());
    };
    for (OpOperand &operand : op->getOpOperands())
      add(operand.get(), shardings.wanted(operand));
    for (Value result : op->getResults())
      add(result, shardings.of(result));
    double flops = 0;
    if (auto costed = dyn_cast<graph::Costed>(op))
      flops = costed.getFlops();
    for (unsigned axis : axes)
      flops /= mesh.size(axis);
    if (auto fusable = dyn_cast<graph::Fusable>(op);
        fusable && fusable.isView())
      return 0;
    return std::max(flops / kFlopsPerSecond, traffic / kBytesPerSecond);
  }

  // Rings: a gather or a scatter moves the whole once, a reduction twice.
  double ofMoving(OpOperand &operand) const {
    Placement from = shardings.of(operand.get());
    if (const Placement *settled = shardings.settled(operand.get()))
      from = *settled;
    const Placement &to = shardings.wanted(operand);
    double seconds = 0;
    for (unsigned axis = 0; axis < mesh.rank(); ++axis) {
      bool part = llvm::is_contained(from.partial, axis) &&
                  !llvm::is_contained(to.partial, axis);
      bool cutFrom = from.uses(axis) && !llvm::is_contained(from.partial, axis);
      bool cutTo = to.uses(axis) && !llvm::is_contained(to.partial, axis);
      double rounds = part && cutTo ? 1 : part ? 2 : cutFrom && !cutTo ? 1 : 0;
      if (rounds == 0)
        continue;
      auto tier = static_cast<unsigned>(mesh.axes[axis].getLink());
      double n = mesh.size(axis);
      double share =
          bytes(operand.get()) /
          std::min(pieces(from) * (cutFrom ? 1.0 / n : 1.0),
                   static_cast<double>(pieces(to)) * (cutTo ? 1.0 / n : 1.0));
      seconds +=
          rounds * (n - 1) * (kLatency[tier] + share / n / kLinkBytes[tier]);
    }
    return seconds;
  }

  const Mesh &mesh;
  const Shardings &shardings;
  llvm::DenseMap<Operation *, double> functions;
};
} // namespace

double sharding::estimate(ModuleOp module, const Mesh &mesh,
                          const Shardings &shardings) {
  Estimate estimate(mesh, shardings);
  double seconds = 0;
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && function.getName() != "init")
      seconds += estimate.ofFunction(function);
  return seconds;
}

//===--- the search -------------------------------------------------------===//

// Colors of the dimension of "tokens" that counts sequences, in every program.
static SmallVector<Color, 8> batchColors(ModuleOp module,
                                         const Factors &factors) {
  SmallVector<Color, 8> colors;
  for (auto function : module.getOps<func::FuncOp>())
    for (BlockArgument argument : function.getArguments()) {
      auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                        graph::kInputAttr);
      int64_t rank = tensorType(argument).getRank();
      if (!name || (name != "tokens" && name != "targets") || rank < 2)
        continue;
      for (Factors::Atom atom : factors.of(argument)[rank - 2])
        if (!llvm::is_contained(colors, atom.color))
          colors.push_back(atom.color);
    }
  return colors;
}

// All colors of contractions and gathers that are large enough to be cut, the
// most frequent first.
static SmallVector<Color> candidates(ModuleOp module, const Factors &factors,
                                     int64_t devices) {
  llvm::MapVector<Color, int64_t> uses;
  module.walk([&](Operation *op) {
    if (!isa<graph::EinsumOp, graph::EmbeddingOp, graph::AttentionOp,
             graph::LinearCrossEntropyOp, graph::GroupedMatmulOp>(op))
      return;
    SmallVector<Value> values(op->getOperands());
    llvm::append_range(values, op->getResults());
    for (Value value : values)
      for (const Factors::Atoms &atoms : factors.of(value))
        for (Factors::Atom atom : atoms)
          if (atom.size >= devices)
            ++uses[atom.color];
  });
  SmallVector<std::pair<Color, int64_t>> ordered(uses.begin(), uses.end());
  llvm::sort(ordered, [](auto a, auto b) {
    return std::pair(-a.second, a.first) < std::pair(-b.second, b.first);
  });
  return llvm::map_to_vector(ordered, [](auto entry) { return entry.first; });
}

FailureOr<Strategy> sharding::chooseStrategy(ModuleOp module,
                                             const Factors &factors,
                                             const Mesh &mesh, ZeroStage zero) {
  Strategy strategy;
  strategy.colors.resize(mesh.rank());
  strategy.zero = zero;
  if (auto data = mesh.find("data")) {
    strategy.colors[*data] = batchColors(module, factors);
    strategy.zeroAxes = {*data};
  }
  auto measure = [&](const Strategy &attempt) -> FailureOr<double> {
    Shardings shardings(factors, mesh, attempt);
    if (failed(shardings.build(module)))
      return failure();
    return estimate(module, mesh, shardings);
  };
  FailureOr<double> best = measure(strategy);
  if (failed(best))
    return failure();
  for (unsigned axis = 0; axis < mesh.rank(); ++axis) {
    if (mesh.axes[axis].getName() == "data" || mesh.size(axis) == 1)
      continue;
    SmallVector<Color> open = candidates(module, factors, mesh.size(axis));
    for (bool better = true; better;) {
      better = false;
      std::optional<Strategy> next;
      for (Color color : open) {
        if (llvm::is_contained(strategy.colors[axis], color))
          continue;
        Strategy attempt = strategy;
        attempt.colors[axis].push_back(color);
        FailureOr<double> seconds = measure(attempt);
        if (failed(seconds))
          return failure();
        if (*seconds < *best * 0.9999)
          best = seconds, next = attempt, better = true;
      }
      if (next)
        strategy = *next;
    }
  }
  return strategy;
}
