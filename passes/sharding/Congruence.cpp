#include "passes/sharding/Congruence.h"
#include "dialects/graph/Constants.h"
#include "dialects/graph/FoldedAttrs.h"
#include "llvm/ADT/BitVector.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

Congruence::Congruence(ModuleOp module, const Factors &factors)
    : factors(factors) {
  SmallVector<func::FuncOp> functions;
  for (auto function : module.getOps<func::FuncOp>())
    if (!factors.functions().isPointwise(function))
      functions.push_back(function);
  for (func::FuncOp function : functions)
    addNames(function);
  for (func::FuncOp function : functions)
    addArguments(function);
  for (func::FuncOp function : functions) {
    addGradients(function);
    addBlock(function.getBody().front());
  }
}

//===--- values -----------------------------------------------------------===//

ValueClass Congruence::fresh() {
  settlements.emplace_back();
  return settlements.size() - 1;
}

ValueClass Congruence::add(Value value, const Key &key) {
  auto [known, isNew] = valueNumbers.try_emplace(key, settlements.size());
  if (isNew)
    fresh();
  return values[value] = known->second;
}

void Congruence::addNames(func::FuncOp function) {
  auto add = [&](DictionaryAttr attrs) {
    auto role = attrs ? attrs.getAs<graph::RoleAttr>(graph::kRoleAttr)
                      : graph::RoleAttr();
    if (auto name = role ? attrs.get(graph::kStateAttr) : Attribute())
      roles[name] |= 1u << static_cast<unsigned>(role.getValue());
  };
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    add(function.getArgAttrDict(i));
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    add(function.getResultAttrDict(i));
}

// The placement of state follows from its role. A name with several roles is in
// a class of its own.
void Congruence::appendPort(DictionaryAttr attrs, Key &key) const {
  auto role = attrs ? attrs.getAs<graph::RoleAttr>(graph::kRoleAttr)
                    : graph::RoleAttr();
  key.push_back(role ? 1 + static_cast<uint64_t>(role.getValue()) : 0);
  auto name = role ? attrs.get(graph::kStateAttr) : Attribute();
  if (name && !llvm::isPowerOf2_32(roles.lookup(name)))
    key.push_back(reinterpret_cast<uintptr_t>(name.getAsOpaquePointer()));
}

// A block's arguments have the placements of its first call.
void Congruence::addArguments(func::FuncOp function) {
  std::vector<BlockArgument> &first = arguments[function];
  llvm::DenseSet<ValueClass> seen;
  Key key;
  for (BlockArgument argument : function.getArguments()) {
    if (!function.isPublic()) {
      values[argument] = fresh();
      first.push_back(argument);
      continue;
    }
    key.assign(
        {reinterpret_cast<uintptr_t>(argument.getType().getAsOpaquePointer())});
    factors.appendKey(argument, key);
    DictionaryAttr attrs = function.getArgAttrDict(argument.getArgNumber());
    appendPort(attrs, key);
    if (auto input = attrs ? attrs.get(graph::kInputAttr) : Attribute())
      key.push_back(reinterpret_cast<uintptr_t>(input.getAsOpaquePointer()));
    ValueClass number = add(argument, key);
    if (seen.insert(number).second)
      first.push_back(argument);
    if (auto name = attrs ? attrs.get(graph::kStateAttr) : Attribute())
      state.try_emplace(name, number);
  }
}

// The operands of a pointwise call on optimizer state are gradients.
void Congruence::addGradients(func::FuncOp function) {
  llvm::BitVector moments(function.getNumArguments());
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (auto role =
            function.getArgAttrOfType<graph::RoleAttr>(i, graph::kRoleAttr))
      moments[i] = role.getValue() == graph::Role::optimizer;
  if (moments.none())
    return;
  Block *block = &function.getBody().front();
  auto isMoment = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == block &&
           moments[argument.getArgNumber()];
  };
  for (auto call : function.getOps<func::CallOp>()) {
    if (!factors.computes(call))
      continue;
    auto moment = llvm::find_if(call.getOperands(), isMoment);
    if (moment == call.getOperands().end())
      continue;
    ValueClass like = values.at(*moment);
    for (Value operand : call.getOperands())
      if (!isa<BlockArgument>(operand) && tensorType(operand).getRank() > 0)
        gradients[operand] = like;
  }
}

//===--- ops --------------------------------------------------------------===//

Congruence::Use Congruence::useOf(OpOperand &operand) const {
  Value value = operand.get();
  bool splat = isSplat(value);
  return {operand.getOperandNumber(), values.at(value), splat,
          splat && graph::isZero(value), value.hasOneUse()};
}

