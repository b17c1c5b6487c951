#include "passes/sharding/OpSearch.h"
#include <cmath>

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

static bool isBlockCall(Operation *op, const Factors &factors) {
  return isa<func::CallOp>(op) && !factors.computes(op);
}

static bool samePlan(const Plan &a, const Plan &b) {
  return a.wanted == b.wanted && a.made == b.made;
}

OpSearch::OpSearch(ModuleOp module, const Congruence &classes, const Mesh &mesh,
                   Shardings &shardings, unsigned axis, ArrayRef<Color> tokens,
                   LinkPrice price)
    : classes(classes), factors(classes.factors), mesh(mesh),
      shardings(shardings), axis(axis), tokens(tokens), price(price),
      costs(mesh, price), places(classes.valueCount()),
      nodeOfStep(classes.stepCount(), -1) {
  SmallVector<func::FuncOp> programs;
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && function.getName() != "init")
      programs.push_back(function);
  for (func::FuncOp program : programs) {
    count(program.getBody().front(), 1);
    addState(program);
  }
  for (func::FuncOp program : programs)
    addFunction(program, nullptr);
  state();
}

// How often a block runs in all programs together.
void OpSearch::count(Block &block, double runs) {
  times[&block] += runs;
  for (unsigned number : classes.stepsOf(block)) {
    const Congruence::Step &step = classes.step(number);
    if (isBlockCall(step.op, factors))
      count(
          factors.functions().of(cast<func::CallOp>(step.op)).getBody().front(),
          runs * step.count);
    else if (auto loop = dyn_cast<graph::LoopOp>(step.op))
      count(loop.getBody().front(), runs * step.count * loop.getTrip());
  }
}

//===--- nodes ------------------------------------------------------------===//

bool OpSearch::cuts(const Placement &placement) const {
  return placement.uses(axis) && !llvm::is_contained(placement.partial, axis);
}

bool OpSearch::cuts(const Plan &plan) const {
  auto isCut = [&](const Placement *placement) { return cuts(*placement); };
  return llvm::any_of(plan.wanted, isCut) || llvm::any_of(plan.made, isCut);
}

// Shares are priced as if all were as large.
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

