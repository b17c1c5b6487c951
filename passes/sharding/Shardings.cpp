// Plans block by block, in program order: the placements of arguments, state
// and the results of functions. PlanOp.cpp plans ops.
#include "passes/sharding/Shardings.h"
#include "dialects/graph/GraphExchangeOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

bool sharding::isInteger(Value value) {
  return !isa<FloatType>(tensorType(value).getElementType());
}

//===--- placements of values ---------------------------------------------===//

Placement Shardings::blank(Value value) const {
  Placement placement;
  for (const Factors::Atoms &atoms : factors.of(value)) {
    DimPlacement &dim = placement.dims.emplace_back();
    for (Factors::Atom atom : atoms)
      dim.push_back({atom.size, {}});
  }
  return placement;
}

bool Shardings::fits(const Factor &factor, unsigned axis) const {
  return factor.size >= mesh.size(factor.axes) * mesh.size(axis);
}

// Shards the first factor of the sharding group that is large enough.
static bool
cutColor(Placement &placement, ArrayRef<Factors::Atoms> atoms, Color color,
         unsigned axis,
         llvm::function_ref<bool(unsigned dim, unsigned factor)> fits) {
  for (auto [d, names] : llvm::enumerate(atoms))
    for (auto [k, atom] : llvm::enumerate(names))
      if (atom.color == color && fits(d, k)) {
        placement.dims[d][k].axes.push_back(axis);
        return true;
      }
  return false;
}

std::optional<Cutting> Shardings::exceptionOf(Value value,
                                              unsigned axis) const {
  if (trial && trial->first == axis)
    return trial->second;
  const Exceptions *own = exceptionsAlong(axis);
  return own ? own->ofValue[classes.of(value)] : std::nullopt;
}

Placement Shardings::byColors(Value value) const {
  Placement placement = blank(value);
  auto atoms = factors.of(value);
  auto mayCut = [&](unsigned axis, unsigned dim, unsigned factor) {
    return fits(placement.dims[dim][factor], axis) &&
           factors.isShardable(value, dim, factor);
  };
  for (unsigned axis = 0; axis < mesh.rank(); ++axis) {
    if (mesh.size(axis) == 1)
      continue;
    if (auto cutting = exceptionOf(value, axis)) {
      if (cutting->kind != Cutting::Kind::factor)
        continue;
      if (mayCut(axis, cutting->name, cutting->factor))
        placement.dims[cutting->name][cutting->factor].axes.push_back(axis);
      continue;
    }
    for (Color color : strategy->colors[axis])
      if (cutColor(placement, atoms, color, axis,
                   [&](unsigned dim, unsigned factor) {
                     return mayCut(axis, dim, factor);
                   }))
        break;
  }
  return placement;
}

bool Shardings::cutByZero(graph::Role role) const {
  if (role == graph::Role::optimizer)
    return strategy->zero >= ZeroStage::optimizer;
  return role == graph::Role::parameter &&
         strategy->zero >= (strategy->hasMasters ? ZeroStage::optimizer
                                                 : ZeroStage::parameters);
}

// An argument of a program, or its copy in another element type.
static bool isStored(Value value) {
  while (auto convert = value.getDefiningOp<graph::ConvertOp>())
    value = convert.getInput();
  auto argument = dyn_cast<BlockArgument>(value);
  auto function =
      argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp())
               : func::FuncOp();
  return function && function.isPublic();
}

MoveScope Shardings::moveScope(Value value) const {
  if (!isStored(value))
    return MoveScope::block;
  switch (strategy->zero) {
  case ZeroStage::parameters:
    return MoveScope::use;
  case ZeroStage::optimizer:
  case ZeroStage::gradients:
    if (strategy->hasMasters)
      return MoveScope::program;
    [[fallthrough]];
  case ZeroStage::none:
    return isa<BlockArgument>(value) ? MoveScope::use : MoveScope::block;
  }
  llvm_unreachable("unknown stage");
}

bool sharding::hasMasters(ModuleOp module) {
  auto isNarrowing = [](Operation *user) {
    auto convert = dyn_cast<graph::ConvertOp>(user);
    return convert &&
           tensorType(convert.getResult()).getElementTypeBitWidth() <
               tensorType(convert.getInput()).getElementTypeBitWidth();
  };
  for (auto function : module.getOps<func::FuncOp>())
    for (BlockArgument argument : function.getArguments()) {
      auto role = function.getArgAttrOfType<graph::RoleAttr>(
          argument.getArgNumber(), graph::kRoleAttr);
      if (role && role.getValue() == graph::Role::parameter &&
          llvm::any_of(argument.getUsers(), isNarrowing))
        return true;
    }
  return false;
}

