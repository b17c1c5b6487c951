// Loops, and blocks that are called.
#include "test/metamorphic/Generator.h"

using namespace mlir;
using namespace tessera::graph;

namespace tessera::metamorphic {

//===--- loops ------------------------------------------------------------===//

namespace {

enum class Carry {
  sum,    ///< grows by something in every turn, as gradients do
  state,  ///< is read, and replaced by something as small
  entries ///< entry `induction` is written in every turn
};

struct Carried {
  Carry how;
  Entry init;
  Interval range{0, 0}; // of the result
};

} // namespace

static Carried chooseCarried(Generator &g, int64_t trip) {
  auto how = static_cast<Carry>(g.below(3));
  if (how == Carry::entries) {
    Shape shape = g.shape(g.between(0, 2));
    shape.insert(shape.begin(), trip + (g.chance(30) ? g.below(3) : 0));
    return {how, g.like(g.tensor(shape, g.floatType()))};
  }
  return {how, g.like(g.floats().type())};
}

// The next value of `now`.
static Value advance(Generator &g, Carried &carried, Value now, Value index,
                     int64_t trip) {
  auto type = tensorType(now);
  switch (carried.how) {
  case Carry::sum: {
    Entry more = g.limited(g.like(type), 64);
    auto turns = static_cast<double>(trip);
    carried.range = carried.init.range + more.range * Interval{turns, turns};
    return g.e.add(now, more.value);
  }
  case Carry::state: {
    Entry other = g.limited(g.like(type), 64);
    Value low = g.e.splatLike(carried.range.low, now),
          high = g.e.splatLike(carried.range.high, now);
    return g.e.min(g.e.max(other.value, low), high);
  }
  case Carry::entries: {
    Entry entry =
        g.like(g.tensor(type.getShape().drop_front(), type.getElementType()));
    carried.range = carried.init.range | entry.range;
    return g.builder.create<DynamicUpdateOp>(g.e.location(), now, entry.value,
                                             index);
  }
  }
  llvm_unreachable("all ways are handled");
}

static bool loop(Generator &g) {
  int64_t trip = g.between(1, 4);
  // apply-precision comes before any loop; a body costs as often as it runs.
  if (g.kind == Kind::mixed || g.depth > 1 || !g.afford(20000))
    return false;
  std::vector<Carried> carried;
  for (int64_t i = g.between(1, 3); i > 0; --i)
    carried.push_back(chooseCarried(g, trip));
  SmallVector<Value> inits;
  for (Carried &each : carried) {
    inits.push_back(each.init.value);
    if (each.how == Carry::state) // multiples of 1/8 are exact in every type
      each.range = each.init.range | Interval{-4, 4};
  }
  auto op = g.builder.create<LoopOp>(
      g.e.location(), trip, inits,
      [&](OpBuilder &, Location, Value index, ValueRange now) {
        OpBuilder::InsertionGuard guard(g.builder);
        g.builder.setInsertionPointToStart(index.getParentBlock());
        g.inScope([&] {
          for (auto [each, value] : llvm::zip_equal(carried, now))
            if (each.how == Carry::state)
              g.add(value, each.range);
          if (g.chance(30))
            g.add(index, {0, static_cast<double>(trip - 1)});
          // Parts of tensors outside, one a turn.
          for (int64_t i = g.between(0, 2); i > 0; --i)
            if (auto whole = g.find([&](const Entry &x) {
                  return x.rank() > 0 && x.shape()[0] >= trip;
                }))
              g.add(g.e.dynamicSlice(whole->value, index), whole->range);
          g.grow(g.between(1, 4));
          SmallVector<Value> next;
          for (auto [each, value] : llvm::zip_equal(carried, now))
            next.push_back(advance(g, each, value, index, trip));
          g.builder.create<YieldOp>(g.e.location(), next);
        });
      });
  for (auto [each, result] : llvm::zip_equal(carried, op.getResults()))
    g.add(result, each.range);
  return true;
}

//===--- blocks -----------------------------------------------------------===//

// A value for an argument that stands for `wanted`.
static Entry bring(Generator &g, RankedTensorType type, Interval range) {
  if (g.chance(50))
    if (auto found = g.find([&](const Entry &x) {
          return x.type() == type && x.range.within(range);
        }))
      return *found;
  return g.argument(type, range);
}

// A layer, called once or more, as models do.
static bool call(Generator &g) {
  if (g.depth > 0 || !g.afford(20000))
    return false;
  SmallVector<Entry> given;
  for (int64_t i = g.between(1, 3); i > 0; --i)
    given.push_back(g.chance(70) ? g.floats() : g.integers());
  SmallVector<Interval> ranges;
  func::FuncOp block = g.block(given, [&](ArrayRef<Entry>) {
    g.grow(g.between(2, 6));
    SmallVector<Entry> results = g.unused(2);
    if (results.empty())
      results.push_back(g.scope().back());
    for (const Entry &result : results)
      ranges.push_back(result.range);
    return results;
  });
  Entry previous = given[0];
  for (int64_t calls = g.between(1, 3); calls > 0; --calls) {
    SmallVector<Value> operands;
    for (auto [i, type] : llvm::enumerate(block.getArgumentTypes())) {
      auto tensor = cast<RankedTensorType>(type);
      if (i >= given.size()) {
        auto range = cast<DenseF64ArrayAttr>(block.getArgAttr(i, kRangeAttr))
                         .asArrayRef();
        operands.push_back(bring(g, tensor, {range[0], range[1]}).value);
      } else if (i == 0 && previous.type() == type &&
                 previous.range.within(given[0].range)) {
        operands.push_back(previous.value);
      } else if (calls == 1) {
        operands.push_back(given[i].value);
      } else {
        operands.push_back(bring(g, tensor, given[i].range).value);
      }
    }
    auto op = g.builder.create<func::CallOp>(g.e.location(), block, operands);
    for (auto [result, range] : llvm::zip_equal(op.getResults(), ranges))
      previous = g.add(result, range);
  }
  for (unsigned i = given.size(); i < block.getNumArguments(); ++i)
    block.removeArgAttr(i, kRangeAttr);
  return true;
}

ArrayRef<WeightedProduction> structureProductions() {
  static const WeightedProduction table[] = {{3, loop}, {3, call}};
  return table;
}

} // namespace tessera::metamorphic
