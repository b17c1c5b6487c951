#include "passes/stages/LoopCut.h"
#include "dialects/dist/DistOps.h"
#include "dialects/graph/Constants.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::stages;

Values stages::inputsOf(Operation *op) {
  Values values(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), values);
  return values;
}

int LoopCut::cellOf(Operation *op) const {
  auto cell = cells.find(op);
  return cell == cells.end() ? kFree : cell->second;
}

std::optional<unsigned> LoopCut::sumOf(Operation *op) const {
  auto sum = sumByTerm.find(op);
  return sum == sumByTerm.end() ? std::nullopt : std::optional(sum->second);
}

int LoopCut::cellOn(int rank, Operation *op) const {
  std::optional<unsigned> sum = sumOf(op);
  if (!sum || !sums[*sum].isFree)
    return cellOf(op);
  return static_cast<int>(llvm::find(schedule.placement, rank) -
                          schedule.placement.begin());
}

static bool halvesBackwards(const pipeline::Schedule &schedule) {
  for (const pipeline::InstructionList &list : schedule.lists)
    for (const pipeline::Instruction &each : list)
      if (each.op == pipeline::Op::BackwardWeight)
        return true;
  return false;
}

LoopCut::LoopCut(Block &body, pipeline::Schedule lowered)
    : schedule(std::move(lowered)), stageCount(schedule.stages),
      loop(dyn_cast<graph::LoopOp>(body.getParentOp())), toNext(stageCount),
      toPrevious(stageCount), block(&body) {}

LogicalResult LoopCut::build() {
  if (loop && loop.getTrip() != static_cast<uint64_t>(schedule.microbatches))
    return loop.emitError("runs ")
           << loop.getTrip() << " microbatches, but the schedule has "
           << schedule.microbatches;
  isHalved = loop && halvesBackwards(schedule);
  if (isHalved)
    inlineBackwards();
  if (loop && failed(findSums()))
    return failure();
  if (failed(placeOps()))
    return failure();
  addUses();
  if (isHalved)
    halveBackwards();
  return success();
}

//===--- sums -------------------------------------------------------------===//

// The additions from the carried value to the yielded one, if all ops between
// are additions.
SmallVector<Operation *> LoopCut::additionsTo(unsigned i) {
  Value value = loop.getCarried()[i], last = loop.getYield().getValues()[i];
  SmallVector<Operation *> additions;
  while (value != last) {
    Operation *user = value.hasOneUse() ? *value.getUsers().begin() : nullptr;
    auto scatter = dyn_cast_or_null<graph::ScatterAddOp>(user);
    bool adds = isa_and_nonnull<graph::AddOp>(user) ||
                (scatter && scatter.getBase() == value);
    if (!adds || user->getBlock() != &body())
      return {};
    additions.push_back(user);
    value = user->getResult(0);
  }
  return additions;
}

// All ops that depend on the carried value. With ZeRO 2 a sum may be sharded
// differently from its terms, so these need not be additions.
SmallVector<Operation *> LoopCut::usersOf(unsigned i) {
  SmallVector<Operation *> users;
  llvm::DenseSet<Value> made{loop.getCarried()[i]};
  for (Operation &op : body().without_terminator())
    if (llvm::any_of(inputsOf(&op),
                     [&](Value input) { return made.contains(input); })) {
      users.push_back(&op);
      made.insert(op.result_begin(), op.result_end());
    }
  Value last = loop.getYield().getValues()[i];
  auto isRead = [&](OpOperand &use) {
    return isa<graph::YieldOp>(use.getOwner()) &&
           (use.get() != last || use.getOperandNumber() != i);
  };
  bool leaks = llvm::any_of(
      made, [&](Value value) { return llvm::any_of(value.getUses(), isRead); });
  return leaks || !made.contains(last) ? SmallVector<Operation *>() : users;
}