// ZeRO shards a factor that divides evenly, if there is any: the
// slowest-varying one, whose shards are contiguous and gathered without a copy,
// or else the largest.
Placement Shardings::ofState(Value value, graph::Role role) const {
  Placement placement = byColors(value);
  if (!cutByZero(role))
    return placement;
  for (unsigned axis : strategy->zeroAxes) {
    if (mesh.size(axis) == 1 || placement.uses(axis))
      continue;
    Factor *best = nullptr;
    auto rank = [&](const Factor &factor) {
      int64_t pieces = mesh.size(factor.axes) * mesh.size(axis);
      return std::tuple(factor.size % pieces == 0,
                        &factor == &placement.dims.front().front(),
                        factor.size / mesh.size(factor.axes));
    };
    for (DimPlacement &dim : placement.dims)
      for (Factor &factor : dim)
        if (fits(factor, axis) && (!best || rank(factor) > rank(*best)))
          best = &factor;
    if (best)
      best->axes.push_back(axis);
  }
  return placement;
}

// A sum of gradients that has the placement of its state: microbatches are
// reduce-scattered inside a replica, and replicas add up after the loop.
const Placement *Shardings::ofGradientSum(const Placement &state) {
  Placement placement = state;
  for (unsigned axis : strategy->replicaAxes)
    if (mesh.size(axis) > 1 && !placement.uses(axis))
      placement.partial.push_back(axis);
  llvm::sort(placement.partial);
  return pool.intern(std::move(placement));
}

// State has the placement of the first program that takes it as an argument, if
// any does: a splat in @init says nothing about its uses.
Placement Shardings::ofPort(Value value, DictionaryAttr attrs) {
  auto role = attrs ? attrs.getAs<graph::RoleAttr>(graph::kRoleAttr)
                    : graph::RoleAttr();
  if (!role)
    return byColors(value);
  auto name = attrs.getAs<StringAttr>(graph::kStateAttr);
  if (auto taken = name ? classes.stateOf(name) : std::nullopt;
      taken && values[*taken])
    return *values[*taken];
  Placement placement = ofState(value, role.getValue());
  if (!name)
    return placement;
  auto [first, isNew] = state.try_emplace(name);
  if (isNew)
    first->second = pool.intern(std::move(placement));
  return *first->second;
}

const Placement *Shardings::placeIf(Value value, DictionaryAttr attrs,
                                    unsigned axis, const Cutting &cutting) {
  trial = {axis, cutting};
  auto role = attrs ? attrs.getAs<graph::RoleAttr>(graph::kRoleAttr)
                    : graph::RoleAttr();
  Placement placement =
      role ? ofState(value, role.getValue()) : byColors(value);
  trial.reset();
  return pool.intern(std::move(placement));
}

void Shardings::placeArguments(func::FuncOp function) {
  for (BlockArgument argument : classes.argumentsOf(function)) {
    auto rows = ownRows.find(argument);
    if (rows != ownRows.end())
      values[classes.of(argument)] = rows->second;
    else
      place(classes.of(argument),
            ofPort(argument, function.getArgAttrDict(argument.getArgNumber())));
  }
}

//===--- functions and their structure ------------------------------------===//

void Shardings::restart(const Strategy &other) {
  strategy = &other;
  values.assign(classes.valueCount(), nullptr);
  plans.assign(classes.stepCount(), nullptr);
  planStore.clear();
  known.clear();
  blocks.clear();
  state.clear();
  ownRows.clear();
  open.clear();
}

LogicalResult Shardings::build(ModuleOp module, bool withInit) {
  SmallVector<func::FuncOp> programs;
  for (auto function : module.getOps<func::FuncOp>())
    if (withInit ? function.isPublic() : isRepeated(function))
      programs.push_back(function);
  for (func::FuncOp function : programs)
    placeArguments(function);
  for (func::FuncOp function : programs)
    if (failed(planFunction(function, {})))
      return failure();
  return success();
}

LogicalResult Shardings::planFunction(func::FuncOp function,
                                      func::CallOp call) {
  placeArguments(function);
  // A block takes integers and dequantized matrices as they are produced.
  if (call)
    for (auto [argument, operand] :
         llvm::zip(function.getArguments(), call.getOperands()))
      if (isPinned(argument))
        place(classes.of(argument), asUsed(operand).withoutPartial());
  return planBlock(function.getBody().front());
}

