// Builds OpSearch's nodes and edges from a module: blocks in the order in which
// Shardings plans them, and reshards between producers and consumers.
#include "dialects/graph/GraphExchangeOps.h"
#include "passes/sharding/OpSearch.h"
#include <cmath>

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

static bool isBlockCall(Operation *op, const Factors &factors) {
  return isa<func::CallOp>(op) && !factors.computes(op);
}

//===--- programs ---------------------------------------------------------===//

// Counts how often a block runs in all programs together.
void OpSearch::count(Block &block, double runs) {
  times[&block] += runs;
  for (unsigned number : classes.stepsOf(block)) {
    const Congruence::Step &step = classes.step(number);
    if (isBlockCall(step.op, factors))
      count(
          factors.functions().of(cast<func::CallOp>(step.op)).getBody().front(),
          runs * step.count);
    else if (auto loop = dyn_cast<graph::LoopOp>(step.op))
      count(loop.getBody().front(),
            loop.getOverflow() ? 0 : runs * step.count * loop.getTrip());
  }
}

// Weights and their optimizer state may be sharded differently. Inputs from the
// host follow their sharding groups, tokens and targets alike.
void OpSearch::addState(func::FuncOp program) {
  for (BlockArgument argument : classes.argumentsOf(program)) {
    ValueClass number = classes.of(argument);
    if (choices[number].node >= 0)
      continue;
    DictionaryAttr attrs = program.getArgAttrDict(argument.getArgNumber());
    auto role = attrs ? attrs.getAs<graph::RoleAttr>(graph::kRoleAttr)
                      : graph::RoleAttr();
    auto name = role ? attrs.get(graph::kStateAttr) : Attribute();
    if (auto first = name ? classes.stateOf(name) : std::nullopt;
        first && choices[*first].node >= 0) {
      choices[number] = choices[*first];
      continue;
    }
    bool moves = role && (role.getValue() == graph::Role::parameter ||
                          role.getValue() == graph::Role::optimizer);
    choices[number] = addValue(argument, attrs, !moves);
  }
}

void OpSearch::addFunction(func::FuncOp function,
                           const Congruence::Step *call) {
  if (call)
    for (BlockArgument argument : function.getArguments()) {
      unsigned i = argument.getArgNumber();
      PlacementChoice &place = choices[classes.of(argument)];
      if (isInteger(argument) || factors.isDequantized(argument))
        place = withoutPartial(asUsed(call->uses[i].value));
      else
        place = addValue(argument, function.getArgAttrDict(i),
                         !shardings.of(argument).own.empty());
    }
  addBlock(function.getBody().front());
}

void OpSearch::addBlock(Block &block) {
  Demands demands;
  for (unsigned number : classes.stepsOf(block)) {
    Operation *op = classes.step(number).op;
    if (isBlockCall(op, factors)) {
      addCall(number, demands);
    } else if (isa<graph::LoopOp>(op)) {
      addLoop(number, demands);
    } else if (isa<func::ReturnOp>(op)) {
      addReturn(number, demands);
    } else if (isa<graph::YieldOp>(op)) {
      auto loop = cast<graph::LoopOp>(op->getParentOp());
      SmallVector<PlacementChoice> carried;
      for (Value value : loop.getCarried())
        carried.push_back(choices[classes.of(value)]);
      addUses(number, carried, demands);
    } else {
      int node = addStep(number);
      SmallVector<PlacementChoice> wanted;
      for (unsigned use = 0; use < classes.step(number).uses.size(); ++use)
        wanted.push_back(wantedBy(node, use));
      addUses(number, wanted, demands);
      for (auto [i, value] : llvm::enumerate(classes.step(number).results))
        choices[value] = madeBy(node, i);
    }
    addSettling(number);
  }
  for (const auto &[value, all] : demands) {
    if (all.size() > 1 && shardings.moveScope(value) != MoveScope::use) {
      addShared(asUsed(value), all);
      continue;
    }
    for (const Demand &demand : all)
      addMove(asUsed(value), demand);
  }
}

void OpSearch::addCall(unsigned number, Demands &demands) {
  const Congruence::Step &step = classes.step(number);
  func::FuncOp function = factors.functions().of(cast<func::CallOp>(step.op));
  if (callees.try_emplace(function).second)
    addFunction(function, &step);
  SmallVector<PlacementChoice> wanted;
  for (BlockArgument argument : function.getArguments())
    wanted.push_back(choices[classes.of(argument)]);
  addUses(number, wanted, demands);
  for (auto [value, place] : llvm::zip(step.results, callees[function]))
    choices[value] = place;
}

