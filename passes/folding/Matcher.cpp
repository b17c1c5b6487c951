#include "passes/folding/Matcher.h"
#include "mlir/IR/OperationSupport.h"
#include "passes/folding/Extrapolate.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

// A value that a loop carries, inside.
static bool isCarried(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  return argument && argument.getArgNumber() > 0 &&
         isa<graph::LoopOp>(argument.getOwner()->getParentOp());
}

bool Matcher::differ(Operation *op, StringRef how) {
  llvm::raw_string_ostream out(reason);
  out << "'" << op->getName() << "' at " << op->getLoc() << " " << how;
  return false;
}

// But for what they read from outside.
static bool areAlike(Region &one, Region &other) {
  llvm::DenseMap<Value, Value> same;
  auto isSame = [&](Value value, Value with) {
    return success(one.isAncestor(value.getParentRegion())
                       ? same.lookup(value) == with
                       : !other.isAncestor(with.getParentRegion()));
  };
  return OperationEquivalence::isRegionEquivalentTo(
      &one, &other, isSame,
      [&](Value value, Value with) { same[value] = with; },
      OperationEquivalence::IgnoreLocations);
}

// Clusters and loops.
static bool haveEqualRegions(Operation *one, Operation *other) {
  return one->getNumRegions() == other->getNumRegions() &&
         llvm::all_of(llvm::zip(one->getRegions(), other->getRegions()),
                      [](auto pair) {
                        return areAlike(std::get<0>(pair), std::get<1>(pair));
                      });
}

//===--- taking ---------------------------------------------------------===//

void Matcher::placeArguments(func::FuncOp function) {
  units.slots = units.arguments[1].size();
  units.positionsOfOthers.reserve(units.slots * last());
  for (unsigned unit = 1; unit <= last(); ++unit)
    for (unsigned slot = 0; slot < units.arguments[unit].size(); ++slot) {
      unsigned i = units.arguments[unit][slot];
      units.place(function.getArgument(i), {unit, slot});
    }
}

// Attributes that grow from unit to unit say by how much in the first two of
// the middle.
bool Matcher::isAlike(unsigned number, Operation *op, unsigned unit) {
  Operation *one = units.ops[1][number];
  Operation *two = unit == 2 ? op : units.ops[2][number];
  if (op->getName() != one->getName() ||
      op->getNumOperands() != one->getNumOperands() ||
      op->getResultTypes() != one->getResultTypes() ||
      !haveEqualRegions(one, op))
    return false;
  if (unit == 2)
    areEqual.push_back(haveEqualAttributes(one, two));
  if (areEqual[number])
    return unit == 2 || haveEqualAttributes(one, op);
  return extrapolate(one->getAttrDictionary(), two->getAttrDictionary(),
                     numbers[unit] - numbers[1]) == op->getAttrDictionary();
}

// Gives positions to what an op makes. What it reads of what loops carry is
// thereby the unit's, as it is for the unit before.
void Matcher::take(unsigned number, unsigned unit) {
  bool isFirst = unit == 1;
  unsigned near = isFirst ? unit : unit - 1;
  Operation *op = units.ops[unit][number], *like = units.ops[near][number];
  for (auto [read, other] : llvm::zip(readsOf(op), readsOf(like))) {
    Value value = read->get();
    if (isCarried(value) && owners.of(value) == int(unit) &&
        !units.placeOf(value)) {
      auto place = units.placeOf(other->get());
      if (isFirst)
        units.place(value, {unit, units.slots++});
      else if (place && place->unit == near)
        units.place(value, {unit, place->slot});
    }
  }
  if (isFirst) {
    slotsOfResults.push_back(units.slots);
    units.slots += op->getNumResults();
  }
  unsigned slot = slotsOfResults[number];
  units.positionsOfOps[op] = {unit, slot};
  for (Value result : op->getResults())
    units.setValue(result, {unit, slot++});
}

bool Matcher::takeMiddle() {
  size_t count = units.ops[1].size();
  units.positionsOfOps.reserve(count * last());
  for (unsigned unit = 1; unit <= last(); ++unit) {
    ArrayRef<Operation *> own = units.ops[unit];
    for (unsigned number = 0; number < own.size(); ++number) {
      if (number >= count || (unit > 1 && !isAlike(number, own[number], unit)))
        return differ(own[number],
                      "is not in each of the layers, or not the same");
      take(number, unit);
    }
    if (own.size() != count)
      return differ(units.ops[1].back(), "is not in each of the layers");
  }
  return true;
}

