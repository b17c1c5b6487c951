#include "passes/stages/StageEmitter.h"
#include "dialects/dist/PairAttr.h"
#include "dialects/graph/Constants.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::stages;
using graph::tensorType;

StageEmitter::StageEmitter(ProgramCut &cut, const ResultLocations &locations,
                           const RankView &view)
    : cut(cut), locations(locations), view(view), b(cut.function.getContext()),
      e(b, cut.function.getLoc()), body(new Block) {}

LogicalResult StageEmitter::run() {
  addArguments();
  b.setInsertionPointToStart(body);
  if ((part = cut.whole()) && failed(emitWhole()))
    return failure();
  return failed(emitResults()) ? failure() : emitReturn();
}

//===--- arguments and results --------------------------------------------===//

// All ranks have all inputs and outputs, and the state of their stages.
bool StageEmitter::keepsState(DictionaryAttr attrs) const {
  auto name = attrs ? attrs.getAs<StringAttr>(graph::kStateAttr) : StringAttr();
  return !name || view.state.lookup(name.getValue()).test(view.rank);
}

void StageEmitter::addArguments() {
  for (BlockArgument argument : cut.function.getArguments())
    if (keepsState(cut.function.getArgAttrDict(argument.getArgNumber())))
      step[argument] = body->addArgument(argument.getType(), argument.getLoc());
}

LogicalResult StageEmitter::emitReturn() {
  func::FuncOp function = cut.function;
  Block &old = function.getBody().front();
  llvm::BitVector arguments(function.getNumArguments()),
      results(function.getNumResults());
  SmallVector<Value> values;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    arguments[i] = !keepsState(function.getArgAttrDict(i));
  for (auto [i, value] : llvm::enumerate(old.getTerminator()->getOperands())) {
    results[i] = !keepsState(function.getResultAttrDict(i));
    if (results[i])
      continue;
    values.push_back(get(value, -1));
    if (!values.back())
      return failure();
  }
  b.create<func::ReturnOp>(old.getTerminator()->getLoc(), values);
  SmallVector<Attribute> argumentAttrs, resultAttrs;
  auto orEmpty = [&](DictionaryAttr attrs) {
    return attrs ? attrs : b.getDictionaryAttr({});
  };
  for (unsigned i = 0; i < arguments.size(); ++i)
    if (!arguments[i])
      argumentAttrs.push_back(orEmpty(function.getArgAttrDict(i)));
  for (unsigned i = 0; i < results.size(); ++i)
    if (!results[i])
      resultAttrs.push_back(orEmpty(function.getResultAttrDict(i)));
  old.dropAllReferences();
  old.dropAllDefinedValueUses();
  old.erase();
  function.getBody().push_back(body);
  function.setFunctionType(FunctionType::get(
      b.getContext(), body->getArgumentTypes(), ValueRange(values).getTypes()));
  function.setArgAttrsAttr(b.getArrayAttr(argumentAttrs));
  function.setResAttrsAttr(b.getArrayAttr(resultAttrs));
  return success();
}

//===--- values -----------------------------------------------------------===//

StageEmitter::Map &StageEmitter::mapOf(Value value, int microbatch) {
  return part && part->isOfMicrobatch(value) ? microbatches[microbatch] : step;
}

// The result of a loop to which no stage adds: its initial value.
Value StageEmitter::initOf(Value value) const {
  const LoopCut *loop = cut.loopOf(value.getDefiningOp());
  if (!loop)
    return {};
  unsigned number = cast<OpResult>(value).getResultNumber();
  graph::LoopOp op = loop->loop;
  return loop->sums[number].ranks.none() ? op.getInits()[number] : Value();
}

// Free values are emitted at their first use.
Value StageEmitter::get(Value value, int microbatch) {
  Map &map = mapOf(value, microbatch);
  if (auto known = map.find(value); known != map.end())
    return known->second;
  if (steadyLoop)
    if (Value known = getInLoop(value, microbatch))
      return known;
  if (part && part->loop && value == part->loop.getInduction())
    return map[value] = e.splat(microbatch, tensorType(value));
  if (Value init = initOf(value)) {
    Value own = get(init, microbatch);
    return step[value] = own;
  }
  Operation *def = value.getDefiningOp();
  bool isFree =
      def && !locations.placeOf(def) &&
      !(part && (part->cellOf(def) != LoopCut::kFree || part->sumOf(def)));
  if (!isFree) {
    emitError(value.getLoc()) << "is needed on rank " << view.rank
                              << " of the pipeline, but is on other ranks";
    return {};
  }
  return clone(def, microbatch) ? map.lookup(value) : Value();
}