LogicalResult LoopCut::findSums() {
  for (unsigned i = 0; i < loop.getInits().size(); ++i) {
    Sum &sum = sums.emplace_back();
    sum.ranks.resize(schedule.ranks);
    if (loop.getYield().getValues()[i] == loop.getCarried()[i])
      continue;
    sum.terms = additionsTo(i);
    sum.isWhole = sum.terms.empty();
    if (sum.isWhole)
      sum.terms = usersOf(i);
    bool isOwn = llvm::none_of(
        sum.terms, [&](Operation *op) { return sumByTerm.contains(op); });
    if (sum.terms.empty() || !isOwn || !graph::isZero(loop.getInits()[i]))
      return loop.emitError("carries value ")
             << i << ", which is not a sum over microbatches; a pipeline "
             << "cannot carry other values from one to the next";
    for (Operation *op : sum.terms)
      sumByTerm[op] = i;
  }
  return success();
}

//===--- cells ------------------------------------------------------------===//

FailureOr<int> LoopCut::placeCall(Operation *op, int earliest) {
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
           << stage << ", but the schedule has " << stageCount;
  if (backward != kFree && schedule.forwardOnly)
    return op->emitError("is a backward in a loop whose schedule has only "
                         "forwards");
  int cell =
      static_cast<int>(forward != kFree ? forward : 2 * stageCount - 1 - stage);
  if (cell < earliest)
    return op->emitError("is ")
           << (forward != kFree ? "the forward" : "the backward")
           << " of stage " << stage << ", but needs a value that stage "
           << stageOf(earliest) << " computes after that";
  return cell;
}

int LoopCut::earliestOf(Operation *op) const {
  int earliest = kFree;
  for (Value input : inputsOf(op)) {
    Operation *def = input.getDefiningOp();
    if (def && def->getBlock() == &body() && !sumOf(def))
      earliest = std::max(earliest, cellOf(def));
  }
  return earliest;
}

LogicalResult LoopCut::placeOps() {
  for (Operation &op : body().without_terminator()) {
    if (sumOf(&op))
      continue;
    FailureOr<int> cell = placeCall(&op, earliestOf(&op));
    if (failed(cell))
      return failure();
    if (*cell != kFree)
      cells[&op] = *cell;
  }
  placeSums();
  return success();
}

// Each addition is in the cell of its term.
void LoopCut::placeSums() {
  for (Sum &sum : sums) {
    int last = 0;
    sum.isFree = !sum.terms.empty() && llvm::all_of(sum.terms, [&](auto *op) {
      return earliestOf(op) == kFree;
    });
    for (Operation *op : sum.terms) {
      cells[op] = std::max(earliestOf(op), 0);
      last = std::max(last, cells[op]);
    }
    for (Operation *op : sum.terms) {
      if (sum.isWhole)
        cells[op] = last;
      sum.ranks.set(rankOf(cells[op]));
    }
    if (sum.isFree)
      sum.ranks.set();
  }
}

//===--- values that cross stages -----------------------------------------===//

// Sends a value along the stages of its microbatch, forward and back.
void LoopCut::route(Value value, int from, int to) {
  int a = stageOf(from), b = stageOf(to);
  if (schedule.rankOf(a) == schedule.rankOf(b))
    return;
  for (int s = a; s < b; ++s)
    toNext[s].insert(value);
  for (int s = a; s > b; --s)
    toPrevious[s].insert(value);
}

void LoopCut::addUses() {
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
      std::optional<unsigned> sum = sumOf(&op);
      for (Value value : outsideOf(input)) {
        Ranks &ranks =
            users.insert({value, Ranks(schedule.ranks)}).first->second;
        if (sum && sums[*sum].isFree)
          ranks.set();
        else
          ranks.set(rankOf(cell));
      }
    }
  }
}

// The body's own arguments are an index and sums.
const Values &LoopCut::outsideOf(Value value) {
  if (auto known = outside.find(value); known != outside.end())
    return known->second;
  Values found;
  Operation *def = value.getDefiningOp();
  if (isa<BlockArgument>(value) ? !isOfMicrobatch(value)
                                : def->getBlock() != block)
    found.insert(value);
  else if (def)
    for (Value input : inputsOf(def)) {
      const Values &more = outsideOf(input);
      found.insert(more.begin(), more.end());
    }
  return outside[value] = std::move(found);
}