// Results of loops, once what is yielded for them is known.
bool Matcher::placeCarried(graph::LoopOp loop) {
  llvm::DenseMap<unsigned, unsigned> slotOf; ///< by slot of what is yielded
  llvm::DenseSet<std::pair<unsigned, unsigned>> seen;
  for (auto [yielded, result] :
       llvm::zip(loop.getYield().getValues(), loop.getResults())) {
    auto place = units.placeOf(yielded);
    if (!place)
      continue;
    if (!seen.insert({place->unit, place->slot}).second)
      return differ(loop, "carries a value twice");
    auto [slot, isNew] = slotOf.try_emplace(place->slot, units.slots);
    units.slots += isNew;
    units.place(result, {place->unit, slot->second});
  }
  return true;
}

//===--- proving --------------------------------------------------------===//

// Whether an operand of a unit corresponds to `other` in the next unit: the
// same value; a value of its own unit; or one of the neighbor. The first and
// the last unit may read any value before and after all units.
bool Matcher::correspond(Value one, std::optional<Place> place, Value other,
                         std::optional<Place> next, unsigned unit) {
  if (one == other)
    return !place;
  if (place && next) {
    if (place->slot != next->slot || place->unit + 1 != next->unit)
      return false;
    if (next->unit == unit)
      fromBefore.insert(place->slot);
    else if (place->unit == unit + 1)
      fromAfter.insert(place->slot);
    else
      return place->unit == unit;
    return true;
  }
  if (next && unit == 1 && next->unit == 1)
    return fromBefore.insert(next->slot), true;
  if (place && unit + 1 == last() && place->unit == last())
    return fromAfter.insert(place->slot), true;
  return false;
}

// Op by op through all units, so that each operand is looked up once.
bool Matcher::verifyOps() {
  SmallVector<std::optional<Place>> positions;
  for (auto [number, first] : llvm::enumerate(units.ops[1])) {
    Operation *op = first;
    positions.clear();
    SmallVector<OpOperand *> reads = readsOf(op);
    for (OpOperand *read : reads)
      positions.push_back(units.placeOf(read->get()));
    for (unsigned unit = 1; unit < last(); ++unit) {
      Operation *next = units.ops[unit + 1][number];
      if (op->getBlock() != next->getBlock())
        return differ(next, "is not where those of other layers are");
      SmallVector<OpOperand *> following = readsOf(next);
      for (auto [one, other, place] : llvm::zip(reads, following, positions)) {
        auto placeOfNext = units.placeOf(other->get());
        if (!correspond(one->get(), place, other->get(), placeOfNext, unit))
          return differ(next, "does not read what those of other layers do");
        place = placeOfNext;
      }
      op = next;
      reads = std::move(following);
    }
  }
  return true;
}

bool Matcher::verifyCarried(graph::LoopOp loop) {
  llvm::DenseMap<unsigned, SmallVector<int>> bySlot; ///< position by unit
  for (auto [i, result] : llvm::enumerate(loop.getResults())) {
    if (auto place = units.placeOf(result)) {
      SmallVector<int> &positions = bySlot[place->slot];
      positions.resize(units.count(), -1);
      positions[place->unit] = i;
    }
  }
  for (auto &[slot, positions] : bySlot)
    for (unsigned unit = 1; unit < last(); ++unit) {
      int one = positions[unit], other = positions[unit + 1];
      if (one < 0 || other < 0)
        return differ(loop, "does not carry the same for each of the layers");
      auto place = units.placeOf(loop.getCarried()[one]),
           next = units.placeOf(loop.getCarried()[other]);
      // What nothing of the unit reads, nothing else may.
      bool isUnread = loop.getCarried()[one].use_empty() &&
                      loop.getCarried()[other].use_empty();
      bool isSame = place.has_value() == next.has_value() &&
                    (place ? (place->slot == next->slot &&
                              place->unit == unit && next->unit == unit + 1)
                           : isUnread);
      if (!isSame ||
          !correspond(loop.getInits()[one], loop.getInits()[other], unit))
        return differ(loop, "does not carry the same for each of the layers");
    }
  return true;
}