Operation *StageEmitter::clone(Operation *op, int microbatch, Value replaced,
                               Value by) {
  IRMapping map;
  for (Value input : inputsOf(op)) {
    Value value = input == replaced ? by : get(input, microbatch);
    if (!value)
      return nullptr;
    map.map(input, value);
  }
  if (auto slice = dyn_cast<graph::DynamicSliceOp>(op);
      slice && part && part->loop &&
      slice.getIndex() == part->loop.getInduction())
    return sliceAt(slice, map.lookup(slice.getInput()), microbatch);
  Operation *copy = b.clone(*op, map);
  // Equal ops of two loops must not be merged: their results would be kept for
  // all microbatches.
  bool isBefore = part && part->schedule.forwardOnly && cut.loops.size() > 1;
  if (isBefore && microbatch >= 0 && isPure(copy) && !isa<func::CallOp>(copy))
    copy->setAttr(dist::kCountsBeforeAttr, b.getUnitAttr());
  if (pairMark && (part->cellOf(op) != LoopCut::kFree || part->sumOf(op)))
    copy->setAttr(dist::kPairAttr, pairMark);
  copy->removeAttr(dist::kForwardStageAttr);
  copy->removeAttr(dist::kBackwardStageAttr);
  for (auto [from, to] : llvm::zip(op->getResults(), copy->getResults()))
    mapOf(from, microbatch)[from] = to;
  return copy;
}

// The index is a constant, except in a steady state.
Operation *StageEmitter::sliceAt(graph::DynamicSliceOp op, Value input,
                                 int microbatch) {
  SmallVector<int64_t> start(tensorType(input).getRank(), 0),
      shape(tensorType(input).getShape());
  start[0] = microbatch;
  shape[0] = 1;
  Value row =
      steadyLoop ? rowInLoop(input, microbatch) : e.slice(input, start, shape);
  Value slice = e.reshape(row, tensorType(op.getResult()).getShape());
  mapOf(op.getResult(), microbatch)[op.getResult()] = slice;
  return slice.getDefiningOp();
}

ArrayAttr StageEmitter::axes() {
  return b.getArrayAttr(
      dist::AxisRefAttr::get(b.getContext(), dist::kPipeAxis, 1, 0));
}

FlatSymbolRefAttr StageEmitter::meshName() {
  return FlatSymbolRefAttr::get(view.mesh.getSymNameAttr());
}

Value StageEmitter::permute(Value value, ArrayRef<int64_t> targets) {
  return b.create<dist::PermuteOp>(value.getLoc(), value.getType(), value,
                                   meshName(), axes(),
                                   b.getDenseI64ArrayAttr(targets));
}

Value StageEmitter::addOverRanks(Value part) {
  return b.create<dist::AllReduceOp>(
      part.getLoc(), part.getType(), part, meshName(), axes(),
      dist::ReduceKindAttr::get(b.getContext(), dist::ReduceKind::sum));
}

//===--- microbatches -----------------------------------------------------===//

LogicalResult StageEmitter::emitLoop(LoopCut &loop) {
  part = &loop;
  microbatches.assign(loop.schedule.microbatches, Map());
  sums.assign(loop.sums.size(), Value());
  if (failed(emitSchedule()))
    return failure();
  emitSums();
  return success();
}

bool StageEmitter::isIn(Operation *op, CellPart where) const {
  return part->cellOn(view.rank, op) == where.cell &&
         (where.half == Half::both ||
          part->isForWeights(op) == (where.half == Half::weights));
}

LogicalResult StageEmitter::emitCell(CellPart where, int microbatch) {
  for (Operation &op : part->body().without_terminator()) {
    if (!isIn(&op, where))
      continue;
    std::optional<unsigned> sum = part->sumOf(&op);
    if (sum ? failed(addToSum(&op, *sum, microbatch)) : !clone(&op, microbatch))
      return failure();
  }
  return success();
}

// The same op on the sum so far.
LogicalResult StageEmitter::addToSum(Operation *op, unsigned number,
                                     int microbatch) {
  const Sum &sum = part->sums[number];
  size_t place = llvm::find(sum.terms, op) - sum.terms.begin();
  Value carried = part->loop.getCarried()[number];
  if (!sums[number])
    sums[number] = get(part->loop.getInits()[number], microbatch);
  if (!sums[number])
    return failure();
  // Ops that are not a chain of additions are emitted all at once.
  if (sum.isWhole && place == 0)
    mapOf(carried, microbatch)[carried] = sums[number];
  Value before = sum.isWhole ? Value()
                 : place > 0 ? sum.terms[place - 1]->getResult(0)
                             : carried;
  // The first term is the sum so far.
  if (auto add = dyn_cast<graph::AddOp>(op);
      add && !sum.isWhole && graph::isZero(sums[number])) {
    sums[number] =
        get(add.getLhs() == before ? add.getRhs() : add.getLhs(), microbatch);
    return success(static_cast<bool>(sums[number]));
  }
  Operation *copy = clone(op, microbatch, before, sums[number]);
  if (!copy)
    return failure();
  if (place == 0 && isa<graph::AddOp>(copy))
    copy->setAttr(graph::kMicrobatchSumAttr, b.getUnitAttr());
  Value yielded = part->loop.getYield().getValues()[number];
  if (!sum.isWhole)
    sums[number] = copy->getResult(0);
  else if (yielded.getDefiningOp() == op)
    sums[number] = mapOf(yielded, microbatch).lookup(yielded);
  return success();
}

