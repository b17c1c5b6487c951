// Sends rows of experts from the devices of their tokens to those of their
// groups, and back (the all-to-all of Lepikhin et al. 2021, GShard, without
// capacity). Devices gather the counts of all; from these each knows where its
// rows belong on the devices of their groups, ordered by group and then by
// device, so that rows arrive in order: nothing is done for each row.
//
// A device has a buffer for some rows (Placement::room). What does not fit is
// sent in further rounds: round r has rows r × room to (r + 1) × room of every
// device. All devices compute the number of rounds from the same counts. Padded
// exchanges limit the rows from one device to another instead: round r has rows
// r × slot to (r + 1) × slot of every pair (PaddedExchange.h).
#include "dialects/graph/Build.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "passes/sharding/LocalOps.h"
#include "passes/sharding/PaddedExchange.h"
#include "passes/sharding/Resharder.h"
#include <cmath>

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

int64_t sharding::roomForRows(int64_t rows, double buffer, const Mesh &mesh,
                              const Placement &home, const Placement &sent) {
  auto pieces = [&](const Placement &placement) {
    int64_t product = 1;
    for (const Factor &factor : placement.dims[0])
      product *= mesh.size(factor.axes);
    return product;
  };
  int64_t mean = llvm::divideCeil(rows, pieces(home)),
          all = llvm::divideCeil(rows, pieces(sent));
  // Rounded to whole register tiles.
  int64_t room = llvm::alignTo(
      static_cast<int64_t>(std::ceil(buffer * static_cast<double>(mean))), 8);
  return buffer > 0 && room < all ? room : 0;
}

namespace {
class Exchange {
public:
  Exchange(LocalOp &local, Value home, Value sent, Value groups)
      : local(local), e(local.builder, local.op->getLoc()),
        home(local.placementOf(home)), homeType(tensorType(home)),
        axes(exchangedAxes(this->home, local.placementOf(sent))),
        sentRows(local.localType(sent).getDimSize(0)),
        isBounded(local.placementOf(sent).room > 0),
        groups(local.map.lookup(groups)) {
    if (local.padsExchanges && isNeeded())
      slot = rowsOfSlot(local.at);
  }

  bool isNeeded() const { return !axes.empty(); }
  /// An error if a device may receive more rows than there is room for.
  LogicalResult verifyRoom() const;
  void send(graph::SendRowsOp op);
  void bringBack(graph::ReturnRowsOp op);
  /// Rounds after the first: at most, and how many there are, i32[].
  int64_t mostRounds() const;
  Value rounds();

private:
  using ComparePredicate = graph::ComparePredicate;
  ArrayAttr axisRefs() { return Resharder(e, local.mesh, local.at).refs(axes); }
  Value constant(int64_t value, Value like) {
    return e.splatLike(static_cast<double>(value), like);
  }
  RankedTensorType i32(ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, e.builder().getI32Type());
  }
  int64_t mostRows(const Coordinates &at) const;
  int64_t mostHomeRows(const Coordinates &at) const;
  int64_t rowsOfSlot(const Coordinates &at) const;
  /// Rows of a round that one device receives, or one from another.
  int64_t mostOfRound() const { return slot > 0 ? slot : sentRows; }
  Value exchange(Value rows, const RowMoves &moves, int64_t most);
  Value whereDevice(ComparePredicate predicate, Value each, unsigned dim);
  const RowExchange &order();
  void countRows(RowExchange &known);
  void placePieces(RowExchange &known, Value counts);
  struct Part {
    Value begins, counts;
  };
  Value inRound(Value position);
  Part partOf(const RowPieces &pieces);
  Value sentBefore(const RowPieces &pieces);
  void placeRound(RowExchange &known);
  void placePadded(RowExchange &known);
  Value roundOfPairs(Value pairs);
  Value offsetsOfAll(Value ends);

  LocalOp &local;
  Emitter e;
  Placement home;
  RankedTensorType homeType; ///< of the whole tensor
  SmallVector<unsigned, 2> axes;
  int64_t sentRows; ///< rows for which a device has room
  int64_t slot = 0; ///< rows from a device to another; 0: not padded
  bool isBounded;   ///< a device may receive more rows, in further rounds
  Value groups;     ///< of this device's own tokens
};
} // namespace

//===--- room -------------------------------------------------------------===//

// All rows of the devices that exchange with the one at `at`.
int64_t Exchange::mostRows(const Coordinates &at) const {
  int64_t rows = 0;
  for (const Coordinates &place : membersOf(local.mesh, at, axes))
    rows += home.localType(homeType, local.mesh, place).getDimSize(0);
  return rows;
}

// Uneven shards over several axes need not add up to all rows.
LogicalResult Exchange::verifyRoom() const {
  int64_t most = mostRows(local.at);
  if (isBounded || most <= sentRows)
    return success();
  return local.op->emitOpError("has room for ")
         << sentRows << " of " << most
         << " rows that a device may receive, because shards are uneven; "
            "choose a batch that divides evenly, or moe.dispatch 'gather'";
}