bool Matcher::verifyResults(func::FuncOp function) {
  Operation *ret = function.getBody().front().getTerminator();
  for (unsigned unit = 1; unit < last(); ++unit)
    for (auto [i, other] :
         llvm::zip(units.results[unit], units.results[unit + 1]))
      if (!correspond(ret->getOperand(i), ret->getOperand(other), unit))
        return differ(ret, "does not return the same for each of the layers");
  return true;
}

// Whether what belongs to no unit may read a value: something of no unit; of
// the last one what each hands on to the next, or of the first one to that
// before.
bool Matcher::isChained(Value value) const {
  auto place = units.placeOf(value);
  return !place ||
         (place->unit == last() && fromBefore.contains(place->slot)) ||
         (place->unit == 1 && fromAfter.contains(place->slot));
}

// Whether an op reads corresponding values of all units in order; those of a
// unit that represents others are repeated.
bool Matcher::collects(Operation *op) {
  auto placeAt = [&](size_t i) {
    return i < op->getNumOperands() ? units.placeOf(op->getOperand(i))
                                    : std::nullopt;
  };
  auto isOf = [&](size_t i, unsigned unit) {
    auto place = placeAt(i);
    return place && place->unit == unit;
  };
  size_t begin = 0, size = 0;
  while (begin < op->getNumOperands() && !placeAt(begin))
    ++begin;
  while (isOf(begin + size, 1))
    ++size;
  // Neither the first of all units nor the last one is in the middle.
  size_t middle = repetition.units - 2, end = begin + middle * size;
  if (size == 0 || end > op->getNumOperands())
    return false;
  for (size_t i = 0; i < op->getNumOperands(); ++i) {
    if (i < begin || i >= end) {
      if (placeAt(i))
        return false;
      continue;
    }
    unsigned unit = std::min<size_t>(1 + (i - begin) / size, last());
    if (!isOf(i, unit) ||
        placeAt(i)->slot != placeAt(begin + (i - begin) % size)->slot)
      return false;
  }
  units.collectors.push_back(
      {op, static_cast<unsigned>(begin + size), static_cast<unsigned>(size)});
  return true;
}

// Verifies ops outside all units, and other results of loops and programs.
bool Matcher::verifyOthers(func::FuncOp function) {
  llvm::BitVector resultsOfUnits(function.getNumResults());
  for (unsigned unit = 1; unit <= last(); ++unit)
    for (unsigned i : units.results[unit])
      resultsOfUnits.set(i);
  auto leaves = [&](OpOperand &operand) {
    auto place = units.placeOf(operand.get());
    if (place && place->unit == last())
      units.leaving.push_back(&operand);
    return isChained(operand.get());
  };
  WalkResult result = function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (units.contains(op))
      return WalkResult::skip();
    if (isa<graph::YieldOp>(op) && isa<graph::LoopOp>(op->getParentOp()))
      return WalkResult::advance();
    auto loop = dyn_cast<graph::LoopOp>(op);
    auto isOfUnit = [&](unsigned i) {
      return loop ? units.placeOf(loop.getResult(i)).has_value()
                  : isa<func::ReturnOp>(op) && resultsOfUnits.test(i);
    };
    size_t before = units.leaving.size();
    for (OpOperand &operand : op->getOpOperands()) {
      if (!units.placeOf(operand.get()))
        continue;
      if (isOfUnit(operand.getOperandNumber()) || leaves(operand))
        continue;
      units.leaving.resize(before);
      if (!isa<graph::LoopOp, func::ReturnOp>(op) && collects(op))
        return WalkResult::advance();
      differ(op, "reads something of one layer");
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return !result.wasInterrupted();
}

bool Matcher::run(func::FuncOp function) {
  units.loops.assign(owners.loops().begin(), owners.loops().end());
  placeArguments(function);
  units.ops = owners.opsOf(units.count());
  units.ops.front().clear();
  units.ops.back().clear();
  if (!takeMiddle())
    return false;
  for (graph::LoopOp loop : units.loops)
    if (!placeCarried(loop))
      return false;
  if (!verifyOps() || !verifyResults(function))
    return false;
  for (graph::LoopOp loop : units.loops)
    if (!verifyCarried(loop))
      return false;
  return verifyOthers(function);
}
