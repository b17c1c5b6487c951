// Sends rows of experts from the devices of their tokens to those of their
// groups, and back (the all-to-all of Lepikhin et al. 2021, GShard, without
// capacity): first the counts, then the rows. Received rows are ordered by
// device, then by group; a slot for every row orders them by group. The buffer
// has room for the rows of all devices, so none is ever dropped here.
#include "dialects/graph/GraphExchangeOps.h"
#include "passes/sharding/LocalOps.h"
#include "passes/sharding/Resharder.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::Emitter;
using graph::tensorType;

SmallVector<unsigned, 2> sharding::exchangedAxes(const Placement &home,
                                                 const Placement &sent) {
  SmallVector<unsigned, 2> axes;
  for (unsigned axis : home.own)
    if (home.uses(axis) && !sent.uses(axis))
      axes.push_back(axis);
  return axes;
}

namespace {
class Exchange {
public:
  Exchange(LocalOp &local, Value home, Value sent, Value groups)
      : local(local), e(local.builder, local.op->getLoc()),
        home(local.placementOf(home)), homeType(tensorType(home)),
        axes(exchangedAxes(this->home, local.placementOf(sent))),
        sentRows(local.localType(sent).getDimSize(0)),
        groups(local.map.lookup(groups)) {}

  bool isNeeded() const { return !axes.empty(); }
  LogicalResult verifyRoom() const;
  void send(graph::SendRowsOp op);
  void bringBack(graph::ReturnRowsOp op);

private:
  ArrayAttr axisRefs() { return Resharder(e, local.mesh, local.at).refs(axes); }
  Value exchange(Value rows, Value counts, int64_t most);
  Value countUpTo(Value ends);
  Value groupsOfRows(Value arriving);
  const RowExchange &order();

  LocalOp &local;
  Emitter e;
  Placement home;
  RankedTensorType homeType; ///< of the whole tensor
  SmallVector<unsigned, 2> axes;
  int64_t sentRows; ///< rows for which a device has room
  Value groups;     ///< of this device's own tokens
};
} // namespace

// Uneven shards over several axes need not add up to all rows.
LogicalResult Exchange::verifyRoom() const {
  int64_t rows = 0;
  for (const Coordinates &place : membersOf(local.mesh, local.at, axes))
    rows += home.localType(homeType, local.mesh, place).getDimSize(0);
  if (rows <= sentRows)
    return success();
  return local.op->emitOpError("has room for ")
         << sentRows << " of " << rows
         << " rows that a device may receive, because shards are uneven; "
            "choose a batch that divides evenly, or moe.dispatch 'gather'";
}

Value Exchange::exchange(Value rows, Value counts, int64_t most) {
  auto type = tensorType(rows);
  return e.builder().create<dist::ExchangeRowsOp>(
      e.location(), type.clone({most, type.getDimSize(1)}), rows, counts,
      FlatSymbolRefAttr::get(local.mesh.name), axisRefs());
}

// For each row the number of `ends` that are at most its own: i32[rows].
Value Exchange::countUpTo(Value ends) {
  auto type = RankedTensorType::get({sentRows, tensorType(ends).getDimSize(0)},
                                    e.builder().getI32Type());
  Value passed = e.compare(e.broadcastLast(ends, type.getShape()),
                           graph::ComparePredicate::le, e.iota(type, 0));
  return e.sumLast(e.convert(passed, type.getElementType()));
}

// arriving: i32[devices, groups of this device]. Returns the group of each row,
// −1 after the last: i32[rows].
Value Exchange::groupsOfRows(Value arriving) {
  int64_t devices = tensorType(arriving).getDimSize(0),
          own = tensorType(arriving).getDimSize(1), runs = devices * own;
  auto square = RankedTensorType::get({runs, runs}, e.builder().getI32Type());
  Value each = e.broadcastLast(e.reshape(arriving, {runs}), square.getShape());
  Value isBefore = e.compare(e.iota(square, 1), graph::ComparePredicate::le,
                             e.iota(square, 0));
  Value ends = e.sumLast(e.select(isBefore, each, e.zeros(square)));
  Value ofDevices = e.reshape(
      e.slice(e.reshape(ends, {devices, own}), {0, own - 1}, {devices, 1}),
      {devices});
  Value run = countUpTo(ends), device = countUpTo(ofDevices);
  Value group =
      e.sub(run, e.mul(device, e.splatLike(static_cast<double>(own), device)));
  Value isRow = e.compare(device, graph::ComparePredicate::lt,
                          e.splatLike(static_cast<double>(devices), device));
  return e.select(isRow, group, e.splatLike(-1, group));
}

// Computed once for all exchanges of a block whose rows have this order.
const RowExchange &Exchange::order() {
  RowExchange &known =
      local.exchanges[{groups, local.builder.getInsertionBlock()}];
  if (known.counts)
    return known;
  int64_t devices = local.mesh.size(axes),
          all = tensorType(groups).getDimSize(0) - 1;
  Value leaving =
      e.reshape(e.sub(e.slice(groups, {1}, {all}), e.slice(groups, {0}, {all})),
                {devices, all / devices});
  OpBuilder &b = e.builder();
  Value arriving = b.create<dist::AllToAllOp>(
      e.location(), leaving.getType(), leaving,
      FlatSymbolRefAttr::get(local.mesh.name), axisRefs(),
      b.getI64IntegerAttr(0), b.getI64IntegerAttr(0));
  Value out = e.reshape(e.sumLast(leaving), {1, devices}),
        in = e.reshape(e.sumLast(arriving), {1, devices});
  known.counts = e.concat({out, in}, 0);
  known.countsBack = e.concat({in, out}, 0);
  auto order =
      e.groupRows(e.reshape(groupsOfRows(arriving), {sentRows, 1}), all);
  known.groups = order.getOffsets(), known.slots = order.getSlots();
  return known;
}

void Exchange::send(graph::SendRowsOp op) {
  const RowExchange &way = order();
  Value rows = exchange(local.map.lookup(op.getRows()), way.counts, sentRows);
  local.map.map(op.getSent(), e.dispatchRows(rows, way.slots, {}, sentRows));
  local.map.map(op.getSentGroups(), way.groups);
}

void Exchange::bringBack(graph::ReturnRowsOp op) {
  const RowExchange &way = order();
  Value rows = e.combineRows(local.map.lookup(op.getRows()), way.slots, {});
  local.map.map(op.getResult(),
                exchange(rows, way.countsBack,
                         local.localType(op.getResult()).getDimSize(0)));
}

LogicalResult sharding::emitLocalSend(LocalOp &local, graph::SendRowsOp op) {
  Exchange exchange(local, op.getRows(), op.getSent(), op.getGroups());
  if (exchange.isNeeded()) {
    if (failed(exchange.verifyRoom()))
      return failure();
    exchange.send(op);
    return success();
  }
  local.map.map(op.getSent(), local.map.lookup(op.getRows()));
  local.map.map(op.getSentGroups(), local.map.lookup(op.getGroups()));
  return success();
}

LogicalResult sharding::emitLocalReturn(LocalOp &local,
                                        graph::ReturnRowsOp op) {
  Exchange exchange(local, op.getResult(), op.getRows(), op.getGroups());
  if (exchange.isNeeded()) {
    if (failed(exchange.verifyRoom()))
      return failure();
    exchange.bringBack(op);
    return success();
  }
  local.map.map(op.getResult(), local.map.lookup(op.getRows()));
  return success();
}
