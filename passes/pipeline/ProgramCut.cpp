#include "passes/pipeline/ProgramCut.h"
#include "dialects/dist/DistOps.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::stages;

Values stages::inputsOf(Operation *op) {
  Values values(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), values);
  return values;
}

int ProgramCut::cellOf(Operation *op) const {
  auto cell = cells.find(op);
  return cell == cells.end() ? kFree : cell->second;
}

std::optional<unsigned> ProgramCut::sumOf(Operation *op) const {
  auto sum = sumByTerm.find(op);
  return sum == sumByTerm.end() ? std::nullopt : std::optional(sum->second);
}

LogicalResult ProgramCut::build() {
  users.assign(function.getNumArguments(), Ranks(schedule.ranks));
  if (failed(findBlocks()))
    return failure();
  if (!hasBlocks)
    return success();
  if (loop && failed(findSums()))
    return failure();
  if (failed(placeOps()))
    return failure();
  addUses();
  return success();
}

// All blocks are called in one loop over the schedule's microbatches, or all
// outside of loops and forward.
LogicalResult ProgramCut::findBlocks() {
  Block *where = nullptr;
  WalkResult walk = function.walk([&](func::CallOp call) {
    bool backward = call->hasAttr(dist::kBackwardStageAttr);
    if (!backward && !call->hasAttr(dist::kForwardStageAttr))
      return WalkResult::advance();
    if (where && where != call->getBlock()) {
      call.emitError("the blocks of @")
          << function.getName() << " are in several loops; a pipeline has one";
      return WalkResult::interrupt();
    }
    where = call->getBlock();
    loop = dyn_cast<graph::LoopOp>(call->getParentOp());
    if (backward && !loop) {
      call.emitError("goes backward outside of a loop over microbatches");
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  hasBlocks = where;
  if (loop && loop.getTrip() != static_cast<uint64_t>(schedule.microbatches))
    return loop.emitError("runs ")
           << loop.getTrip() << " microbatches, the schedule has "
           << schedule.microbatches;
  return success();
}

//===--- sums -------------------------------------------------------------===//

static bool isZero(Value value) {
  auto constant = value.getDefiningOp<graph::ConstantOp>();
  auto splat =
      constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : nullptr;
  if (!splat)
    return false;
  if (isa<FloatType>(splat.getElementType()))
    return splat.getSplatValue<APFloat>().isPosZero();
  return splat.getSplatValue<APInt>().isZero();
}

// From the carried value to the yielded one nothing happens but additions.
LogicalResult ProgramCut::findSums() {
  for (auto [i, carried, init, yielded] : llvm::enumerate(
           loop.getCarried(), loop.getInits(), loop.getYield().getValues())) {
    Sum &sum = sums.emplace_back();
    sum.ranks.resize(schedule.ranks);
    Value value = carried;
    while (value != yielded) {
      Operation *user = value.hasOneUse() ? *value.getUsers().begin() : nullptr;
      auto scatter = dyn_cast_or_null<graph::ScatterAddOp>(user);
      bool adds = isa_and_nonnull<graph::AddOp>(user) ||
                  (scatter && scatter.getBase() == value);
      if (!adds || user->getBlock() != &body())
        return loop.emitError("carries value ")
               << i << ", which is no sum over microbatches; a pipeline "
               << "carries nothing else from one to the next";
      sum.terms.push_back(user);
      sumByTerm[user] = static_cast<unsigned>(i);
      value = user->getResult(0);
    }
    if (!isZero(init))
      return loop.emitError("starts sum ") << i
                                           << " with something else than "
                                              "zeros";
  }
  return success();
}

//===--- cells ------------------------------------------------------------===//

FailureOr<int> ProgramCut::placeCall(Operation *op, int earliest) {
  auto number = [&](StringRef name) {
    auto attr = op->getAttrOfType<IntegerAttr>(name);
    return attr ? attr.getInt() : kFree;
  };
  int64_t forward = number(dist::kForwardStageAttr),
          backward = number(dist::kBackwardStageAttr),
          stage = std::max(forward, backward);
  if (stage == kFree)
    return earliest;
  if (stage >= stageCount)
    return op->emitError("is of stage ")
           << stage << ", the schedule has " << stageCount;
  int cell =
      static_cast<int>(forward != kFree ? forward : 2 * stageCount - 1 - stage);
  if (cell < earliest)
    return op->emitError("is ")
           << (forward != kFree ? "the forward" : "the backward")
           << " of stage " << stage << ", but needs what stage "
           << stageOf(earliest) << " computes after that";
  return cell;
}

LogicalResult ProgramCut::placeOps() {
  for (Operation &op : body().without_terminator()) {
    int earliest = kFree;
    std::optional<unsigned> sum = sumOf(&op);
    for (Value input : inputsOf(&op)) {
      Operation *def = input.getDefiningOp();
      if (def && def->getBlock() == &body() && !sumOf(def))
        earliest = std::max(earliest, cellOf(def));
    }
    FailureOr<int> cell = placeCall(&op, earliest);
    if (failed(cell))
      return failure();
    if (sum) {
      cell = std::max(*cell, 0);
      sums[*sum].ranks.set(rankOf(*cell));
    }
    if (*cell != kFree)
      cells[&op] = *cell;
  }
  return success();
}

//===--- what crosses -----------------------------------------------------===//

// Along the way of a microbatch: forward from stage to stage, and back.
void ProgramCut::route(Value value, int from, int to) {
  int a = stageOf(from), b = stageOf(to);
  if (schedule.rankOf(a) == schedule.rankOf(b))
    return;
  for (int s = a; s < b; ++s)
    toNext[s].insert(value);
  for (int s = a; s > b; --s)
    toPrevious[s].insert(value);
}

void ProgramCut::addUses() {
  for (Operation &op : body().without_terminator()) {
    int cell = cellOf(&op);
    if (cell == kFree)
      continue;
    for (Value input : inputsOf(&op)) {
      Operation *def = input.getDefiningOp();
      bool isHere = def && def->getBlock() == &body();
      if (isHere && sumOf(def))
        continue;
      if (isHere && cellOf(def) != kFree) {
        route(input, cellOf(def), cell);
        continue;
      }
      for (unsigned argument : argumentsOf(input).set_bits())
        users[argument].set(rankOf(cell));
    }
  }
}

const llvm::SmallBitVector &ProgramCut::argumentsOf(Value value) {
  if (auto known = arguments.find(value); known != arguments.end())
    return known->second;
  llvm::SmallBitVector found(function.getNumArguments());
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (argument.getOwner() == &function.getBody().front())
      found.set(argument.getArgNumber());
  } else {
    for (Value input : inputsOf(value.getDefiningOp()))
      found |= argumentsOf(input);
  }
  return arguments[value] = found;
}
