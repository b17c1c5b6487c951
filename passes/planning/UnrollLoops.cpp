// Loops whose values live for several trips, with as many trips in one.
#include "dialects/graph/Build.h"
#include "dialects/graph/LoopAttrs.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "passes/planning/Planning.h"

using namespace mlir;
using namespace tessera;
using graph::tensorType;

namespace tessera {
#define GEN_PASS_DEF_UNROLLLOOPS
#include "passes/planning/Passes.h.inc"
} // namespace tessera

namespace {

/// The number of a trip, or within a group of trips if there is an index.
struct TripNumber {
  int64_t first;
  Value index = {}; ///< of the group
};

class Unroller {
public:
  explicit Unroller(graph::LoopOp loop)
      : loop(loop), trips(static_cast<int64_t>(loop.getTrip())),
        factor(graph::tripsInFlight(loop)) {}

  LogicalResult run() {
    OpBuilder builder(loop);
    SmallVector<Value> values(loop.getInits());
    const int64_t groups = trips / factor;
    int64_t next = 0;
    // One group is no loop.
    if (groups > 1) {
      if (failed(emitGroups(builder, groups, values)))
        return failure();
      next = groups * factor;
    }
    for (; next < trips; ++next)
      if (failed(emitTrip(builder, {next}, values)))
        return failure();
    loop.replaceAllUsesWith(values);
    loop.erase();
    return success();
  }

private:
  LogicalResult emitGroups(OpBuilder &builder, int64_t groups,
                           SmallVector<Value> &values) {
    LogicalResult done = success();
    auto made = builder.create<graph::LoopOp>(
        loop.getLoc(), groups, values,
        [&](OpBuilder &inside, Location loc, Value index, ValueRange carried) {
          SmallVector<Value> own(carried);
          for (int64_t i = 0; i < factor && succeeded(done); ++i)
            done = emitTrip(inside, {i, index}, own);
          inside.create<graph::YieldOp>(loc, own);
        });
    for (NamedAttribute attr : loop->getDiscardableAttrs())
      if (attr.getName() != graph::kInFlightAttr)
        made->setDiscardableAttr(attr.getName(), attr.getValue());
    values.assign(made.result_begin(), made.result_end());
    return done;
  }

  // `values` are those that the trip receives, and then those that it yields.
  LogicalResult emitTrip(OpBuilder &builder, TripNumber number,
                         SmallVector<Value> &values) {
    IRMapping map;
    map.map(loop.getCarried(), values);
    for (Operation &op : loop.getBody().front().without_terminator()) {
      // An entry of a table by the index of the loop.
      if (auto slice = dyn_cast<graph::DynamicSliceOp>(op);
          slice && slice.getIndex() == loop.getInduction()) {
        map.map(slice.getResult(),
                entryOf(builder, slice, map.lookupOrDefault(slice.getInput()),
                        number));
        continue;
      }
      if (failed(replaceIndex(builder.clone(op, map), number)))
        return failure();
    }
    for (auto [value, yielded] : llvm::zip(values, loop.getYield().getValues()))
      value = map.lookupOrDefault(yielded);
    return success();
  }

  // In nested loops.
  LogicalResult replaceIndex(Operation *copy, TripNumber number) {
    SmallVector<Operation *> users;
    copy->walk([&](Operation *op) {
      if (llvm::is_contained(op->getOperands(), loop.getInduction()))
        users.push_back(op);
    });
    for (Operation *user : users) {
      auto slice = dyn_cast<graph::DynamicSliceOp>(user);
      if (!slice)
        return user->emitOpError("uses the index of a loop with ")
               << graph::kInFlightAttr
               << ", which only graph.dynamic_slice may; remove the attribute";
      OpBuilder builder(slice);
      slice.replaceAllUsesWith(
          entryOf(builder, slice, slice.getInput(), number));
      slice.erase();
    }
    return success();
  }

  // [...] of [trips, ...]: with an index the trips are seen as those of one
  // group after the other.
  Value entryOf(OpBuilder &builder, graph::DynamicSliceOp slice, Value rows,
                TripNumber number) {
    graph::Emitter e(builder, slice.getLoc());
    SmallVector<int64_t> shape(tensorType(rows).getShape());
    SmallVector<int64_t> start(shape.size(), 0);
    if (number.index) {
      const int64_t groups = trips / factor;
      shape[0] = groups * factor;
      rows = e.slice(rows, start, shape);
      shape[0] = factor;
      SmallVector<int64_t> byGroup{groups};
      byGroup.append(shape);
      rows = e.dynamicSlice(e.reshape(rows, byGroup), number.index);
    }
    start[0] = number.first;
    shape[0] = 1;
    return e.reshape(e.slice(rows, start, shape),
                     tensorType(slice.getResult()).getShape());
  }

  graph::LoopOp loop;
  const int64_t trips, factor;
};

struct UnrollLoops : tessera::impl::UnrollLoopsBase<UnrollLoops> {
  using Base::Base;
  void runOnOperation() override {
    SmallVector<graph::LoopOp> loops;
    getOperation()->walk([&](graph::LoopOp loop) {
      if (graph::tripsInFlight(loop) > 1)
        loops.push_back(loop);
    });
    for (graph::LoopOp loop : loops)
      if (failed(Unroller(loop).run()))
        return signalPassFailure();
  }
};

} // namespace