LogicalResult StageEmitter::send(const Values &values, int from, int to,
                                 int microbatch) {
  SmallVector<int64_t> targets(cut.schedule.ranks, -1);
  targets[cut.schedule.rankOf(from)] = cut.schedule.rankOf(to);
  for (Value value : values) {
    Value own = get(value, microbatch);
    if (!own)
      return failure();
    permute(own, targets);
  }
  return success();
}

void StageEmitter::receive(const Values &values, int from, int to,
                           int microbatch) {
  SmallVector<int64_t> targets(cut.schedule.ranks, -1);
  targets[cut.schedule.rankOf(from)] = cut.schedule.rankOf(to);
  for (Value value : values)
    mapOf(value, microbatch)[value] =
        permute(e.zeros(tensorType(value)), targets);
}

LogicalResult StageEmitter::emitSchedule() {
  const pipeline::InstructionList &list = part->schedule.lists[view.rank];
  const pipeline::SteadyState steady = pipeline::findSteadyState(list);
  const bool hasSums = llvm::any_of(
      part->sums, [&](const Sum &sum) { return sum.ranks.test(view.rank); });
  for (size_t k = 0; k < list.size(); ++k) {
    // A loop without results, which only sends, would be removed as dead.
    if (steady.trips && k == steady.begin && hasSums) {
      if (failed(emitSteadyLoop(list, steady)))
        return failure();
      k = steady.end() - 1;
    } else if (failed(emit(list[k]))) {
      return failure();
    }
  }
  return success();
}

SmallVector<StageEmitter::CellPart>
StageEmitter::partsOf(const pipeline::Instruction &each) const {
  using pipeline::Op;
  const int s = each.work.stage, backward = 2 * part->stageCount - 1 - s;
  switch (each.op) {
  case Op::Forward:
    return {CellPart{s}};
  case Op::Backward:
    return {CellPart{backward}};
  case Op::BackwardInput:
    return {CellPart{backward, Half::inputs}};
  case Op::BackwardWeight:
    return {CellPart{backward, Half::weights}};
  case Op::Overlap:
    return {CellPart{s},
            CellPart{2 * part->stageCount - 1 - each.backward.stage}};
  default:
    return {};
  }
}

LogicalResult StageEmitter::emit(const pipeline::Instruction &each) {
  using pipeline::Op;
  const int s = each.work.stage, m = each.work.microbatch;
  SmallVector<CellPart> parts = partsOf(each);
  if (parts.size() == 1)
    return emitCell(parts.front(), m);
  switch (each.op) {
  case Op::Overlap:
    return emitPair(each);
  case Op::SendForward:
    return send(part->toNext[s], s, s + 1, m);
  case Op::RecvForward:
    receive(part->toNext[s - 1], s - 1, s, m);
    return success();
  case Op::SendBackward:
    return send(part->toPrevious[s], s, s - 1, m);
  case Op::RecvBackward:
    receive(part->toPrevious[s + 1], s + 1, s, m);
    return success();
  case Op::ReduceGrad: // where the program has it
  case Op::OptimizerStep:
    return success();
  default:
    return part->loop.emitError("the schedule has ")
           << pipeline::toString(each)
           << ", which is not supported in programs";
  }
}

// One after the other, with marks: interleave-pairs orders them when blocks are
// inlined.
LogicalResult StageEmitter::emitPair(const pipeline::Instruction &each) {
  const int64_t number = pairs++;
  LogicalResult result = success();
  for (auto [half, where] : llvm::enumerate(partsOf(each))) {
    const pipeline::Work &work = half == 0 ? each.work : each.backward;
    pairMark = b.getDenseI64ArrayAttr({number, static_cast<int64_t>(half)});
    if (succeeded(result))
      result = emitCell(where, work.microbatch);
  }
  pairMark = {};
  return result;
}

