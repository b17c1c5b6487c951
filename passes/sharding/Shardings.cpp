// Decides block by block, in program order: where arguments, state and what
// functions hand on are. PlanOp.cpp has the ops.
#include "passes/sharding/Shardings.h"
#include "llvm/ADT/StringMap.h"

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

// Cuts the first factor of the color that is large enough.
static bool cutColor(Placement &placement, ArrayRef<Factors::Atoms> atoms,
                     Color color, unsigned axis,
                     llvm::function_ref<bool(const Factor &)> fits) {
  for (auto [dim, names] : llvm::zip(placement.dims, atoms))
    for (auto [factor, atom] : llvm::zip(dim, names))
      if (atom.color == color && fits(factor)) {
        factor.axes.push_back(axis);
        return true;
      }
  return false;
}

Placement Shardings::byColors(Value value) const {
  Placement placement = blank(value);
  auto atoms = factors.of(value);
  for (unsigned axis = 0; axis < mesh.rank(); ++axis) {
    if (mesh.size(axis) == 1)
      continue;
    for (Color color : strategy->colors[axis])
      if (cutColor(placement, atoms, color, axis,
                   [&](const Factor &factor) { return fits(factor, axis); }))
        break;
  }
  return placement;
}

bool Shardings::cutByZero(graph::Role role) const {
  if (role == graph::Role::optimizer)
    return strategy->zero >= ZeroStage::optimizer;
  return role == graph::Role::parameter &&
         strategy->zero >= ZeroStage::parameters;
}

// Over the largest factor, one that divides evenly if there is any.
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
      return std::pair(factor.size % pieces == 0,
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

const Placement &Shardings::asUsed(Value value) const {
  if (const Placement *other = settled(value))
    return *other;
  return values.at(value);
}

// State is where the first program has it, which takes it as an argument if any
// does: what @init makes of one number says nothing of where it is used.
Placement Shardings::ofPort(Value value, DictionaryAttr attrs) {
  auto role = attrs ? attrs.getAs<graph::RoleAttr>(graph::kRoleAttr)
                    : graph::RoleAttr();
  if (!role)
    return byColors(value);
  Placement placement = ofState(value, role.getValue());
  auto name = attrs.getAs<StringAttr>(graph::kStateAttr);
  return name ? state.try_emplace(name.getValue(), placement).first->second
              : placement;
}

void Shardings::placeArguments(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments()) {
    auto rows = ownRows.find(argument);
    values[argument] =
        rows != ownRows.end()
            ? rows->second
            : ofPort(argument,
                     function.getArgAttrDict(argument.getArgNumber()));
  }
}

// What a pointwise call takes beside optimizer state is a gradient, and is best
// cut as that state is, once, where it is made.
void Shardings::settleGradients(func::FuncOp function) {
  auto isMoment = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != &function.getBody().front())
      return false;
    auto role = function.getArgAttrOfType<graph::RoleAttr>(
        argument.getArgNumber(), graph::kRoleAttr);
    return role && role.getValue() == graph::Role::optimizer;
  };
  for (auto call : function.getOps<func::CallOp>()) {
    if (!isPointwiseCall(call))
      continue;
    auto moment = llvm::find_if(call.getOperands(), isMoment);
    if (moment == call.getOperands().end())
      continue;
    Value like = *moment;
    for (Value operand : call.getOperands())
      if (!isa<BlockArgument>(operand) && tensorType(operand).getRank() > 0)
        settlements[operand] = values.at(like);
  }
}

//===--- functions and their structure ------------------------------------===//

void Shardings::restart(const Strategy &other) {
  strategy = &other;
  values.clear();
  settlements.clear();
  operands.clear();
  planned.clear();
  state.clear();
  ownRows.clear();
  open.clear();
}

LogicalResult Shardings::build(ModuleOp module, StringRef except) {
  SmallVector<func::FuncOp> programs;
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && function.getName() != except)
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
  if (!planned.insert(function).second)
    return success();
  placeArguments(function);
  // A block takes integers as they are made.
  if (call)
    for (auto [argument, operand] :
         llvm::zip(function.getArguments(), call.getOperands()))
      if (isInteger(argument))
        values[argument] = Placement(asUsed(operand)).withoutPartial();
  settleGradients(function);
  return planBlock(function.getBody().front());
}