LogicalResult Shardings::planBlock(Block &block) {
  for (unsigned step : classes.stepsOf(block)) {
    Operation *op = classes.step(step).op;
    LogicalResult done = success();
    if (auto call = dyn_cast<func::CallOp>(op); call && !isPointwiseCall(op))
      done = planCall(call, step);
    else if (auto loop = dyn_cast<graph::LoopOp>(op))
      done = planLoop(loop, step);
    else if (auto ret = dyn_cast<func::ReturnOp>(op))
      planReturn(ret, step);
    else if (!isa<graph::YieldOp>(op))
      done = planOp(step);
    if (failed(done))
      return failure();
  }
  return success();
}

// All calls of a block have one plan.
LogicalResult Shardings::planCall(func::CallOp call, unsigned step) {
  func::FuncOp callee = factors.functions().of(call);
  const Plan *&ofBlock = blocks[callee];
  if (!ofBlock) {
    // Rows in device-local order cannot be moved.
    for (auto [operand, argument] :
         llvm::zip(call.getOperands(), callee.getArguments()))
      if (!asUsed(operand).own.empty())
        ownRows.try_emplace(argument, &asUsed(operand));
    if (failed(planFunction(callee, call)))
      return failure();
    Plan &plan = remember(step);
    for (BlockArgument argument : callee.getArguments())
      plan.wanted.push_back(&of(argument));
    Operation *ret = callee.getBody().front().getTerminator();
    for (OpOperand &returned : ret->getOpOperands())
      plan.made.push_back(&wanted(returned));
    blocks[callee] = &plan;
  }
  plans[step] = blocks[callee];
  for (auto [value, made] :
       llvm::zip(classes.step(step).results, plans[step]->made))
    values[value] = made;
  return success();
}

// Programs return state with the placement of the argument, and other results
// replicated. A block may return partial values, unless it also reads the sum.
void Shardings::planReturn(func::ReturnOp ret, unsigned step) {
  auto function = cast<func::FuncOp>(ret->getParentOp());
  Plan &plan = remember(step);
  for (const Congruence::Use &use : classes.step(step).uses) {
    Value value = ret.getOperand(use.operand);
    Placement placement;
    if (function.isPublic()) {
      DictionaryAttr attrs = function.getResultAttrDict(use.operand);
      bool isState = attrs && attrs.contains(graph::kRoleAttr);
      placement = isState ? ofPort(value, attrs) : blank(value);
    } else {
      placement = asUsed(use.value);
      if (!use.hasOneUse)
        placement = placement.withoutPartial();
    }
    plan.wanted.push_back(pool.intern(std::move(placement)));
  }
}

// If the body reduces an accumulator, the loop carries the sum: no op makes
// partial values of it again.
bool Shardings::dropLostParts(graph::LoopOp loop) {
  bool lost = false;
  for (auto [carried, yielded] :
       llvm::zip(loop.getCarried(), loop.getYield().getValues())) {
    const Placement &have = of(carried);
    const auto &made = asUsed(yielded).partial;
    if (llvm::all_of(have.partial, [&](unsigned axis) {
          return llvm::is_contained(made, axis);
        }))
      continue;
    place(classes.of(carried), have.withoutPartial());
    lost = true;
  }
  return lost;
}

// An accumulator that starts at zero takes the placement of the values that are
// added to it. The first pass over the body finds it, the second uses it. Where
// further rounds of an exchange are added, it is that of the first round.
LogicalResult Shardings::planLoop(graph::LoopOp loop, unsigned step) {
  for (auto [init, carried, result] :
       llvm::zip(loop.getInits(), loop.getCarried(), loop.getResults())) {
    ValueClass number = classes.of(carried);
    if (loop.getOverflow()) {
      values[number] = &asUsed(init);
      continue;
    }
    auto target = classes.settledLike(classes.of(result));
    bool early = accumulatesSettled() && target;
    if (early)
      values[number] =
          isZero(init) ? ofGradientSum(*values[*target]) : values[*target];
    else
      place(number, isInteger(carried) ? blank(carried) : byColors(carried));
    if (!early && isZero(init))
      open.insert(number);
  }
  place(classes.of(loop.getInduction()), blank(loop.getInduction()));
  Block &body = loop.getBody().front();
  if (failed(planBlock(body)))
    return failure();
  for (Value carried : loop.getCarried())
    open.erase(classes.of(carried));
  do
    if (failed(planBlock(body)))
      return failure();
  while (dropLostParts(loop));
  Plan &plan = remember(step);
  for (Value carried : loop.getCarried())
    plan.wanted.push_back(&of(carried));
  plan.made.assign(plan.wanted.begin(), plan.wanted.end());
  plans[classes.stepOf(loop.getYield())] = &plan;
  for (auto [result, made] : llvm::zip(loop.getResults(), plan.made))
    values[classes.of(result)] = made;
  return success();
}