// Results of calls of one block are equivalent; those of other ops are if the
// ops are.
void Congruence::addResults(Operation *op, Step &step) {
  auto call = dyn_cast<func::CallOp>(op);
  bool ofBlock = call && !factors.computes(op);
  uint64_t maker = reinterpret_cast<uintptr_t>(
      ofBlock ? call.getCalleeAttr().getAsOpaquePointer() : step.op);
  for (OpResult result : op->getResults()) {
    auto gradient = gradients.find(result);
    bool settled = gradient != gradients.end();
    Key key{maker, result.getResultNumber(),
            settled ? 1 + uint64_t(gradient->second) : 0};
    ValueClass made = add(result, key);
    if (settled)
      settlements[made] = gradient->second;
    if (op == step.op)
      step.results.push_back(made);
  }
}

// A loop-carried value counts as often as the op that yields it.
static unsigned timesCarried(OpOperand &operand) {
  Operation *owner = operand.getOwner();
  unsigned i = operand.getOperandNumber();
  Value yielded;
  if (auto loop = dyn_cast<graph::LoopOp>(owner))
    yielded = loop.getYield()->getOperand(i);
  else if (isa<graph::YieldOp>(owner))
    yielded = operand.get();
  Operation *maker = yielded ? yielded.getDefiningOp() : nullptr;
  return maker ? graph::repeatCountOf(
                     maker->getDiscardableAttr(graph::kRepeatCountAttr))
               : 1;
}

void Congruence::addOp(Operation *op) {
  Block *block = op->getBlock();
  std::optional<unsigned> kind;
  Key key;
  Step step;
  step.op = op;
  if (factors.computes(op)) {
    factors.appendKey(op, key);
    // How a group_rows is sharded depends on its users.
    if (!factors.of(op).rule.numbersRows)
      kind = kinds.try_emplace(key, kinds.size()).first->second;
  } else if (auto call = dyn_cast<func::CallOp>(op)) {
    key.push_back(
        reinterpret_cast<uintptr_t>(call.getCalleeAttr().getAsOpaquePointer()));
  } else {
    key.push_back(reinterpret_cast<uintptr_t>(op));
  }
  if (factors.computes(op) && !kind)
    key.push_back(reinterpret_cast<uintptr_t>(op));
  key.push_back(reinterpret_cast<uintptr_t>(block));
  for (OpOperand &operand : op->getOpOperands()) {
    Use use = useOf(operand);
    use.count = timesCarried(operand);
    key.push_back(uint64_t(use.value) << 1 | use.hasOneUse);
    step.uses.push_back(use);
  }
  // Ops whose results take the placements of different states are not
  // equivalent.
  for (Value result : op->getResults()) {
    auto gradient = gradients.find(result);
    key.push_back(gradient == gradients.end() ? 0
                                              : 1 + uint64_t(gradient->second));
  }
  auto [known, isNew] = stepNumbers.try_emplace(key, steps.size());
  ops[op] = known->second;
  step.count =
      graph::repeatCountOf(op->getDiscardableAttr(graph::kRepeatCountAttr));
  if (!isNew) {
    steps[known->second].count += step.count;
    addResults(op, steps[known->second]);
    return;
  }
  blocks[block].push_back(steps.size());
  step.kind = kind;
  addResults(op, step);
  steps.push_back(std::move(step));
}

// Programs return all state in one op, with the placement in which a program
// takes it.
void Congruence::addReturn(func::ReturnOp ret) {
  auto function = cast<func::FuncOp>(ret->getParentOp());
  Step step;
  step.op = ret;
  Numbers seen;
  Key key;
  for (OpOperand &operand : ret->getOpOperands()) {
    unsigned i = operand.getOperandNumber();
    key.assign({values.at(operand.get()), operand.get().hasOneUse(),
                reinterpret_cast<uintptr_t>(
                    operand.get().getType().getAsOpaquePointer())});
    factors.appendKey(operand.get(), key);
    DictionaryAttr attrs = function.getResultAttrDict(i);
    appendPort(attrs, key);
    if (auto name = attrs ? attrs.get(graph::kStateAttr) : Attribute()) {
      auto argument = state.find(name);
      bool isTaken = argument != state.end();
      key.push_back(isTaken);
      key.push_back(
          isTaken ? argument->second
                  : reinterpret_cast<uintptr_t>(name.getAsOpaquePointer()));
    }
    unsigned times = graph::repeatCountOf(
        attrs ? attrs.get(graph::kRepeatCountAttr) : nullptr);
    auto [known, isNew] = seen.try_emplace(key, step.uses.size());
    if (isNew)
      step.uses.emplace_back(useOf(operand)).count = times;
    else
      step.uses[known->second].count += times;
    step.useOf.push_back(known->second);
  }
  ops[ret] = steps.size();
  blocks[ret->getBlock()].push_back(steps.size());
  steps.push_back(std::move(step));
}

void Congruence::addBlock(Block &block) {
  blocks.try_emplace(&block);
  for (Operation &op : block) {
    if (auto ret = dyn_cast<func::ReturnOp>(op)) {
      addReturn(ret);
      continue;
    }
    if (auto loop = dyn_cast<graph::LoopOp>(op)) {
      for (BlockArgument argument : loop.getBody().front().getArguments())
        values[argument] = fresh();
      addBlock(loop.getBody().front());
    }
    addOp(&op);
  }
}