//===--- halves of backwards ----------------------------------------------===//

// A call returns all gradients at once; its inlined ops do not.
void LoopCut::inlineBackwards() {
  SmallVector<func::CallOp> calls;
  for (auto call : body().getOps<func::CallOp>())
    if (call->hasAttr(dist::kBackwardStageAttr))
      calls.push_back(call);
  SymbolTableCollection symbols;
  for (func::CallOp call : calls) {
    auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(
        call, call.getCalleeAttr());
    Block &block = callee.getBody().front();
    IRMapping map;
    map.map(block.getArguments(), call.getOperands());
    OpBuilder builder(call);
    for (Operation &op : block.without_terminator()) {
      Operation *copy = builder.clone(op, map);
      for (StringRef name : {dist::kBackwardStageAttr, graph::kLayerAttr})
        if (Attribute mark = call->getAttr(name))
          copy->setAttr(name, mark);
    }
    for (auto [result, value] :
         llvm::zip(call.getResults(), block.getTerminator()->getOperands()))
      result.replaceAllUsesWith(map.lookup(value));
    call.erase();
  }
}

// Backward from what other cells read.
void LoopCut::halveBackwards() {
  for (Operation &op : llvm::reverse(body().without_terminator())) {
    int cell = cellOf(&op);
    if (cell < stageCount || sumOf(&op))
      continue;
    bool isRead = llvm::any_of(op.getUsers(), [&](Operation *user) {
      Operation *here = body().findAncestorOpInBlock(*user);
      return !sumOf(here) && (cellOf(here) != cell || forInputs.contains(here));
    });
    if (isRead)
      forInputs.insert(&op);
  }
  for (const Sum &sum : sums)
    addEarly(sum);
}

// A term that I computes anyway is added there, or it would be kept until W. A
// loop for further rows of experts, for example, computes the gradients of
// inputs and of weights. All terms of a cell stay in one half, and in order.
void LoopCut::addEarly(const Sum &sum) {
  auto isReady = [&](Operation *op) {
    return llvm::all_of(inputsOf(op), [&](Value input) {
      Operation *def = input.getDefiningOp();
      bool isHere = def && def->getBlock() == &body();
      return !isHere || sumOf(def) || cellOf(def) != cellOf(op) ||
             forInputs.contains(def);
    });
  };
  llvm::DenseMap<int, bool> ready; // by cell
  for (Operation *op : sum.terms)
    ready.try_emplace(cellOf(op), true).first->second &= isReady(op);
  for (Operation *op : sum.terms)
    if (cellOf(op) >= stageCount && ready.lookup(cellOf(op)))
      forInputs.insert(op);
}

//===--- FLOPs ------------------------------------------------------------===//

int64_t stages::flopsOf(Operation *root, SymbolTableCollection &symbols) {
  int64_t flops = 0;
  root->walk([&](Operation *op) {
    if (auto costed = dyn_cast<graph::Costed>(op))
      flops += costed.getFlops();
    else if (auto call = dyn_cast<func::CallOp>(op))
      flops += flopsOf(symbols.lookupNearestSymbolFrom<func::FuncOp>(
                           call, call.getCalleeAttr()),
                       symbols);
  });
  return flops;
}

LoopCut::Work LoopCut::workOfStages() const {
  Work work;
  for (auto *list : {&work.forward, &work.backward, &work.weights})
    list->assign(stageCount, 0);
  SymbolTableCollection symbols;
  for (Operation &op : body().without_terminator()) {
    int cell = cellOf(&op);
    if (cell == kFree)
      continue;
    int64_t flops = flopsOf(&op, symbols);
    bool forward = cell < stageCount;
    (forward ? work.forward : work.backward)[stageOf(cell)] += flops;
    if (!forward && isHalved && isForWeights(&op))
      work.weights[stageOf(cell)] += flops;
  }
  return work;
}