// Rows that are a device's own are where they are. Sums of numbers say nothing
// of tensors, and there are more of them the more layers there are.
bool OpSearch::isFixed(Operation *op, const Plan &plan) const {
  auto isOwn = [&](const Placement *placement) {
    return llvm::is_contained(placement->own, axis);
  };
  const OpRule &rule = factors.of(op).rule;
  return rule.letters.empty() || rule.numbersRows ||
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
  for (auto [name, letter] : llvm::enumerate(computation.rule.letters))
    if (letter.kind == LetterKind::free || letter.kind == LetterKind::sum)
      for (unsigned k = 0; k < computation.letters[name].size(); ++k)
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

// Work that is divided among devices stays divided.
static bool multiplies(Operation *op, const OpRule &rule) {
  return isa<graph::AttentionOp, graph::AttentionGradOp>(op) ||
         llvm::any_of(rule.letters, [](const Letter &letter) {
           return letter.kind == LetterKind::sum;
         });
}

int OpSearch::addStep(unsigned number) {
  if (nodeOfStep[number] >= 0)
    return nodeOfStep[number];
  const Congruence::Step &step = classes.step(number);
  const Plan &now = shardings.plan(number);
  std::vector<Option> options;
  if (!isFixed(step.op, now)) {
    bool staysCut = multiplies(step.op, factors.of(step.op).rule) && cuts(now);
    for (const Option &option : optionsOf(number))
      if (samePlan(option.plan, now) ||
          (isEven(option.plan) && (!staysCut || cuts(option.plan)) &&
           keepsWeights(step.op, now, option.plan)))
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

OpSearch::Place OpSearch::addValue(Value value, DictionaryAttr attrs,
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

OpSearch::Place OpSearch::fixed(const Placement &placement) {
  return madeBy(addNode({}, Plan{{}, {&placement}}), 0);
}

OpSearch::Place OpSearch::madeBy(int node, unsigned result) const {
  Place place{node, {}};
  for (const Option &option : nodes[node].options)
    place.places.push_back(option.plan.made[result]);
  return place;
}

OpSearch::Place OpSearch::wantedBy(int node, unsigned use) const {
  Place place{node, {}};
  for (const Option &option : nodes[node].options)
    place.places.push_back(option.plan.wanted[use]);
  return place;
}

OpSearch::Place OpSearch::withoutPartial(Place place) {
  for (const Placement *&one : place.places)
    if (!one->partial.empty())
      one = shardings.intern(one->withoutPartial());
  return place;
}

//===--- programs, in the order in which Shardings goes through them ------===//

// State may be elsewhere, and what is cut of the host's tokens.
void OpSearch::addState(func::FuncOp program) {
  for (BlockArgument argument : classes.argumentsOf(program)) {
    ValueClass number = classes.of(argument);
    if (places[number].node >= 0)
      continue;
    DictionaryAttr attrs = program.getArgAttrDict(argument.getArgNumber());
    auto role = attrs ? attrs.getAs<graph::RoleAttr>(graph::kRoleAttr)
                      : graph::RoleAttr();
    auto name = role ? attrs.get(graph::kStateAttr) : Attribute();
    if (auto first = name ? classes.stateOf(name) : std::nullopt;
        first && places[*first].node >= 0) {
      places[number] = places[*first];
      continue;
    }
    auto input =
        attrs ? attrs.getAs<StringAttr>(graph::kInputAttr) : StringAttr();
    bool moves = role ? role.getValue() == graph::Role::parameter ||
                            role.getValue() == graph::Role::optimizer
                      : input && (input == "tokens" || input == "targets");
    places[number] = addValue(argument, attrs, !moves);
  }
}

void OpSearch::addFunction(func::FuncOp function,
                           const Congruence::Step *call) {
  if (call)
    for (BlockArgument argument : function.getArguments()) {
      unsigned i = argument.getArgNumber();
      Place &place = places[classes.of(argument)];
      if (isInteger(argument))
        place = withoutPartial(asUsed(call->uses[i].value));
      else
        place = addValue(argument, function.getArgAttrDict(i),
                         !shardings.of(argument).own.empty());
    }
  addBlock(function.getBody().front());
}

void OpSearch::addBlock(Block &block) {
  Wishes wishes;
  for (unsigned number : classes.stepsOf(block)) {
    Operation *op = classes.step(number).op;
    if (isBlockCall(op, factors)) {
      addCall(number, wishes);
    } else if (isa<graph::LoopOp>(op)) {
      addLoop(number, wishes);
    } else if (isa<func::ReturnOp>(op)) {
      addReturn(number, wishes);
    } else if (isa<graph::YieldOp>(op)) {
      auto loop = cast<graph::LoopOp>(op->getParentOp());
      SmallVector<Place> carried;
      for (Value value : loop.getCarried())
        carried.push_back(places[classes.of(value)]);
      addUses(number, carried, wishes);
    } else {
      int node = addStep(number);
      SmallVector<Place> wanted;
      for (unsigned use = 0; use < classes.step(number).uses.size(); ++use)
        wanted.push_back(wantedBy(node, use));
      addUses(number, wanted, wishes);
      for (auto [i, value] : llvm::enumerate(classes.step(number).results))
        places[value] = madeBy(node, i);
    }
    addSettling(number);
  }
  for (const auto &[value, all] : wishes) {
    if (all.size() > 1 && sharesMoves(value)) {
      addShared(asUsed(value), all);
      continue;
    }
    for (const Wish &wish : all)
      addMove(asUsed(value), wish);
  }
}

void OpSearch::addCall(unsigned number, Wishes &wishes) {
  const Congruence::Step &step = classes.step(number);
  func::FuncOp function = factors.functions().of(cast<func::CallOp>(step.op));
  if (callees.try_emplace(function).second)
    addFunction(function, &step);
  SmallVector<Place> wanted;
  for (BlockArgument argument : function.getArguments())
    wanted.push_back(places[classes.of(argument)]);
  addUses(number, wanted, wishes);
  for (auto [value, place] : llvm::zip(step.results, callees[function]))
    places[value] = place;
}

// An accumulator that starts at zero is where what is first added to it wants
// it.
void OpSearch::addLoop(unsigned number, Wishes &wishes) {
  auto loop = cast<graph::LoopOp>(classes.step(number).op);
  Block &body = loop.getBody().front();
  auto firstWanted = [&](ValueClass value) -> std::optional<Place> {
    for (unsigned inner : classes.stepsOf(body)) {
      const Congruence::Step &step = classes.step(inner);
      if (factors.computes(step.op))
        for (auto [i, use] : llvm::enumerate(step.uses))
          if (use.value == value)
            return wantedBy(addStep(inner), i);
    }
    return std::nullopt;
  };
  places[classes.of(loop.getInduction())] =
      fixed(shardings.of(loop.getInduction()));
  SmallVector<Place> carriedPlaces;
  for (auto [init, carried, result] :
       llvm::zip(loop.getInits(), loop.getCarried(), loop.getResults())) {
    auto target = classes.settledLike(classes.of(result));
    std::optional<Place> place;
    if (target && shardings.accumulatesSettled())
      place = places[*target];
    else if (isZero(init))
      place = firstWanted(classes.of(carried));
    if (!place)
      place =
          addValue(carried, {},
                   isInteger(carried) || !shardings.of(carried).own.empty());
    carriedPlaces.push_back(*place);
    places[classes.of(carried)] = *place;
  }
  addBlock(body);
  addUses(number, carriedPlaces, wishes);
  for (auto [value, place] :
       llvm::zip(classes.step(number).results, carriedPlaces))
    places[value] = place;
}

void OpSearch::addReturn(unsigned number, Wishes &wishes) {
  const Congruence::Step &step = classes.step(number);
  auto function = cast<func::FuncOp>(step.op->getParentOp());
  SmallVector<Place> wanted;
  for (auto [i, use] : llvm::enumerate(step.uses)) {
    if (!function.isPublic()) {
      const Place &made = asUsed(use.value);
      wanted.push_back(use.hasOneUse ? made : withoutPartial(made));
      continue;
    }
    DictionaryAttr attrs = function.getResultAttrDict(use.operand);
    auto name = attrs && attrs.contains(graph::kRoleAttr)
                    ? attrs.get(graph::kStateAttr)
                    : Attribute();
    auto taken = name ? classes.stateOf(name) : std::nullopt;
    wanted.push_back(taken && places[*taken].node >= 0
                         ? places[*taken]
                         : fixed(*shardings.plan(number).wanted[i]));
  }
  addUses(number, wanted, wishes);
  if (function.isPublic())
    return;
  SmallVector<Place> &results = callees[function];
  for (unsigned i = 0; i < step.op->getNumOperands(); ++i)
    results.push_back(wanted[step.useFor(i)]);
}

//===--- moves ------------------------------------------------------------===//

void OpSearch::addUses(unsigned number, ArrayRef<Place> wanted,
                       Wishes &wishes) {
  const Congruence::Step &step = classes.step(number);
  double runs = times.lookup(step.op->getBlock()) * step.count;
  for (auto [use, place] : llvm::zip(step.uses, wanted))
    if (!use.isSplat) {
      Value value = step.op->getOperand(use.operand);
      wishes[value].push_back({value, place, runs * use.count});
    }
}

void OpSearch::addSettling(unsigned number) {
  const Congruence::Step &step = classes.step(number);
  double runs = times.lookup(step.op->getBlock());
  for (auto [i, value] : llvm::enumerate(step.results))
    if (auto target = classes.settledLike(value))
      addMove(places[value],
              {step.op->getResult(i), places[*target], runs * step.countOf(i)});
}

// Nobody makes parts of a sum; integers come cut or are not.
bool OpSearch::canMove(const Wish &wish, const Placement &from,
                       const Placement &to) const {
  if (llvm::is_contained(to.partial, axis) &&
      !llvm::is_contained(from.partial, axis))
    return false;
  if (!isInteger(wish.value))
    return true;
  for (auto [now, then] : llvm::zip(from.dims, to.dims))
    for (auto [one, other] : llvm::zip(now, then))
      if (llvm::is_contained(other.axes, axis) &&
          !llvm::is_contained(one.axes, axis))
        return false;
  return true;
}

double OpSearch::ofMove(const Wish &wish, const Placement &from,
                        const Placement &to) const {
  if (&from == &to)
    return 0;
  if (!canMove(wish, from, to))
    return HUGE_VAL;
  return price.weight * wish.times * costs.ofMoving(wish.value, from, to);
}

void OpSearch::addMove(const Place &from, const Wish &wish) {
  const Place &to = wish.where;
  if (from.node == to.node) {
    for (auto [cost, now, then] :
         llvm::zip(nodes[from.node].costs, from.places, to.places))
      cost += ofMove(wish, *now, *then);
    return;
  }
  bool forward = from.node < to.node;
  size_t rows = from.places.size(), columns = to.places.size();
  auto &matrix = edges[std::minmax(from.node, to.node)];
  matrix.resize(rows * columns);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j)
      matrix[forward ? i * columns + j : j * rows + i] +=
          ofMove(wish, *from.places[i], *to.places[j]);
}

// What several want at one place moves there once: a node of its own chooses
// that place, beside where the value is. Who wants it elsewhere moves it by
// itself.
void OpSearch::addShared(const Place &from, ArrayRef<Wish> wishes) {
  llvm::SetVector<const Placement *> origins(from.places.begin(),
                                             from.places.end()),
      all;
  double most = 0;
  for (const Wish &wish : wishes) {
    all.insert(wish.where.places.begin(), wish.where.places.end());
    most = std::max(most, wish.times);
  }
  size_t wanted = all.size();
  all.insert(origins.begin(), origins.end());
  // Seconds of one move, [origins][all].
  Wish once{wishes[0].value, {}, 1};
  std::vector<double> moves;
  for (const Placement *origin : origins)
    for (const Placement *place : all)
      moves.push_back(ofMove(once, *origin, *place));
  auto indexIn = [](const auto &set, const Placement *placement) {
    return static_cast<size_t>(llvm::find(set, placement) - set.begin());
  };
  auto move = [&](size_t origin, const Placement *to) {
    return moves[origin * all.size() + indexIn(all, to)];
  };
  // Options are pairs of an origin and a shared place.
  std::vector<Option> options;
  std::vector<size_t> originOf;
  int incumbent = 0;
  double least = HUGE_VAL;
  for (auto [i, origin] : llvm::enumerate(origins))
    for (auto [j, place] : llvm::enumerate(all)) {
      if (moves[i * all.size() + j] == HUGE_VAL ||
          (j >= wanted && place != origin))
        continue;
      double seconds = origin == from.places[nodes[from.node].incumbent]
                           ? most * move(i, place)
                           : HUGE_VAL;
      for (const Wish &wish : wishes) {
        const Placement *to =
            wish.where.places[nodes[wish.where.node].incumbent];
        seconds += to == place ? 0 : wish.times * move(i, to);
      }
      if (seconds < least)
        least = seconds, incumbent = options.size();
      options.push_back({std::nullopt, Plan{{origin}, {place}}});
      originOf.push_back(i);
    }
  Plan now = options[incumbent].plan;
  int shared = addNode(std::move(options), now);
  auto addEdge = [&](const Place &other,
                     llvm::function_ref<double(size_t, const Placement *)> of) {
    size_t rows = originOf.size(), columns = other.places.size();
    bool forward = shared < other.node;
    auto &matrix = edges[std::minmax(shared, other.node)];
    matrix.resize(rows * columns);
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j)
        matrix[forward ? i * columns + j : j * rows + i] +=
            of(i, other.places[j]);
  };
  addEdge(from, [&](size_t option, const Placement *is) {
    const Plan &plan = nodes[shared].options[option].plan;
    return plan.wanted[0] != is ? HUGE_VAL
                                : most * move(originOf[option], plan.made[0]);
  });
  for (const Wish &wish : wishes)
    addEdge(wish.where, [&](size_t option, const Placement *to) {
      const Plan &plan = nodes[shared].options[option].plan;
      return plan.made[0] == to ? 0 : wish.times * move(originOf[option], to);
    });
}

//===--- the problem ------------------------------------------------------===//

// In about billionths of what the incumbent costs; nothing better has a part
// that costs more than that. Of two choices that cost the same the one that is
// more like the incumbent costs a little less. Powers of two, so that a problem
// with a little more in it is rounded the same way.
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
