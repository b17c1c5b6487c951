// The steady state of a rank's schedule as one loop. Its body is one trip, with
// the microbatches of the first; what is in flight between trips is carried.
#include "dialects/graph/LoopAttrs.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/stages/StageEmitter.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::stages;
using graph::tensorType;

struct StageEmitter::SteadyLoop {
  /// A value of a microbatch that the trip before has computed.
  struct InFlight {
    Value value;
    int microbatch;
  };
  pipeline::SteadyState steady;
  std::unique_ptr<Block> block = std::make_unique<Block>();
  Value index;
  std::vector<Map> before; ///< the emitted values of microbatches
  SmallVector<size_t> sums;
  SmallVector<InFlight> inFlight;
  SmallVector<Value> inits; ///< of sums, then of values in flight

  Value addCarried(Value init) {
    inits.push_back(init);
    return block->addArgument(init.getType(), init.getLoc());
  }
};

LogicalResult
StageEmitter::emitSteadyLoop(const pipeline::InstructionList &list,
                             const pipeline::SteadyState &steady) {
  auto trip = ArrayRef(list).slice(steady.begin, steady.length);
  for (unsigned i = 0; i < sums.size(); ++i)
    if (part->sums[i].ranks.test(view.rank) && !sums[i] &&
        !(sums[i] = startOfSum(i, trip)))
      return failure();
  SteadyLoop loop;
  loop.steady = steady;
  loop.index = loop.block->addArgument(
      RankedTensorType::get({}, b.getI32Type()), part->loop.getLoc());
  loop.before.assign(part->schedule.microbatches, Map());
  std::swap(loop.before, microbatches);
  for (auto [i, sum] : llvm::enumerate(sums))
    if (sum) {
      loop.sums.push_back(i);
      sum = loop.addCarried(sum);
    }
  steadyLoop = &loop;
  b.setInsertionPointToStart(loop.block.get());
  for (const pipeline::Instruction &each : trip)
    if (failed(emit(each)))
      return failure();
  if (failed(yieldNext()))
    return failure();
  steadyLoop = nullptr;
  finishLoop(loop);
  return success();
}

// The next trip finds where a value was that of the microbatch that follows it
// in the schedule.
LogicalResult StageEmitter::yieldNext() {
  SmallVector<Value> next;
  for (size_t i : steadyLoop->sums)
    next.push_back(sums[i]);
  // To yield a value may carry another one.
  for (size_t i = 0; i < steadyLoop->inFlight.size(); ++i) {
    auto [value, microbatch] = steadyLoop->inFlight[i];
    next.push_back(get(value, microbatch + steadyLoop->steady.microbatches));
    if (!next.back())
      return failure();
  }
  b.create<graph::YieldOp>(part->loop.getLoc(), next);
  return success();
}

void StageEmitter::finishLoop(SteadyLoop &loop) {
  const pipeline::SteadyState &steady = loop.steady;
  b.setInsertionPointToEnd(body);
  auto op =
      b.create<graph::LoopOp>(part->loop.getLoc(), steady.trips, loop.inits,
                              [](OpBuilder &, Location, Value, ValueRange) {});
  op.getBody().front().erase();
  op.getBody().push_back(loop.block.release());
  if (int trips = std::min(steady.inFlight, steady.trips); trips > 1)
    op->setAttr(graph::kInFlightAttr, b.getI64IntegerAttr(trips));
  microbatches.assign(part->schedule.microbatches, Map());
  for (auto [i, result] : llvm::zip(loop.sums, op.getResults()))
    sums[i] = result;
  for (auto [each, result] :
       llvm::zip(loop.inFlight, op.getResults().drop_front(loop.sums.size())))
    microbatches[each.microbatch + steady.trips * steady.microbatches]
                [each.value] = result;
}

//===--- sums -------------------------------------------------------------===//

Operation *StageEmitter::firstTerm(const Sum &sum,
                                   ArrayRef<pipeline::Instruction> trip) const {
  for (const pipeline::Instruction &each : trip)
    for (CellPart where : partsOf(each))
      for (Operation *op : sum.terms)
        if (isIn(op, where))
          return op;
  return nullptr;
}