// An accumulator that starts at zero has the placement that the first op on it
// requires.
void OpSearch::addLoop(unsigned number, Demands &demands) {
  auto loop = cast<graph::LoopOp>(classes.step(number).op);
  Block &body = loop.getBody().front();
  auto firstWanted = [&](ValueClass value) -> std::optional<PlacementChoice> {
    for (unsigned inner : classes.stepsOf(body)) {
      const Congruence::Step &step = classes.step(inner);
      if (factors.computes(step.op))
        for (auto [i, use] : llvm::enumerate(step.uses))
          if (use.value == value)
            return wantedBy(addStep(inner), i);
    }
    return std::nullopt;
  };
  choices[classes.of(loop.getInduction())] =
      fixed(shardings.of(loop.getInduction()));
  SmallVector<PlacementChoice> carriedSlots;
  for (auto [init, carried, result] :
       llvm::zip(loop.getInits(), loop.getCarried(), loop.getResults())) {
    auto target = classes.settledLike(classes.of(result));
    std::optional<PlacementChoice> place;
    if (loop.getOverflow())
      place = choices[classes.of(init)];
    else if (target && shardings.accumulatesSettled())
      place = withPartial(choices[*target], shardings.of(carried).partial);
    else if (isZero(init))
      place = firstWanted(classes.of(carried));
    if (!place)
      place =
          addValue(carried, {},
                   isInteger(carried) || !shardings.of(carried).own.empty());
    carriedSlots.push_back(*place);
    choices[classes.of(carried)] = *place;
  }
  addBlock(body);
  addUses(number, carriedSlots, demands);
  for (auto [value, place] :
       llvm::zip(classes.step(number).results, carriedSlots))
    choices[value] = place;
}

void OpSearch::addReturn(unsigned number, Demands &demands) {
  const Congruence::Step &step = classes.step(number);
  auto function = cast<func::FuncOp>(step.op->getParentOp());
  SmallVector<PlacementChoice> wanted;
  for (auto [i, use] : llvm::enumerate(step.uses)) {
    if (!function.isPublic()) {
      const PlacementChoice &made = asUsed(use.value);
      wanted.push_back(use.hasOneUse ? made : withoutPartial(made));
      continue;
    }
    DictionaryAttr attrs = function.getResultAttrDict(use.operand);
    auto name = attrs && attrs.contains(graph::kRoleAttr)
                    ? attrs.get(graph::kStateAttr)
                    : Attribute();
    auto taken = name ? classes.stateOf(name) : std::nullopt;
    wanted.push_back(taken && choices[*taken].node >= 0
                         ? choices[*taken]
                         : fixed(*shardings.plan(number).wanted[i]));
  }
  addUses(number, wanted, demands);
  if (function.isPublic())
    return;
  SmallVector<PlacementChoice> &results = callees[function];
  for (unsigned i = 0; i < step.op->getNumOperands(); ++i)
    results.push_back(wanted[step.useFor(i)]);
}

//===--- moves ------------------------------------------------------------===//

void OpSearch::addUses(unsigned number, ArrayRef<PlacementChoice> wanted,
                       Demands &demands) {
  const Congruence::Step &step = classes.step(number);
  double runs = times.lookup(step.op->getBlock()) * step.count;
  for (auto [use, place] : llvm::zip(step.uses, wanted))
    if (!use.isSplat) {
      Value value = step.op->getOperand(use.operand);
      demands[value].push_back({value, place, runs * use.count});
    }
}

void OpSearch::addSettling(unsigned number) {
  const Congruence::Step &step = classes.step(number);
  double runs = times.lookup(step.op->getBlock());
  for (auto [i, value] : llvm::enumerate(step.results))
    if (auto target = classes.settledLike(value))
      addMove(choices[value], {step.op->getResult(i), choices[*target],
                               runs * step.countOf(i)});
}

// No reshard makes partial values, shards integers, or moves dequantized
// matrices.
bool OpSearch::canMove(const Demand &demand, const Placement &from,
                       const Placement &to) const {
  if (llvm::is_contained(to.partial, axis) &&
      !llvm::is_contained(from.partial, axis))
    return false;
  const bool isMatrix = factors.isDequantized(demand.value);
  if (!isInteger(demand.value) && !isMatrix)
    return true;
  for (auto [now, then] : llvm::zip(from.dims, to.dims))
    for (auto [one, other] : llvm::zip(now, then))
      if (const bool was = llvm::is_contained(one.axes, axis),
          is = llvm::is_contained(other.axes, axis);
          was != is && (is || isMatrix))
        return false;
  return true;
}

