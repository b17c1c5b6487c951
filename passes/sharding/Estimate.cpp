#include "passes/sharding/Estimate.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "passes/sharding/LocalOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

//===--- one op, one move -------------------------------------------------===//

static std::vector<hardware::Tier> linksOf(const Mesh &mesh, LinkPrice price) {
  std::vector<hardware::Tier> tiers = mesh.tiers;
  for (hardware::Tier &tier : tiers)
    tier.link.latency *= price.latency;
  return tiers;
}

OpCosts::OpCosts(const Mesh &mesh, LinkPrice price)
    : mesh(mesh), price(price), collectives(linksOf(mesh, price)) {}

int64_t OpCosts::pieces(const Placement &placement) const {
  int64_t count = 1, rows = 1;
  for (auto [i, dim] : llvm::enumerate(placement.dims))
    for (const Factor &factor : dim)
      if (i == 0 && placement.room > 0)
        rows *= factor.size;
      else
        count *= mesh.size(factor.axes);
  if (placement.room > 0)
    count *= std::max<int64_t>(1, rows / placement.room);
  return count;
}

static double bytesOf(Value value) {
  auto type = tensorType(value);
  return static_cast<double>(type.getNumElements()) *
         std::max(1u, type.getElementTypeBitWidth() / 8);
}

// A message to a neighbour along the axis.
double OpCosts::ofLink(unsigned axis, double bytes) const {
  const hardware::Link &link = mesh.links[axis];
  return price.latency ? link.seconds(bytes) : bytes / link.bytes;
}

double OpCosts::ofOp(Operation *op, const Plan &plan) const {
  return ofComputing(op, plan) + price.weight * ofPassingKeys(op, plan) +
         ofExchanging(op, plan);
}

// Roofline of one device's shard; work is divided by the sizes of the axes that
// shard the op's loops, which operands and results show together.
double OpCosts::ofComputing(Operation *op, const Plan &plan) const {
  llvm::SmallDenseSet<unsigned> axes;
  double traffic = 0;
  auto add = [&](Value value, const Placement &placement) {
    traffic += bytesOf(value) / pieces(placement);
    for (const DimPlacement &dim : placement.dims)
      for (const Factor &factor : dim)
        axes.insert(factor.axes.begin(), factor.axes.end());
  };
  for (auto [operand, wanted] : llvm::zip(op->getOperands(), plan.wanted))
    add(operand, *wanted);
  for (auto [result, made] : llvm::zip(op->getResults(), plan.made))
    add(result, *made);
  double flops = 0;
  if (auto costed = dyn_cast<graph::Costed>(op))
    flops = costed.getFlops();
  for (unsigned axis : axes)
    flops /= mesh.size(axis);
  if (auto fusable = dyn_cast<graph::Fusable>(op); fusable && fusable.isView())
    return 0;
  return mesh.device.seconds(flops, traffic);
}

namespace {
/// Where an axis shards a value.
struct Site {
  unsigned dim, factor;
  SmallVector<unsigned, 2> before; ///< axes that shard the factor before it
  bool isLast, isEven;
  bool operator==(const Site &other) const {
    return dim == other.dim && factor == other.factor && before == other.before;
  }
};
} // namespace

static std::optional<Site> siteOf(const Placement &placement, unsigned axis,
                                  const Mesh &mesh) {
  for (auto [d, dim] : llvm::enumerate(placement.dims))
    for (auto [k, factor] : llvm::enumerate(dim)) {
      auto at = llvm::find(factor.axes, axis);
      if (at == factor.axes.end())
        continue;
      SmallVector<unsigned, 2> before(factor.axes.begin(), at);
      return Site{static_cast<unsigned>(d), static_cast<unsigned>(k), before,
                  at + 1 == factor.axes.end(),
                  factor.size % (mesh.size(before) * mesh.size(axis)) == 0};
    }
  return std::nullopt;
}

// What changes a placement along an axis that shards a value `now` and `then`.
// An axis that moves from one factor to another is an all-to-all, if pieces are
// equal (Resharder).
static std::optional<planner::Collective>
collectiveOf(bool isSum, const std::optional<Site> &now,
             const std::optional<Site> &then) {
  using planner::Collective;
  if (isSum)
    return then ? Collective::ReduceScatter : Collective::AllReduce;
  if (!now || now == then)
    return std::nullopt;
  bool swaps = then && now->isLast && now->isEven && then->isEven;
  return swaps ? Collective::AllToAll : Collective::AllGather;
}

// Shards are read and written once, also where they are only sliced.
double OpCosts::ofMoving(Value value, const Placement &from,
                         const Placement &to) const {
  if (&from == &to)
    return 0;
  double seconds = 0;
  if (!price.coarse)
    seconds = bytesOf(value) / mesh.device.bytes *
              (1.0 / static_cast<double>(pieces(from)) + 1.0 / pieces(to));
  for (unsigned axis = 0; axis < mesh.rank(); ++axis) {
    bool isSum = llvm::is_contained(from.partial, axis) &&
                 !llvm::is_contained(to.partial, axis);
    auto now = siteOf(from, axis, mesh), then = siteOf(to, axis, mesh);
    auto kind = collectiveOf(isSum, now, then);
    if (!kind)
      continue;
    double n = mesh.size(axis);
    // Not sharded along the axis.
    double share =
        bytesOf(value) /
        std::min(pieces(from) * (now ? 1.0 / n : 1.0),
                 static_cast<double>(pieces(to)) * (then ? 1.0 / n : 1.0));
    seconds +=
        (price.coarse ? 0 : ofLink(axis, 0)) +
        collectives.seconds(
            *kind, kind == planner::Collective::AllToAll ? share / n : share,
            mesh.group(axis));
  }
  return seconds;
}

