#include "passes/sharding/PaddedExchange.h"
#include "dialects/dist/DistOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::Emitter;
using graph::tensorType;
using ComparePredicate = graph::ComparePredicate;

Value sharding::exclusiveSums(Emitter &e, Value x) {
  int64_t rows = tensorType(x).getDimSize(0), n = tensorType(x).getDimSize(1);
  auto type = tensorType(x).clone({rows, n, n});
  Value isBefore =
      e.compare(e.iota(type, 2), ComparePredicate::lt, e.iota(type, 1));
  return e.sumLast(e.select(isBefore, e.broadcast(x, {0, 2}, type.getShape()),
                            e.zeros(type)));
}

// For each position the number that the piece has there which contains it: the
// position plus the piece's shift. 0 for a position in no piece. Pieces are
// along the last dimension of the positions.
static Value lookUp(Emitter &e, Value positions, Value begins, Value counts,
                    Value shifts, ArrayRef<int64_t> dims) {
  auto shape = tensorType(positions).getShape();
  auto wide = [&](Value each) { return e.broadcast(each, dims, shape); };
  Value zero = e.zeros(tensorType(positions));
  Value isBefore = e.compare(positions, ComparePredicate::lt, wide(begins));
  Value isBeforeEnd =
      e.compare(positions, ComparePredicate::lt, wide(e.add(begins, counts)));
  Value number = e.add(positions, wide(shifts));
  return e.sumLast(
      e.select(isBefore, zero, e.select(isBeforeEnd, number, zero)));
}

// [devices × slot, width]. What is in slots of no row is not read.
Value PaddedExchange::packed(Value rows, const RowMoves &moves) {
  int64_t pieces = tensorType(moves.sends).getDimSize(0) / devices.count;
  auto ofDevices = [&](Value each) {
    return e.reshape(each, {devices.count, pieces});
  };
  Value counts = ofDevices(moves.sends);
  Value begins = exclusiveSums(e, counts);
  Value positions = e.iota(i32({devices.count, devices.slot, pieces}), 1);
  Value numbers = lookUp(e, positions, begins, counts,
                         e.sub(ofDevices(moves.firsts), begins), {0, 2});
  return e.embedding(rows, e.reshape(numbers, {devices.count * devices.slot}));
}

Value PaddedExchange::unpacked(Value slots, const RowMoves &moves,
                               int64_t most) {
  int64_t pieces = tensorType(moves.receives).getDimSize(0);
  auto type = i32({devices.count, pieces / devices.count});
  Value inSlots =
      e.add(exclusiveSums(e, e.reshape(moves.receives, type.getShape())),
            e.mul(e.iota(type, 0), double(devices.slot)));
  // From 1, so that 0 is a place to which no row comes.
  Value shifts = e.add(e.sub(e.reshape(inSlots, {pieces}), moves.begins), 1.0);
  Value numbers = lookUp(e, e.iota(i32({most, pieces}), 0), moves.begins,
                         moves.receives, shifts, {1});
  OwnRows own(e, numbers, e.splat(1, i32({})), tensorType(slots).getDimSize(0));
  return own.masked(e, e.embedding(slots, own.numbers));
}

Value PaddedExchange::emit(Value rows, const RowMoves &moves, int64_t most) {
  Value slots = packed(rows, moves);
  Value moved = e.builder().create<dist::AllToAllOp>(
      e.location(), slots.getType(), slots, devices.mesh, devices.axes,
      e.builder().getI64IntegerAttr(0), e.builder().getI64IntegerAttr(0));
  return unpacked(moved, moves, most);
}