double OpSearch::ofMove(const Demand &demand, const Placement &from,
                        const Placement &to) const {
  if (&from == &to)
    return 0;
  if (!canMove(demand, from, to))
    return HUGE_VAL;
  return price.weight * demand.times * costs.ofMoving(demand.value, from, to);
}

void OpSearch::addMove(const PlacementChoice &from, const Demand &demand) {
  const PlacementChoice &to = demand.where;
  if (from.node == to.node) {
    for (auto [cost, now, then] :
         llvm::zip(nodes[from.node].costs, from.placements, to.placements))
      cost += ofMove(demand, *now, *then);
    return;
  }
  addTo(from.node, to.node, from.placements.size(), to.placements.size(),
        [&](size_t i, size_t j) {
          return ofMove(demand, *from.placements[i], *to.placements[j]);
        });
}

// Costs of pairs of options: `count` of the one node, `others` of the other.
void OpSearch::addTo(int node, int other, size_t count, size_t others,
                     llvm::function_ref<double(size_t, size_t)> of) {
  const bool forward = node < other;
  auto &matrix = edges[std::minmax(node, other)];
  matrix.resize(count * others);
  for (size_t i = 0; i < count; ++i)
    for (size_t j = 0; j < others; ++j)
      matrix[forward ? i * others + j : j * count + i] += of(i, j);
}

/// The reshards of a value with several uses: the placements that it may have,
/// those that its uses require (and, after those, the ones in which it may
/// stay), and the seconds of one reshard.
struct OpSearch::SharedMoves {
  llvm::SetVector<const Placement *> origins, all;
  size_t wanted = 0;
  std::vector<double> seconds; ///< [origins][all]

  double of(size_t origin, const Placement *to) const {
    auto place = size_t(llvm::find(all, to) - all.begin());
    return seconds[origin * all.size() + place];
  }
};

OpSearch::SharedMoves OpSearch::sharedMoves(const PlacementChoice &from,
                                            ArrayRef<Demand> demands) const {
  SharedMoves moves;
  moves.origins.insert(from.placements.begin(), from.placements.end());
  for (const Demand &demand : demands)
    moves.all.insert(demand.where.placements.begin(),
                     demand.where.placements.end());
  moves.wanted = moves.all.size();
  moves.all.insert(moves.origins.begin(), moves.origins.end());
  Demand once{demands[0].value, {}, 1};
  for (const Placement *origin : moves.origins)
    for (const Placement *place : moves.all)
      moves.seconds.push_back(ofMove(once, *origin, *place));
  return moves;
}

// Uses that require one placement share a reshard: a further node chooses that
// placement, next to the node of the value. Uses that require another placement
// have their own reshard.
void OpSearch::addShared(const PlacementChoice &from,
                         ArrayRef<Demand> demands) {
  const SharedMoves moves = sharedMoves(from, demands);
  double most = 0;
  for (const Demand &demand : demands)
    most = std::max(most, demand.times);
  // Options are pairs of an origin and a shared placement.
  std::vector<Option> options;
  std::vector<size_t> originOf;
  int incumbent = 0;
  double least = HUGE_VAL;
  for (auto [i, origin] : llvm::enumerate(moves.origins))
    for (auto [j, place] : llvm::enumerate(moves.all)) {
      if (moves.seconds[i * moves.all.size() + j] == HUGE_VAL ||
          (j >= moves.wanted && place != origin))
        continue;
      double seconds = origin == from.placements[nodes[from.node].incumbent]
                           ? most * moves.of(i, place)
                           : HUGE_VAL;
      for (const Demand &demand : demands) {
        const Placement *to =
            demand.where.placements[nodes[demand.where.node].incumbent];
        seconds += to == place ? 0 : demand.times * moves.of(i, to);
      }
      if (seconds < least)
        least = seconds, incumbent = options.size();
      options.push_back({std::nullopt, Plan{{origin}, {place}}});
      originOf.push_back(i);
    }
  Plan now = options[incumbent].plan;
  int shared = addNode(std::move(options), now);
  auto planOf = [&](size_t option) -> const Plan & {
    return nodes[shared].options[option].plan;
  };
  addTo(shared, from.node, originOf.size(), from.placements.size(),
        [&](size_t option, size_t is) {
          const Plan &plan = planOf(option);
          return plan.wanted[0] != from.placements[is]
                     ? HUGE_VAL
                     : most * moves.of(originOf[option], plan.made[0]);
        });
  for (const Demand &demand : demands)
    addTo(shared, demand.where.node, originOf.size(),
          demand.where.placements.size(), [&](size_t option, size_t to) {
            const Placement *place = demand.where.placements[to];
            return planOf(option).made[0] == place
                       ? 0
                       : demand.times * moves.of(originOf[option], place);
          });
}
