#include "passes/stages/ResultLocations.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::stages;

ResultLocations::ResultLocations(ProgramCut &cut, const StateRanks &blocks,
                                 StateRanks &state)
    : cut(cut), allRanks(cut.schedule.ranks, true), blocks(blocks) {
  Block &block = cut.function.getBody().front();
  size_t ahead = cut.whole() ? 0 : cut.loops.size();
  bool afterLoops = false;
  for (Operation &op : block.without_terminator()) {
    if (const LoopCut *loop = cut.loopOf(&op)) {
      placeLoop(*loop);
      afterLoops = --ahead == 0;
    } else if (afterLoops || cut.isOfLoops(&op)) {
      place(&op, state);
    }
  }
  useOnAll(block.getTerminator(), state);
}

const Place *ResultLocations::placeOf(Operation *op) const {
  auto place = locations.find(op);
  return place == locations.end() ? nullptr : &place->second;
}

// A value of arguments only: the ranks whose blocks use its state.
Place ResultLocations::placeFree(Value value) const {
  Place place{true, allRanks, 0};
  for (unsigned i : cut.argumentsOf(value).set_bits()) {
    auto name = cut.function.getArgAttrOfType<StringAttr>(i, graph::kStateAttr);
    auto ranks = name ? blocks.find(name.getValue()) : blocks.end();
    if (ranks == blocks.end())
      continue;
    place.isFree = false;
    place.ranks &= ranks->second;
  }
  return place;
}

Place ResultLocations::placeOf(Value value) const {
  Operation *def = value.getDefiningOp();
  if (const LoopCut *loop = cut.loopOf(def)) {
    const Sum &sum = loop->sums[cast<OpResult>(value).getResultNumber()];
    return {sum.ranks.none(), sum.ranks, locations.lookup(def).level};
  }
  if (const LoopCut *whole = cut.whole(); whole && def)
    if (int cell = whole->cellOf(def); cell != LoopCut::kFree) {
      Place place{false, Ranks(cut.schedule.ranks), 0};
      place.ranks.set(whole->rankOf(cell));
      return place;
    }
  if (def)
    if (const Place *known = placeOf(def))
      return *known;
  return placeFree(value);
}

int ResultLocations::share(Value value) {
  int level = placeOf(value).level;
  shared[level].insert(value);
  last = std::max(last, level + 1);
  return level + 1;
}

ArrayRef<Value> ResultLocations::sharedAfter(int level) const {
  auto values = shared.find(level);
  return values == shared.end() ? ArrayRef<Value>()
                                : values->second.getArrayRef();
}

// A loop needs on each rank the earlier values that the rank's cells use.
void ResultLocations::placeLoop(const LoopCut &loop) {
  Place where{false, allRanks, 0};
  for (const auto &[value, ranks] : loop.users) {
    if (!cut.isOfLoops(value))
      continue;
    Place place = placeOf(value);
    if (place.isFree)
      continue;
    Ranks missing = ranks;
    missing.reset(place.ranks);
    where.level =
        std::max(where.level, missing.any() ? share(value) : place.level);
  }
  last = std::max(last, where.level);
  graph::LoopOp op = loop.loop;
  locations[op] = where;
}

// Tensors stay on their ranks, and the op runs there; scalars are sent to the
// ranks that need them. If the tensors of an op have no rank in common, it runs
// on all ranks.
void ResultLocations::place(Operation *op, StateRanks &state) {
  Values inputs = inputsOf(op);
  Ranks common = allRanks;
  bool isFree = true, isDrawn = false;
  for (Value input : inputs) {
    Place place = placeOf(input);
    if (place.isFree)
      continue;
    isFree = false;
    if (cast<RankedTensorType>(input.getType()).getRank() == 0)
      continue;
    isDrawn |= !place.ranks.all();
    common &= place.ranks;
  }
  if (isFree)
    return;
  Place where{false, isDrawn && common.any() ? common : allRanks, 0};
  for (Value input : inputs) {
    Place place = placeOf(input);
    if (place.isFree)
      continue;
    Ranks missing = where.ranks;
    missing.reset(place.ranks);
    where.level =
        std::max(where.level, missing.any() ? share(input) : place.level);
  }
  last = std::max(last, where.level);
  for (Value input : inputs)
    use(input, where.ranks, state);
  locations[op] = where;
}

// State that no block uses is on the ranks that use it here.
void ResultLocations::use(Value value, const Ranks &where, StateRanks &state) {
  if (cut.loopOf(value.getDefiningOp()) || !placeOf(value).isFree)
    return;
  for (unsigned i : cut.argumentsOf(value).set_bits())
    if (auto name =
            cut.function.getArgAttrOfType<StringAttr>(i, graph::kStateAttr);
        name && !blocks.contains(name.getValue()))
      state.try_emplace(name.getValue(), allRanks.size()).first->second |=
          where;
}

// All ranks return all outputs.
void ResultLocations::useOnAll(Operation *terminator, StateRanks &state) {
  for (OpOperand &operand : terminator->getOpOperands())
    if (!cut.function.getResultAttr(operand.getOperandNumber(),
                                    graph::kStateAttr))
      use(operand.get(), allRanks, state);
}

void ResultLocations::finish(const StateRanks &state) {
  for (OpOperand &operand :
       cut.function.getBody().front().getTerminator()->getOpOperands()) {
    Place place = placeOf(operand.get());
    if (place.isFree)
      continue;
    Ranks missing = allRanks;
    if (auto name = cut.function.getResultAttrOfType<StringAttr>(
            operand.getOperandNumber(), graph::kStateAttr))
      missing = state.lookup(name.getValue());
    missing.reset(place.ranks);
    if (missing.any())
      share(operand.get());
  }
}