// Rows of any device that exchanges with the one at `at`.
int64_t Exchange::mostHomeRows(const Coordinates &at) const {
  int64_t most = 0;
  for (const Coordinates &place : membersOf(local.mesh, at, axes))
    most = std::max(most,
                    home.localType(homeType, local.mesh, place).getDimSize(0));
  return most;
}

// As many as there is room for if all slots are full; a buffer of less than a
// row for each device is too small to be divided.
int64_t Exchange::rowsOfSlot(const Coordinates &at) const {
  int64_t all = mostHomeRows(at);
  return isBounded ? std::min(all, sentRows / local.mesh.size(axes)) : all;
}

// The same for all devices, whose loops must agree: those of the first one's
// exchange have the most rows, since uneven shards are the first ones'.
int64_t Exchange::mostRounds() const {
  if (!isBounded)
    return 0;
  Coordinates first(local.mesh.rank(), 0);
  return slot > 0 ? llvm::divideCeil(mostHomeRows(first), rowsOfSlot(first)) - 1
                  : llvm::divideCeil(mostRows(first), sentRows) - 1;
}

// How many rounds after the first begin before the last row of any device.
Value Exchange::rounds() {
  Value most = e.maxLast(order().totals);
  auto type = i32({mostRounds()});
  Value begins = e.mul(e.add(e.iota(type, 0), 1.0), double(mostOfRound()));
  Value isNeeded = e.compare(begins, ComparePredicate::lt,
                             e.broadcastScalar(most, type.getShape()));
  return e.sumAll(e.convert(isNeeded, type.getElementType()));
}

//===--- pieces -----------------------------------------------------------===//

// `each` where the index along `dim` compares so with this device's number,
// otherwise 0; summed along that dimension.
Value Exchange::whereDevice(ComparePredicate predicate, Value each,
                            unsigned dim) {
  Factor devices{local.mesh.size(axes), axes};
  Value me = Resharder(e, local.mesh, local.at).offsetOf(devices);
  auto type = tensorType(each);
  Value isMeant = e.compare(e.iota(type, dim), predicate,
                            e.broadcastScalar(me, type.getShape()));
  return e.sum(e.select(isMeant, each, e.zeros(type)), {dim});
}

// Gathers the counts of all devices: i32[from, to, group].
void Exchange::countRows(RowExchange &known) {
  int64_t devices = local.mesh.size(axes),
          all = tensorType(groups).getDimSize(0) - 1;
  OpBuilder &b = e.builder();
  known.home.firsts = e.slice(groups, {0}, {all});
  known.home.counts = e.sub(e.slice(groups, {1}, {all}), known.home.firsts);
  Value gathered = b.create<dist::AllGatherOp>(
      e.location(), i32({devices, all}), e.reshape(known.home.counts, {1, all}),
      FlatSymbolRefAttr::get(local.mesh.name), axisRefs(),
      b.getI64IntegerAttr(0), DenseI64ArrayAttr());
  known.all = e.reshape(gathered, {devices, devices, all / devices});
}

// Where this device's rows belong on the devices of their groups, and where on
// this one those that it receives: ordered by group, then by device.
void Exchange::placePieces(RowExchange &known, Value counts) {
  auto type = tensorType(counts);
  int64_t devices = type.getDimSize(0), own = type.getDimSize(2);
  Value ofGroups = e.sum(counts, {0}); // [to, group]
  Value begins = exclusiveSums(e, ofGroups);
  known.totals = e.sumLast(ofGroups);
  Value earlier = whereDevice(ComparePredicate::lt, counts, 0);
  known.home.starts = e.reshape(e.add(begins, earlier), {devices * own});
  Value mine = whereDevice(ComparePredicate::eq, counts, 1); // [from, group]
  Value myBegins = whereDevice(ComparePredicate::eq, begins, 0);
  Value before =
      e.transpose(exclusiveSums(e, e.transpose(mine, {1, 0})), {1, 0});
  known.come.counts = e.reshape(mine, {devices * own});
  known.come.starts =
      e.reshape(e.add(before, e.broadcastLast(myBegins, {devices, own})),
                {devices * own});
  known.ends =
      e.concat({myBegins, e.reshape(e.sumAll(mine), ArrayRef<int64_t>{1})}, 0);
}

//===--- rounds -----------------------------------------------------------===//

// A position among a device's rows as one in this round's buffer.
Value Exchange::inRound(Value position) {
  if (!isBounded)
    return position;
  if (local.round) {
    Value first = e.mul(local.round->number, double(sentRows));
    position = e.sub(position,
                     e.broadcastScalar(first, tensorType(position).getShape()));
  }
  return e.min(e.max(position, constant(0, position)),
               constant(sentRows, position));
}

// The part of each piece that this round sends.
Exchange::Part Exchange::partOf(const RowPieces &pieces) {
  Part part;
  part.begins = inRound(pieces.starts);
  part.counts =
      e.sub(inRound(e.add(pieces.starts, pieces.counts)), part.begins);
  return part;
}

// Rows of this device that earlier rounds sent of each piece.
Value Exchange::sentBefore(const RowPieces &pieces) {
  Value zero = constant(0, pieces.counts);
  if (!local.round)
    return zero;
  Value first = e.mul(local.round->number, double(sentRows));
  Value passed = e.sub(e.broadcastScalar(first, tensorType(zero).getShape()),
                       pieces.starts);
  return e.max(passed, zero);
}