LogicalResult Shardings::planBlock(Block &block) {
  for (Operation &op : block) {
    LogicalResult done = success();
    if (auto call = dyn_cast<func::CallOp>(op); call && !isPointwiseCall(&op))
      done = planCall(call);
    else if (auto loop = dyn_cast<graph::LoopOp>(op))
      done = planLoop(loop);
    else if (auto ret = dyn_cast<func::ReturnOp>(op))
      planReturn(ret);
    else if (!isa<graph::YieldOp>(op))
      done = planOp(&op);
    if (failed(done))
      return failure();
  }
  return success();
}

LogicalResult Shardings::planCall(func::CallOp call) {
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
      call, call.getCalleeAttr());
  // What nobody can move stays as it is; all calls of a block are alike.
  for (auto [operand, argument] :
       llvm::zip(call.getOperands(), callee.getArguments()))
    if (!asUsed(operand).own.empty())
      ownRows.try_emplace(argument, asUsed(operand));
  if (failed(planFunction(callee, call)))
    return failure();
  for (auto [operand, argument] :
       llvm::zip(call->getOpOperands(), callee.getArguments()))
    operands[&operand] = values.at(argument);
  Operation *ret = callee.getBody().front().getTerminator();
  for (auto [result, returned] :
       llvm::zip(call.getResults(), ret->getOpOperands()))
    values[result] = operands.at(&returned);
  return success();
}

// State goes back as it came; what the host reads is whole. A block hands out
// parts of sums, unless it needs the sum itself.
void Shardings::planReturn(func::ReturnOp ret) {
  auto function = cast<func::FuncOp>(ret->getParentOp());
  for (OpOperand &operand : ret->getOpOperands()) {
    unsigned i = operand.getOperandNumber();
    Placement placement = asUsed(operand.get());
    if (function.isPublic()) {
      DictionaryAttr attrs = function.getResultAttrDict(i);
      bool isState = attrs && attrs.contains(graph::kRoleAttr);
      placement = isState ? ofPort(operand.get(), attrs) : blank(operand.get());
    } else if (!operand.get().hasOneUse()) {
      placement = placement.withoutPartial();
    }
    operands[&operand] = placement;
  }
}

// Where the body adds up the parts of an accumulator on the way, it takes and
// hands on sums: nothing makes parts of them again.
bool Shardings::dropLostParts(graph::LoopOp loop) {
  bool lost = false;
  for (auto [carried, yielded] :
       llvm::zip(loop.getCarried(), loop.getYield().getValues())) {
    Placement &place = values[carried];
    const auto &made = asUsed(yielded).partial;
    if (llvm::all_of(place.partial, [&](unsigned axis) {
          return llvm::is_contained(made, axis);
        }))
      continue;
    place = place.withoutPartial();
    lost = true;
  }
  return lost;
}

// An accumulator that starts at zero takes the placement of what is added to
// it; twice through the body, since the first time finds that out.
LogicalResult Shardings::planLoop(graph::LoopOp loop) {
  for (auto [init, carried, result] :
       llvm::zip(loop.getInits(), loop.getCarried(), loop.getResults())) {
    const Placement *target = settled(result);
    bool early = strategy->zero >= ZeroStage::gradients && target;
    values[carried] = early                ? *target
                      : isInteger(carried) ? blank(carried)
                                           : byColors(carried);
    if (!early && isZero(init))
      open.insert(carried);
  }
  values[loop.getInduction()] = blank(loop.getInduction());
  if (failed(planBlock(loop.getBody().front())))
    return failure();
  for (Value carried : loop.getCarried())
    open.erase(carried);
  do
    if (failed(planBlock(loop.getBody().front())))
      return failure();
  while (dropLostParts(loop));
  for (auto [init, carried, yielded, result] :
       llvm::zip(loop.getInitsMutable(), loop.getCarried(),
                 loop.getYield().getValuesMutable(), loop.getResults())) {
    // By way of a copy: a new entry may move the others.
    Placement place = values.at(carried);
    values[result] = place;
    operands[&yielded] = place;
    operands[&init] = std::move(place);
  }
  return success();
}
