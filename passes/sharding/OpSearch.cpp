#include "passes/sharding/OpSearch.h"
#include <cmath>

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

static bool samePlan(const Plan &a, const Plan &b) {
  return a.wanted == b.wanted && a.made == b.made;
}

OpSearch::OpSearch(ModuleOp module, const Congruence &classes, const Mesh &mesh,
                   Shardings &shardings, unsigned axis, ArrayRef<Color> tokens,
                   LinkPrice price, bool mayUndo)
    : classes(classes), factors(classes.factors), mesh(mesh),
      shardings(shardings), axis(axis), tokens(tokens), price(price),
      mayUndo(mayUndo), costs(mesh, price), choices(classes.valueCount()),
      nodeOfStep(classes.stepCount(), -1) {
  SmallVector<func::FuncOp> programs;
  for (auto function : module.getOps<func::FuncOp>())
    if (isRepeated(function))
      programs.push_back(function);
  for (func::FuncOp program : programs) {
    count(program.getBody().front(), 1);
    addState(program);
  }
  for (func::FuncOp program : programs)
    addFunction(program, nullptr);
  state();
}

//===--- nodes ------------------------------------------------------------===//

bool OpSearch::cuts(const Placement &placement) const {
  return placement.uses(axis) && !llvm::is_contained(placement.partial, axis);
}

bool OpSearch::cuts(const Plan &plan) const {
  auto isCut = [&](const Placement *placement) { return cuts(*placement); };
  return llvm::any_of(plan.wanted, isCut) || llvm::any_of(plan.made, isCut);
}

// The estimate prices all shards as if they had one size.
bool OpSearch::isEven(const Plan &plan) const {
  auto isEven = [&](const Placement *placement) {
    return llvm::all_of(placement->dims, [&](const DimPlacement &dim) {
      return llvm::all_of(dim, [&](const Factor &factor) {
        return !llvm::is_contained(factor.axes, axis) ||
               factor.size % mesh.size(factor.axes) == 0;
      });
    });
  };
  return llvm::all_of(plan.wanted, isEven) && llvm::all_of(plan.made, isEven);
}

// Rows in device-local order cannot be moved. Sums of scalars do not affect
// tensors, and their number grows with the number of layers.
bool OpSearch::isFixed(Operation *op, const Plan &plan) const {
  auto isOwn = [&](const Placement *placement) {
    return llvm::is_contained(placement->own, axis);
  };
  const OpRule &rule = factors.of(op).rule;
  return rule.loops.empty() || rule.numbersRows ||
         llvm::any_of(plan.wanted, isOwn) || llvm::any_of(plan.made, isOwn);
}

int OpSearch::addNode(std::vector<Option> options, const Plan &incumbent) {
  Node &node = nodes.emplace_back();
  for (Option &option : options)
    if (llvm::none_of(node.options, [&](const Option &other) {
          return samePlan(option.plan, other.plan);
        }))
      node.options.push_back(std::move(option));
  auto now = llvm::find_if(node.options, [&](const Option &option) {
    return samePlan(option.plan, incumbent);
  });
  node.incumbent = now - node.options.begin();
  if (now == node.options.end())
    node.options.push_back({std::nullopt, incumbent});
  node.costs.resize(node.options.size());
  return nodes.size() - 1;
}

std::vector<Cutting> OpSearch::cuttingsOf(Operation *op) const {
  Factors::Computation computation = factors.of(op);
  std::vector<Cutting> all{{}};
  for (auto [name, loopDim] : llvm::enumerate(computation.rule.loops))
    if (loopDim.kind == LoopKind::parallel || loopDim.kind == LoopKind::sum)
      for (unsigned k = 0; k < computation.loops[name].size(); ++k)
        all.push_back({Cutting::Kind::factor, static_cast<unsigned>(name), k});
  for (unsigned set = 0; set < computation.rule.linear.size(); ++set)
    all.push_back({Cutting::Kind::parts, set, 0});
  return all;
}

const std::vector<OpSearch::Option> &OpSearch::optionsOf(unsigned number) {
  const Congruence::Step &step = classes.step(number);
  std::vector<uintptr_t> key{step.kind ? 2 * uintptr_t(*step.kind)
                                       : 2 * uintptr_t(number) + 1};
  for (const Congruence::Use &use : step.uses) {
    key.push_back(reinterpret_cast<uintptr_t>(
        shardings.intern(shardings.asUsed(use.value).without(axis))));
    key.push_back(use.isSplat | use.isZero << 1 | use.hasOneUse << 2);
  }
  auto [known, isNew] = knownOptions.try_emplace(std::move(key));
  if (isNew)
    for (const Cutting &cutting : cuttingsOf(step.op))
      if (auto plan = shardings.planIf(number, axis, cutting))
        known->second.push_back({cutting, std::move(*plan)});
  return known->second;
}

bool OpSearch::isOfTokens(Value value) const {
  return llvm::any_of(factors.of(value), [&](const Factors::Atoms &atoms) {
    return llvm::any_of(atoms, [&](Factors::Atom atom) {
      return llvm::is_contained(tokens, atom.color);
    });
  });
}

bool OpSearch::keepsWeights(Operation *op, const Plan &now,
                            const Plan &then) const {
  auto keeps = [&](auto &&pair) {
    auto [value, before, after] = pair;
    return !cuts(*before) || cuts(*after) || isOfTokens(value);
  };
  return llvm::all_of(llvm::zip(op->getOperands(), now.wanted, then.wanted),
                      keeps) &&
         llvm::all_of(llvm::zip(op->getResults(), now.made, then.made), keeps);
}

