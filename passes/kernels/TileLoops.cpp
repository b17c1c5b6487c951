// The loops that skeletons share: rows of a block, register tiles of a row.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/gpu/InFlight.h"

using namespace mlir;
using namespace tessera;

SmallVector<int64_t> tessera::remainderTiles(int64_t count, int64_t width,
                                             int64_t lanes) {
  SmallVector<int64_t> tiles;
  int64_t rest = count % width;
  if (int64_t whole = rest / lanes * lanes)
    tiles.push_back(whole);
  if (rest % lanes)
    tiles.push_back(rest % lanes);
  return tiles;
}

int64_t tessera::tileWidth(const TileTarget &target, const ExprPiece &piece) {
  int64_t cost = 0;
  for (const ExprNode &node : piece.nodes)
    if (piece.dependsOn(node, piece.rank() - 1))
      cost += nodeCost(node);
  return target.lanes * (cost <= 32 ? 4 : cost <= 64 ? 2 : 1);
}

int64_t tessera::tilesAtOnce(const TileTarget &target, const ExprPiece &piece) {
  int64_t loads = llvm::count_if(piece.nodes, [&](const ExprNode &node) {
    return node.kind == ExprNode::load &&
           piece.dependsOn(node, piece.rank() - 1);
  });
  return target.gpu ? gpu::tilesInFlight(loads) : 1;
}

// A level inside `loop`, whose body starts with what `level` knows.
static EmitScope enter(EmitScope &level, scf::ForOp loop) {
  level.builder.setInsertionPoint(loop);
  return EmitScope(level,
                   OpBuilder::atBlockTerminator(&loop.getRegion().front()));
}

void tessera::forEachIndex(EmitScope &level, unsigned dim,
                           llvm::function_ref<void(EmitScope &)> body) {
  Location loc = level.loc();
  int64_t size = level.target.piece.sizes[dim];
  if (size == 1) {
    level.setIndex(dim, emitIndex(level.builder, loc, 0));
    return body(level);
  }
  Value zero = emitIndex(level.builder, loc, 0),
        one = emitIndex(level.builder, loc, 1);
  auto loop = level.builder.create<scf::ForOp>(
      loc, zero, emitIndex(level.builder, loc, size), one);
  EmitScope inner = enter(level, loop);
  inner.setIndex(dim, loop.getInductionVar());
  body(inner);
  level.builder.setInsertionPointAfter(loop);
}

void tessera::oneTile(EmitScope &level, unsigned dim, Value index,
                      int64_t width,
                      llvm::function_ref<void(EmitScope &)> body) {
  EmitScope inner(level, level.builder);
  inner.setIndex(dim, index);
  // A dimension of one element has no tile: its values are scalars.
  if (level.target.piece.sizes[dim] > 1)
    inner.setTile({{dim, width}});
  // Values of the outer level that the tile needs are emitted before it.
  Operation *mark =
      level.builder.create<arith::ConstantIndexOp>(level.loc(), 0);
  inner.builder.setInsertionPointAfter(mark);
  level.builder.setInsertionPoint(mark);
  body(inner);
  level.builder = inner.builder;
  mark->erase();
}

static void tileLoop(EmitScope &level, unsigned dim, Value begin, Value end,
                     int64_t width,
                     llvm::function_ref<void(EmitScope &)> body) {
  Location loc = level.loc();
  auto loop = level.builder.create<scf::ForOp>(
      loc, begin, end, emitIndex(level.builder, loc, width));
  EmitScope inner = enter(level, loop);
  inner.setIndex(dim, loop.getInductionVar());
  inner.setTile({{dim, width}});
  body(inner);
  level.builder.setInsertionPointAfter(loop);
}

void tessera::forEachTile(EmitScope &level, unsigned dim,
                          const TileTarget &target,
                          llvm::function_ref<void(EmitScope &)> body) {
  const ExprPiece &piece = level.target.piece;
  int64_t size = piece.sizes[dim];
  // All loads of a tile are before its stores.
  int64_t width = gpu::widthInFlight(tileWidth(target, piece), size,
                                     tilesAtOnce(target, piece));
  OpBuilder &b = level.builder;
  Location loc = level.loc();
  int64_t whole = size / width * width;
  if (whole == width)
    oneTile(level, dim, emitIndex(b, loc, 0), width, body);
  else if (whole)
    tileLoop(level, dim, emitIndex(b, loc, 0), emitIndex(b, loc, whole), width,
             body);
  int64_t at = whole;
  for (int64_t rest : remainderTiles(size, width, target.lanes)) {
    oneTile(level, dim, emitIndex(b, loc, at), rest, body);
    at += rest;
  }
}