void Exchange::placeRound(RowExchange &known) {
  Part home = partOf(known.home), come = partOf(known.come);
  Value firsts = local.round ? e.add(known.home.firsts, sentBefore(known.home))
                             : known.home.firsts;
  known.there = {home.counts, firsts, come.counts, come.begins};
  known.back = {come.counts, come.begins, home.counts, firsts};
  known.groups = offsetsOfAll(inRound(known.ends));
}

// As many offsets as all groups have; those of other devices are not used.
Value Exchange::offsetsOfAll(Value ends) {
  int64_t have = tensorType(ends).getDimSize(0),
          wanted = tensorType(groups).getDimSize(0);
  if (have == wanted)
    return ends;
  Value last = e.reshape(e.slice(ends, {have - 1}, {1}), {});
  return e.concat({ends, e.broadcastScalar(last, {wanted - have})}, 0);
}

// Positions among the rows of one device for another as those in this round.
Value Exchange::roundOfPairs(Value pairs) {
  if (local.round) {
    Value first = e.mul(local.round->number, double(slot));
    pairs =
        e.sub(pairs, e.broadcastScalar(first, tensorType(pairs).getShape()));
  }
  return e.min(e.max(pairs, constant(0, pairs)), constant(slot, pairs));
}

// A round is an exchange of the rows that it has of each pair of devices.
void Exchange::placePadded(RowExchange &known) {
  auto type = tensorType(known.all); // [from, to, group]
  int64_t devices = type.getDimSize(0), own = type.getDimSize(2);
  Value pairs = e.reshape(known.all, {devices * devices, own});
  known.totals = e.sumLast(pairs);
  Value before = exclusiveSums(e, pairs);
  Value begins = roundOfPairs(before);
  Value counts = e.reshape(e.sub(roundOfPairs(e.add(before, pairs)), begins),
                           type.getShape());
  RowExchange round;
  placePieces(round, counts);
  auto ofMine = [&](Value each) {
    return e.reshape(whereDevice(ComparePredicate::eq, each, 0),
                     {devices * own});
  };
  Value firsts = known.home.firsts;
  if (local.round) {
    Value first = e.mul(local.round->number, double(slot));
    Value passed =
        e.sub(e.broadcastScalar(first, tensorType(before).getShape()), before);
    passed = e.max(passed, constant(0, passed));
    firsts = e.add(firsts, ofMine(e.reshape(passed, type.getShape())));
  }
  Value sends = ofMine(counts);
  known.there = {sends, firsts, round.come.counts, round.come.starts};
  known.back = {round.come.counts, round.come.starts, sends, firsts};
  known.groups = offsetsOfAll(round.ends);
}

// Computed once for all exchanges of a block whose rows have this order; rounds
// after the first share the pieces with the first.
const RowExchange &Exchange::order() {
  Block *block = local.builder.getInsertionBlock();
  if (RowExchange &known = local.exchanges[{groups, block}]; known.groups)
    return known;
  RowExchange made;
  if (local.round)
    made = local.exchanges.lookup({groups, local.round->outer});
  if (!made.all) {
    countRows(made);
    if (slot == 0)
      placePieces(made, made.all);
  }
  slot > 0 ? placePadded(made) : placeRound(made);
  return local.exchanges[{groups, block}] = made;
}

//===--- ops --------------------------------------------------------------===//

Value Exchange::exchange(Value rows, const RowMoves &moves, int64_t most) {
  auto type = tensorType(rows);
  FlatSymbolRefAttr mesh = FlatSymbolRefAttr::get(local.mesh.name);
  if (slot > 0)
    return PaddedExchange(e, {local.mesh.size(axes), slot, mesh, axisRefs()})
        .emit(rows, moves, most);
  int64_t pieces = tensorType(moves.sends).getDimSize(0);
  SmallVector<Value> counts;
  for (Value row : {moves.sends, moves.firsts, moves.receives, moves.begins})
    counts.push_back(e.reshape(row, {1, pieces}));
  return e.builder().create<dist::ExchangeRowsOp>(
      e.location(), type.clone({most, type.getDimSize(1)}), rows,
      e.concat(counts, 0), mesh, axisRefs());
}

void Exchange::send(graph::SendRowsOp op) {
  const RowExchange &way = order();
  local.map.map(op.getSent(),
                exchange(local.map.lookup(op.getRows()), way.there, sentRows));
  local.map.map(op.getSentGroups(), way.groups);
}

void Exchange::bringBack(graph::ReturnRowsOp op) {
  const RowExchange &way = order();
  local.map.map(op.getResult(),
                exchange(local.map.lookup(op.getRows()), way.back,
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

OverflowRounds sharding::emitRounds(LocalOp &local, graph::SendRowsOp op) {
  Exchange exchange(local, op.getRows(), op.getSent(), op.getGroups());
  int64_t most = exchange.isNeeded() ? exchange.mostRounds() : 0;
  return {most, most > 0 ? exchange.rounds() : Value()};
}