// A sum whose first term is in the loop starts at -0.0: added to it, a number
// stays the same bit for bit, as without an addition. Rows that a scatter does
// not touch stay what they are.
Value StageEmitter::startOfSum(unsigned number,
                               ArrayRef<pipeline::Instruction> trip) {
  const Sum &sum = part->sums[number];
  Value init = get(part->loop.getInits()[number], -1);
  if (!init || sum.isWhole ||
      !isa<FloatType>(tensorType(init).getElementType()) ||
      !isa_and_nonnull<graph::AddOp>(firstTerm(sum, trip)))
    return init;
  return e.splat(-0.0, tensorType(init));
}

//===--- values -----------------------------------------------------------===//

// Null if the value is emitted in the body.
Value StageEmitter::getInLoop(Value value, int microbatch) {
  if (isOfAllMicrobatches(value))
    return getBeforeLoop(value);
  if (value == part->loop.getInduction())
    return microbatches[microbatch][value] = numberInLoop(microbatch);
  const Map &before = steadyLoop->before[microbatch];
  auto known = before.find(value);
  if (known == before.end() || isView(value))
    return {};
  steadyLoop->inFlight.push_back({value, microbatch});
  return microbatches[microbatch][value] =
             steadyLoop->addCarried(known->second);
}

// A value of the whole step, or one that all microbatches share, of which the
// first is used.
Value StageEmitter::getBeforeLoop(Value value) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(body);
  SteadyLoop *loop = std::exchange(steadyLoop, nullptr);
  std::swap(loop->before, microbatches);
  Value found = get(value, 0);
  std::swap(loop->before, microbatches);
  steadyLoop = loop;
  return found;
}

// Whether the value is outside of the loop over microbatches, or could be.
bool StageEmitter::isOfAllMicrobatches(Value value) {
  if (!part->isOfMicrobatch(value))
    return true;
  if (auto known = ofAllMicrobatches.find(value);
      known != ofAllMicrobatches.end())
    return known->second;
  Operation *def = value.getDefiningOp();
  bool isFree = def && part->cellOf(def) == LoopCut::kFree &&
                !part->sumOf(def) && isMemoryEffectFree(def);
  bool is = isFree && llvm::all_of(inputsOf(def), [&](Value input) {
              return isOfAllMicrobatches(input);
            });
  return ofAllMicrobatches[value] = is;
}

// Whether the value is part of another one that is not carried: nothing is
// computed, so it is taken again where it is used.
bool StageEmitter::isView(Value value) {
  Operation *def = value.getDefiningOp();
  if (value == part->loop.getInduction() || isOfAllMicrobatches(value))
    return true;
  return isa_and_nonnull<graph::DynamicSliceOp, graph::SliceOp,
                         graph::ReshapeOp>(def) &&
         llvm::all_of(inputsOf(def),
                      [&](Value input) { return isView(input); });
}

// The microbatch of this trip.
Value StageEmitter::numberInLoop(int microbatch) {
  Value first = e.mul(steadyLoop->index, steadyLoop->steady.microbatches);
  return e.add(first, microbatch);
}

// [1, …] of [microbatches, …]: rows are seen as those of one trip after the
// other, and the index of the loop selects a trip.
Value StageEmitter::rowInLoop(Value rows, int microbatch) {
  const int64_t count = steadyLoop->steady.microbatches,
                trips = steadyLoop->steady.trips;
  RankedTensorType type = tensorType(rows);
  SmallVector<int64_t> start(type.getRank(), 0), shape(type.getShape());
  start[0] = std::min<int64_t>(microbatch, shape[0] - trips * count);
  shape[0] = trips * count;
  Value ofLoop = e.slice(rows, start, shape);
  shape[0] = count;
  SmallVector<int64_t> byTrip{trips};
  byTrip.append(shape);
  Value ofTrip = e.dynamicSlice(e.reshape(ofLoop, byTrip), steadyLoop->index);
  start[0] = microbatch - start[0];
  shape[0] = 1;
  return e.slice(ofTrip, start, shape);
}