void tessera::forEachTileOfChunk(EmitScope &level, unsigned dim, Value begin,
                                 int64_t chunk, const TileTarget &target,
                                 llvm::function_ref<void(EmitScope &)> body) {
  int64_t size = level.target.piece.sizes[dim],
          width = std::min(tileWidth(target, level.target.piece), chunk);
  assert(chunk % width == 0 && "chunks are whole tiles but the last");
  OpBuilder &b = level.builder;
  Location loc = level.loc();
  int64_t whole = size / width * width;
  Value end = b.create<arith::AddIOp>(loc, begin, emitIndex(b, loc, chunk));
  Value wholeEnd = b.create<arith::MinSIOp>(loc, end, emitIndex(b, loc, whole));
  tileLoop(level, dim, begin, wholeEnd, width, body);
  if (whole == size)
    return;
  Value last = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::uge, end,
                                       emitIndex(b, loc, size));
  auto branch = b.create<scf::IfOp>(loc, last, /*withElseRegion=*/false);
  b.setInsertionPoint(branch);
  EmitScope inner(level, branch.getThenBodyBuilder());
  int64_t at = whole;
  for (int64_t rest : remainderTiles(size, width, target.lanes)) {
    oneTile(inner, dim, emitIndex(inner.builder, loc, at), rest, body);
    at += rest;
  }
  b.setInsertionPointAfter(branch);
}

//===--- blocks -----------------------------------------------------------===//

void tessera::setRowIndices(EmitScope &scope, const RowGrid &grid, Value row) {
  OpBuilder &b = scope.builder;
  Location loc = scope.loc();
  for (unsigned dim = grid.dims; dim-- > 0;) {
    Value index = row;
    if (dim > 0) {
      Value size = emitIndex(b, loc, scope.target.piece.sizes[dim]);
      index = b.create<arith::RemUIOp>(loc, row, size);
      row = b.create<arith::DivUIOp>(loc, row, size);
    }
    scope.setIndex(dim, index);
  }
}

void tessera::forEachRow(EmitScope &level, const RowGrid &grid, Value block,
                         llvm::function_ref<void(EmitScope &)> body) {
  OpBuilder &b = level.builder;
  Location loc = level.loc();
  if (grid.perBlock == 1 || grid.rows <= 1) {
    EmitScope inner(level, b);
    Operation *mark = b.create<arith::ConstantIndexOp>(loc, 0);
    inner.builder.setInsertionPointAfter(mark);
    level.builder.setInsertionPoint(mark);
    setRowIndices(inner, grid, block);
    body(inner);
    level.builder = inner.builder;
    mark->erase();
    return;
  }
  Value perBlock = emitIndex(b, loc, grid.perBlock);
  Value begin = b.create<arith::MulIOp>(loc, block, perBlock);
  Value end = b.create<arith::AddIOp>(loc, begin, perBlock);
  if (grid.rows % grid.perBlock)
    end = b.create<arith::MinSIOp>(loc, end, emitIndex(b, loc, grid.rows));
  auto loop = b.create<scf::ForOp>(loc, begin, end, emitIndex(b, loc, 1));
  EmitScope inner = enter(level, loop);
  setRowIndices(inner, grid, loop.getInductionVar());
  body(inner);
  level.builder.setInsertionPointAfter(loop);
}

void tessera::forPieceOfBlock(
    OpBuilder &builder, Location loc, Value block, ArrayRef<int64_t> ends,
    llvm::function_ref<void(OpBuilder &, unsigned, Value)> body) {
  OpBuilder::InsertionGuard guard(builder);
  OpBuilder b = builder;
  for (unsigned piece = 0; piece < ends.size(); ++piece) {
    Value local = block;
    if (piece > 0)
      local = b.create<arith::SubIOp>(loc, block,
                                      emitIndex(b, loc, ends[piece - 1]));
    if (piece + 1 == ends.size())
      return body(b, piece, local);
    Value here = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ult, block,
                                         emitIndex(b, loc, ends[piece]));
    auto branch = b.create<scf::IfOp>(loc, here, /*withElseRegion=*/true);
    OpBuilder then = branch.getThenBodyBuilder();
    body(then, piece, local);
    b = branch.getElseBodyBuilder();
  }
}