LogicalResult StageEmitter::emitWhole() {
  for (int s = 0; s < part->stageCount; ++s) {
    if (cut.schedule.rankOf(s) != view.rank)
      continue;
    if (s > 0 && cut.schedule.crosses(s - 1))
      receive(part->toNext[s - 1], s - 1, s, -1);
    if (failed(emitCell({s}, -1)))
      return failure();
    if (cut.schedule.crosses(s) && failed(send(part->toNext[s], s, s + 1, -1)))
      return failure();
  }
  return success();
}

//===--- after loops ------------------------------------------------------===//

void StageEmitter::emitSums() {
  for (auto [i, sum] : llvm::enumerate(part->sums)) {
    Value own = sums[i];
    if (sum.ranks.count() > 1 && !sum.isFree)
      own = addParts(sum.ranks, own);
    if (own)
      step[part->loop.getResult(i)] = own;
  }
}

// Adds the terms in the order of ranks on each rank, so that all have the same
// bits: each rank sends its own to the next, to the one after that, and so on.
Value StageEmitter::addParts(const Ranks &ranks, Value own) {
  if (ranks.all())
    return addOverRanks(own);
  if (!ranks.test(view.rank))
    return {};
  SmallVector<unsigned> members(ranks.set_bits());
  size_t count = members.size(),
         me = llvm::find(members, unsigned(view.rank)) - members.begin();
  SmallVector<Value> parts(count);
  parts[me] = own;
  for (size_t step = 1; step < count; ++step) {
    SmallVector<int64_t> targets(cut.schedule.ranks, -1);
    for (size_t i = 0; i < count; ++i)
      targets[members[i]] = members[(i + step) % count];
    parts[(me + count - step) % count] = permute(own, targets);
  }
  Value sum = parts[0];
  for (Value part : ArrayRef(parts).drop_front())
    sum = e.add(sum, part);
  return sum;
}

LogicalResult StageEmitter::emitResults() {
  for (int level = 0; level < locations.levels(); ++level) {
    for (Operation &op : cut.function.getBody().front().without_terminator()) {
      const Place *place = locations.placeOf(&op);
      if (!place || place->level != level || !place->ranks.test(view.rank))
        continue;
      LoopCut *loop = cut.loopOf(&op);
      if (loop ? failed(emitLoop(*loop)) : !clone(&op, -1))
        return failure();
    }
    if (failed(share(locations.sharedAfter(level))))
      return failure();
  }
  return success();
}

// The most scalars that one kernel concatenates.
static constexpr size_t kMostScalars = 24;

// Scalars of one type are exchanged together.
LogicalResult StageEmitter::share(ArrayRef<Value> values) {
  llvm::MapVector<Type, SmallVector<Value>> scalars;
  for (Value value : values)
    if (tensorType(value).getRank() == 0)
      scalars[tensorType(value).getElementType()].push_back(value);
  for (auto &[type, group] : scalars)
    for (ArrayRef<Value> rest = group; !rest.empty();
         rest = rest.drop_front(std::min(kMostScalars, rest.size())))
      if (failed(shareScalars(rest.take_front(kMostScalars))))
        return failure();
  for (Value value : values) {
    if (tensorType(value).getRank() == 0)
      continue;
    Value own = e.zeros(tensorType(value));
    bool isFirst = locations.placeOf(value).ranks.find_first() == view.rank;
    if (isFirst && !(own = get(value, -1)))
      return failure();
    Value sum = addOverRanks(own);
    step.try_emplace(value, sum);
  }
  return success();
}

// [count]: the first rank that has a scalar contributes it, all others zero.
LogicalResult StageEmitter::shareScalars(ArrayRef<Value> scalars) {
  Type type = tensorType(scalars.front()).getElementType();
  Type sent = type.isInteger(1) ? b.getI32Type() : type;
  SmallVector<Value> pieces;
  int64_t zeros = 0, count = scalars.size();
  auto flush = [&] {
    if (zeros > 0)
      pieces.push_back(e.zeros(RankedTensorType::get({zeros}, sent)));
    zeros = 0;
  };
  for (Value scalar : scalars) {
    if (locations.placeOf(scalar).ranks.find_first() != view.rank) {
      ++zeros;
      continue;
    }
    Value own = get(scalar, -1);
    if (!own)
      return failure();
    flush();
    pieces.push_back(e.reshape(e.convert(own, sent), {1}));
  }
  flush();
  Value all = pieces.size() == 1 ? pieces.front() : e.concat(pieces, 0);
  all = addOverRanks(all);
  for (int64_t i = 0; i < count; ++i) {
    Value one = e.reshape(e.slice(all, {i}, {1}), {});
    step.try_emplace(scalars[i], e.convert(one, type));
  }
  return success();
}