// Attention over sharded tokens: shards of keys and values go around the ring,
// in the gradient with their own gradients, which are in f32 (LocalAttention).
double OpCosts::ofPassingKeys(Operation *op, const Plan &plan) const {
  if (!isa<graph::AttentionOp, graph::AttentionGradOp>(op))
    return 0;
  const Placement &keys = *plan.wanted[1];
  double share = 2 * bytesOf(op->getOperand(1)) / pieces(keys), seconds = 0;
  if (isa<graph::AttentionGradOp>(op))
    share *= 3;
  for (const Factor &factor : keys.dims[1])
    for (unsigned axis : factor.axes)
      seconds += static_cast<double>(mesh.size(axis) - 1) * ofLink(axis, share);
  return seconds;
}

// Row counts, whose bytes do not matter, then the rows of other devices'
// groups. Rounds after the first are not expected.
double OpCosts::ofExchanging(Operation *op, const Plan &plan) const {
  bool sends = isa<graph::SendRowsOp>(op);
  if (!sends && !isa<graph::ReturnRowsOp>(op))
    return 0;
  const Placement &home = sends ? *plan.wanted[0] : *plan.made[0],
                  &sent = sends ? *plan.made[0] : *plan.wanted[0];
  const planner::RankGroup group = mesh.group(exchangedAxes(home, sent));
  if (group.size == 1)
    return 0;
  double rows = bytesOf(op->getOperand(0)) / pieces(home);
  return price.weight *
         (collectives.slowest(group).latency +
          collectives.seconds(planner::Collective::AllToAll, rows, group));
}

//===--- all of a module --------------------------------------------------===//

namespace {
class Estimate {
public:
  Estimate(const Mesh &mesh, const Shardings &shardings, LinkPrice price)
      : costs(mesh, price), shardings(shardings), price(price) {}

  double ofFunction(func::FuncOp function) {
    auto [known, isNew] = functions.try_emplace(function, 0.0);
    if (!isNew)
      return known->second;
    double seconds = ofBlock(function.getBody().front());
    return functions[function] = seconds;
  }

private:
  using Moved = llvm::DenseMap<std::pair<Value, const Placement *>, double>;

  double ofBlock(Block &block) {
    double seconds = 0;
    Moved moved;
    for (unsigned number : shardings.classes.stepsOf(block)) {
      const Congruence::Step &step = shardings.classes.step(number);
      const Plan &plan = shardings.plan(number);
      seconds += ofMoves(step, plan, moved) + step.count * ofStep(step, plan);
    }
    return seconds;
  }

  // A value that several ops need in one placement is moved once; constants are
  // not moved.
  double ofMoves(const Congruence::Step &step, const Plan &plan,
                 Moved &moved) const {
    double seconds = 0;
    if (price.coarse && isa<graph::YieldOp, graph::LoopOp>(step.op))
      return seconds;
    for (auto [use, wanted] : llvm::zip(step.uses, plan.wanted)) {
      const Placement &from = shardings.asUsed(use.value);
      if (&from == wanted || use.isSplat)
        continue;
      Value value = step.op->getOperand(use.operand);
      double times = double(step.count) * use.count, once = 0;
      if (!price.coarse && shardings.moveScope(value) != MoveScope::use) {
        double &most = moved[{value, wanted}];
        once = most;
        most = std::max(most, times);
      }
      if (times > once)
        seconds += (times - once) * costs.ofMoving(value, from, *wanted);
    }
    // Gradients take the placement of their state.
    if (price.coarse)
      return price.weight * seconds;
    for (auto [i, number] : llvm::enumerate(step.results)) {
      Value result = step.op->getResult(i);
      seconds += step.countOf(i) * costs.ofMoving(result, shardings.of(result),
                                                  shardings.asUsed(number));
    }
    return price.weight * seconds;
  }

  // Of one op of a class.
  double ofStep(const Congruence::Step &step, const Plan &plan) {
    Operation *op = step.op;
    if (auto call = dyn_cast<func::CallOp>(op);
        call && !shardings.isPointwiseCall(op))
      return ofFunction(shardings.classes.factors.functions().of(call));
    if (graph::isOverflowLoop(op))
      return 0;
    if (auto loop = dyn_cast<graph::LoopOp>(op))
      return loop.getTrip() * ofBlock(loop.getBody().front());
    if (op->hasTrait<OpTrait::IsTerminator>())
      return 0;
    // Ops with one plan are of one kind.
    auto [known, isNew] = plans.try_emplace(&plan, 0.0);
    if (isNew)
      known->second = costs.ofOp(op, plan);
    return known->second;
  }

  OpCosts costs;
  const Shardings &shardings;
  LinkPrice price;
  llvm::DenseMap<Operation *, double> functions;
  llvm::DenseMap<const Plan *, double> plans;
};
} // namespace

double sharding::estimate(ModuleOp module, const Mesh &mesh,
                          const Shardings &shardings, LinkPrice price) {
  Estimate estimate(mesh, shardings, price);
  double seconds = 0;
  for (auto function : module.getOps<func::FuncOp>())
    if (isRepeated(function))
      seconds += estimate.ofFunction(function);
  return seconds;
}
