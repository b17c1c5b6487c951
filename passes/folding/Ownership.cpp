#include "passes/folding/Ownership.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

Ownership::Ownership(func::FuncOp function, const Ports &ports,
                     ArrayRef<int> unitsOfArguments, ArrayRef<int> results,
                     const Repetition &repetition, ArrayRef<int64_t> numbers)
    : repetition(repetition), numbers(numbers),
      entry(&function.getBody().front()) {
  owners.reserve(entry->getOperations().size());
  arguments.reserve(unitsOfArguments.size());
  auto input = StringAttr::get(function.getContext(), graph::kInputAttr);
  for (auto [port, unit] : llvm::zip(ports.arguments, unitsOfArguments)) {
    bool isInput = port.attrs && port.attrs.contains(input);
    arguments.push_back({unit, /*isState=*/!isInput});
  }
  own(*entry);
  ownUnread(results);
}

Ownership::Owner Ownership::ownerOf(Value value) const {
  if (Operation *op = value.getDefiningOp()) {
    if (auto owner = owners.find(op); owner != owners.end())
      return owner->second;
  } else if (auto argument = cast<BlockArgument>(value);
             argument.getOwner() == entry) {
    return arguments[argument.getArgNumber()];
  }
  return carried.lookup(value);
}

// What reads as many layers is a table of all of them.
static constexpr unsigned kCollects = 3;

// What reads weights belongs to the layer of most of them, whatever it is
// given of other layers. Anything else belongs to the layer of most operands;
// of two to the later one, which makes a link of a sum over layers that of the
// layer that is added.
Ownership::Owner Ownership::vote(Operation *op) const {
  struct Votes {
    int unit;
    unsigned ofState = 0, all = 0;
  };
  SmallVector<Votes, 4> votes;
  bool isState = true;
  for (Value operand : op->getOperands()) {
    Owner owner = ownerOf(operand);
    isState &= owner.isState;
    if (owner.unit == kNone)
      continue;
    auto known = llvm::find_if(
        votes, [&](const Votes &own) { return own.unit == owner.unit; });
    if (known == votes.end())
      known = &votes.emplace_back(Votes{owner.unit});
    known->ofState += owner.isState;
    ++known->all;
  }
  auto isOfUnit = [](const Votes &own) { return own.unit >= 0; };
  auto readsState = [](const Votes &own) { return own.ofState > 0; };
  if (llvm::count_if(votes, isOfUnit) >= kCollects &&
      llvm::none_of(votes, readsState))
    return {kOuter, /*isState=*/false};
  auto weight = [](const Votes &own) {
    return std::tuple(own.ofState, own.all, own.unit);
  };
  auto best = llvm::max_element(votes, [&](const Votes &a, const Votes &b) {
    return weight(a) < weight(b);
  });
  return {best == votes.end() ? kNone : best->unit, isState};
}

// Whether ops that read it read state of two other units too, as updates of all
// layers read the norm of all gradients: then it belongs to none.
bool Ownership::isOfAll(Operation *op, int unit) const {
  int other = kNone;
  for (Operation *user : op->getUsers()) {
    if (isa<graph::LoopOp>(user) || user->hasTrait<OpTrait::IsTerminator>())
      continue;
    for (Value operand : user->getOperands()) {
      auto argument = dyn_cast<BlockArgument>(operand);
      if (!argument || argument.getOwner() != entry)
        continue;
      int owner = arguments[argument.getArgNumber()].unit;
      if (owner < 0 || owner == unit || owner == other)
        continue;
      if (other != kNone)
        return true;
      other = owner;
    }
  }
  return false;
}

// A loop-carried value belongs to the unit of the value that is yielded for it.
void Ownership::ownCarried(graph::LoopOp loop) {
  allLoops.push_back(loop);
  for (auto [yielded, inside, result] : llvm::zip(
           loop.getYield().getValues(), loop.getCarried(), loop.getResults())) {
    int unit = of(yielded);
    if (unit != kNone)
      carried[inside] = carried[result] = {unit, /*isState=*/false};
  }
}

void Ownership::own(Block &block) {
  for (Operation &op : block) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      continue;
    // A loop of a layer is one of its ops.
    if (auto loop = dyn_cast<graph::LoopOp>(op);
        loop && !loop->hasAttr(graph::kLayerAttr)) {
      for (BlockArgument argument : loop.getBody().getArguments())
        carried[argument] = {kNone, /*isState=*/false};
      own(loop.getBody().front());
      ownCarried(loop);
      continue;
    }
    Owner owner = vote(&op);
    if (auto layer = op.getAttrOfType<graph::LayerAttr>(graph::kLayerAttr))
      owner.unit = repetition.unitOf(layer, numbers);
    // Also of a kernel that has an op of the last layer, such as that which
    // takes the root of a sum over layers.
    if (owner.unit >= 0 && isOfAll(&op, owner.unit))
      owner.unit = kOuter;
    owners[&op] = owner;
    ops.emplace_back(&op, owner.unit);
  }
}

// What is made of nothing of a layer is the layer's if only it reads it, such
// as a seed, an initial value, or a row of a table.
void Ownership::ownUnread(ArrayRef<int> results) {
  for (auto &[op, unit] : llvm::reverse(ops)) {
    if (unit >= 0)
      continue;
    std::optional<int> only;
    for (OpOperand &use : op->getUses()) {
      int reader = kNone;
      Operation *user = use.getOwner();
      while (owners.contains(user->getParentOp()))
        user = user->getParentOp();
      if (isa<func::ReturnOp>(user))
        reader = results[use.getOperandNumber()];
      else if (user->getNumResults() > 0)
        reader = of(user->getResult(0));
      if (reader < 0 || (only && *only != reader)) {
        only.reset();
        break;
      }
      only = reader;
    }
    if (only)
      owners[op] = {unit = *only};
  }
}

std::vector<std::vector<Operation *>> Ownership::opsOf(unsigned count) const {
  std::vector<std::vector<Operation *>> lists(count);
  for (std::vector<Operation *> &list : lists)
    list.reserve(ops.size() / count);
  for (auto [op, unit] : ops)
    if (unit >= 0)
      lists[unit].push_back(op);
  return lists;
}