// Sharded ops stay sharded: how long their work takes relative to a message is
// not known well enough.
int OpSearch::addStep(unsigned number) {
  if (nodeOfStep[number] >= 0)
    return nodeOfStep[number];
  const Congruence::Step &step = classes.step(number);
  const Plan &now = shardings.plan(number);
  std::vector<Option> options;
  if (!isFixed(step.op, now)) {
    bool staysCut = cuts(now) && !mayUndo;
    for (const Option &option : optionsOf(number))
      if (samePlan(option.plan, now) ||
          (isEven(option.plan) && (!staysCut || cuts(option.plan)) &&
           (mayUndo || keepsWeights(step.op, now, option.plan))))
        options.push_back(option);
  }
  int added = addNode(std::move(options), now);
  Node &node = nodes[added];
  node.step = number;
  for (auto [cost, option] : llvm::zip(node.costs, node.options))
    cost = times.lookup(step.op->getBlock()) * step.count *
           costs.ofOp(step.op, option.plan);
  return nodeOfStep[number] = added;
}

OpSearch::PlacementChoice OpSearch::addValue(Value value, DictionaryAttr attrs,
                                             bool isFixed) {
  Plan now{{}, {&shardings.of(value)}};
  std::vector<Option> options;
  bool isState = attrs && attrs.contains(graph::kRoleAttr);
  bool staysCut = cuts(*now.made[0]) && (isState || !isOfTokens(value));
  auto add = [&](Cutting cutting) {
    Plan plan{{}, {shardings.placeIf(value, attrs, axis, cutting)}};
    bool isCut = cuts(*plan.made[0]);
    if (isCut != (cutting.kind == Cutting::Kind::factor))
      return;
    if (samePlan(plan, now) || (isEven(plan) && (isCut || !staysCut)))
      options.push_back({cutting, std::move(plan)});
  };
  if (!isFixed) {
    add({});
    for (auto [d, atoms] : llvm::enumerate(factors.of(value)))
      for (unsigned k = 0; k < atoms.size(); ++k)
        add({Cutting::Kind::factor, static_cast<unsigned>(d), k});
  }
  int added = addNode(std::move(options), now);
  nodes[added].value = classes.of(value);
  return madeBy(added, 0);
}

OpSearch::PlacementChoice OpSearch::fixed(const Placement &placement) {
  return madeBy(addNode({}, Plan{{}, {&placement}}), 0);
}

OpSearch::PlacementChoice OpSearch::madeBy(int node, unsigned result) const {
  PlacementChoice place{node, {}};
  for (const Option &option : nodes[node].options)
    place.placements.push_back(option.plan.made[result]);
  return place;
}

OpSearch::PlacementChoice OpSearch::wantedBy(int node, unsigned use) const {
  PlacementChoice place{node, {}};
  for (const Option &option : nodes[node].options)
    place.placements.push_back(option.plan.wanted[use]);
  return place;
}

OpSearch::PlacementChoice OpSearch::withoutPartial(PlacementChoice place) {
  for (const Placement *&one : place.placements)
    if (!one->partial.empty())
      one = shardings.intern(one->withoutPartial());
  return place;
}

OpSearch::PlacementChoice OpSearch::withPartial(PlacementChoice place,
                                                ArrayRef<unsigned> axes) {
  if (axes.empty())
    return place;
  for (const Placement *&one : place.placements) {
    Placement partial = one->withoutPartial();
    partial.partial.assign(axes.begin(), axes.end());
    one = shardings.intern(std::move(partial));
  }
  return place;
}

//===--- the problem ------------------------------------------------------===//

// The unit is about a billionth of the incumbent's cost; a node or edge that
// costs more than the incumbent is not allowed. Of two choices with equal costs
// the one closer to the incumbent costs a little less. The unit is a power of
// two, so that a slightly larger problem is rounded the same way.
void OpSearch::state() {
  double total = 0;
  for (const Node &node : nodes) {
    incumbents.push_back(node.incumbent);
    total += node.costs[node.incumbent];
  }
  for (const auto &[pair, matrix] : edges)
    total +=
        matrix[nodes[pair.first].incumbent * nodes[pair.second].options.size() +
               nodes[pair.second].incumbent];
  double most = std::exp2(std::ceil(std::log2(std::max(total, 1e-12))));
  unit = std::ldexp(most, -31);
  auto costOf = [&](double seconds) {
    return seconds > most
               ? solver::kInfinite
               : static_cast<solver::Cost>(std::llround(seconds / unit));
  };
  for (const Node &node : nodes) {
    solver::Node &added = stated.nodes.emplace_back();
    for (auto [i, cost] : llvm::enumerate(node.costs))
      added.costs.push_back(solver::saturatingAdd(
          costOf(cost), static_cast<int>(i) != node.incumbent));
    added.usages.assign(node.costs.size(), 0);
  }
  for (const auto &[pair, matrix] : edges) {
    solver::Edge &added = stated.edges.emplace_back();
    added.from = pair.first, added.to = pair.second;
    for (double cost : matrix)
      added.costs.push_back(costOf(cost));
  }
}

Exceptions OpSearch::exceptions(ArrayRef<int> choice) const {
  Exceptions found{axis, {}, {}};
  found.ofStep.resize(classes.stepCount());
  found.ofValue.resize(classes.valueCount());
  for (auto [node, chosen] : llvm::zip(nodes, choice)) {
    const auto &cutting = node.options[chosen].cutting;
    if (node.step)
      found.ofStep[*node.step] = cutting;
    else if (node.value)
      found.ofValue[*node.value] = cutting;
  }
  return found;
}

unsigned OpSearch::changes(ArrayRef<int> choice) const {
  unsigned changed = 0;
  for (auto [node, chosen] : llvm::zip(nodes, choice))
    changed += (node.step || node.value) && chosen != node.incumbent;
  return changed;
}
