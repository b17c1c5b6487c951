// Column clusters: reductions over leading dimensions. A block owns a run of
// neighbouring columns and walks down all rows in order, so that the result
// does not depend on the number of blocks. Partial sums of a few rows are added
// to a second accumulator, which keeps rounding errors small in tall sums.
#include "passes/kernels/reduction/Reductions.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Columns of a block: a multiple of every target's tile.
static constexpr int64_t kMicropanel = 64;
// Rows whose partial sums are taken together.
static constexpr int64_t kRun = 64;

namespace {

// One piece of one kernel.
struct ColumnKernel {
  ClusterOp cluster;
  const ExprPiece &piece;
  ArrayRef<Value> results;
  const TileTarget &target;
  SmallVector<unsigned> reductions;

  unsigned firstReduced() const { return piece.rank() - piece.groups.back(); }
  void emitMicropanel(EmitScope &level);
  SmallVector<Value> combineAll(OpBuilder &b, Location loc, ValueRange xs,
                                ValueRange ys);
  SmallVector<Value> inits(EmitScope &tile);
  SmallVector<Value> loop(EmitScope &tile, Value begin, Value end,
                          ValueRange carried, unsigned dim);
  SmallVector<Value> down(EmitScope &tile, unsigned dim, ValueRange carried);
  void store(EmitScope &tile);
};

} // namespace

SmallVector<Value> ColumnKernel::combineAll(OpBuilder &b, Location loc,
                                            ValueRange xs, ValueRange ys) {
  SmallVector<Value> values;
  for (auto [i, node] : llvm::enumerate(reductions))
    values.push_back(combine(b, loc, kindOf(piece.nodes[node]), xs[i], ys[i]));
  return values;
}

SmallVector<Value> ColumnKernel::inits(EmitScope &tile) {
  SmallVector<Value> values;
  for (unsigned node : reductions) {
    Type held = heldElement(piece.nodes[node].element);
    Value scalar =
        neutral(tile.builder, tile.loc(), kindOf(piece.nodes[node]), held);
    if (!tile.isScalar())
      scalar = tile.builder.create<tile::BroadcastOp>(
          tile.loc(), tile.tileType(held), scalar, ArrayRef<int64_t>());
    values.push_back(scalar);
  }
  return values;
}

// Rows [begin, end) of dimension `dim`.
SmallVector<Value> ColumnKernel::loop(EmitScope &tile, Value begin, Value end,
                                      ValueRange carried, unsigned dim) {
  OpBuilder &b = tile.builder;
  Location loc = tile.loc();
  auto rows =
      b.create<scf::ForOp>(loc, begin, end, emitIndex(b, loc, 1), carried);
  b.setInsertionPoint(rows);
  EmitScope row(tile, OpBuilder::atBlockEnd(rows.getBody()));
  row.setIndex(dim, rows.getInductionVar());
  row.copyTile(tile);
  SmallVector<Value> next;
  if (dim + 1 < piece.rank()) {
    next = down(row, dim + 1, rows.getRegionIterArgs());
  } else {
    SmallVector<Value> operands;
    for (unsigned node : reductions)
      operands.push_back(row.emitTile(piece.nodes[node].operands[0]));
    next = combineAll(row.builder, loc, rows.getRegionIterArgs(), operands);
  }
  row.builder.create<scf::YieldOp>(loc, next);
  b.setInsertionPointAfter(rows);
  return SmallVector<Value>(rows.getResults());
}

// All of dimension `dim` and those below, added to `carried`.
SmallVector<Value> ColumnKernel::down(EmitScope &tile, unsigned dim,
                                      ValueRange carried) {
  OpBuilder &b = tile.builder;
  Location loc = tile.loc();
  int64_t rows = piece.sizes[dim];
  if (dim + 1 < piece.rank() || rows <= 2 * kRun)
    return loop(tile, emitIndex(b, loc, 0), emitIndex(b, loc, rows), carried,
                dim);
  auto runs = b.create<scf::ForOp>(loc, emitIndex(b, loc, 0),
                                   emitIndex(b, loc, rows / kRun * kRun),
                                   emitIndex(b, loc, kRun), carried);
  b.setInsertionPoint(runs);
  EmitScope run(tile, OpBuilder::atBlockEnd(runs.getBody()));
  run.copyTile(tile);
  Value begin = runs.getInductionVar();
  Value end = run.builder.create<arith::AddIOp>(
      loc, begin, emitIndex(run.builder, loc, kRun));
  SmallVector<Value> partial = loop(run, begin, end, inits(run), dim);
  run.builder.create<scf::YieldOp>(
      loc, combineAll(run.builder, loc, runs.getRegionIterArgs(), partial));
  b.setInsertionPointAfter(runs);
  SmallVector<Value> sums(runs.getResults());
  if (rows % kRun)
    sums = loop(tile, emitIndex(b, loc, rows / kRun * kRun),
                emitIndex(b, loc, rows), sums, dim);
  return sums;
}

void ColumnKernel::store(EmitScope &tile) {
  SmallVector<Value> values;
  for (const ExprPiece::Root &root : piece.roots)
    values.push_back(tile.emitTile(root.node));
  for (auto [i, root] : llvm::enumerate(piece.roots))
    tile.store(values[i], tensorType(cluster.getResult(i)).getElementType(),
               results[i], root.address);
}

void ColumnKernel::emitMicropanel(EmitScope &tile) {
  SmallVector<Value> sums = down(tile, firstReduced(), inits(tile));
  for (auto [node, sum] : llvm::zip_equal(reductions, sums))
    tile.set(node, sum);
  store(tile);
}

//===--- entry ------------------------------------------------------------===//

namespace {

// Runs of columns of the last kept dimension, times all other kept dimensions.
struct ColumnGrid {
  RowGrid rows;
  int64_t micropanels;
};

} // namespace

static ColumnGrid planGrid(const ExprPiece &piece) {
  unsigned last = piece.rank() - piece.groups.back() - 1;
  int64_t rows = 1;
  for (unsigned dim = 0; dim < last; ++dim)
    rows *= piece.sizes[dim];
  return {{last, rows, 1}, partsOf(piece.sizes[last], kMicropanel)};
}

static void buildPiece(tile::KernelOp kernel, const ClusterLaunch &launch,
                       ClusterOp cluster, const ExprPiece &piece,
                       const ColumnGrid &grid, Value block,
                       const TileTarget &target, OpBuilder &b) {
  Location loc = kernel.getLoc();
  EmitTarget emitTarget{piece, launch.argumentBuffers(kernel), loc};
  SmallVector<Value> results = launch.resultBuffers(kernel);
  ColumnKernel columns{cluster, piece, results, target, {}};
  for (auto [i, node] : llvm::enumerate(piece.nodes))
    if (node.kind == ExprNode::reduce)
      columns.reductions.push_back(i);
  Value micropanels = emitIndex(b, loc, grid.micropanels);
  Value row = b.create<arith::DivUIOp>(loc, block, micropanels);
  Value begin = b.create<arith::MulIOp>(
      loc, b.create<arith::RemUIOp>(loc, block, micropanels),
      emitIndex(b, loc, kMicropanel));
  EmitScope top(emitTarget, b);
  unsigned last = grid.rows.dims;
  forEachRow(top, grid.rows, row, [&](EmitScope &level) {
    auto micropanel = [&](EmitScope &tile) { columns.emitMicropanel(tile); };
    if (grid.micropanels == 1)
      forEachTile(level, last, target, micropanel);
    else
      forEachTileOfChunk(level, last, begin, kMicropanel, target, micropanel);
  });
}

llvm::Expected<SmallVector<Value>> tessera::tileColumn(ClusterOp cluster,
                                                       TilingContext &context) {
  llvm::Expected<ClusterExpression> expression = buildExpression(cluster);
  if (!expression)
    return expression.takeError();
  if (context.isGpu() && isTallColumn(*expression))
    return tileGpuColumn(cluster, *expression, context);
  ClusterLaunch launch(cluster, *expression, tile::Skeleton::column,
                       cluster.getResultTypes());
  SmallVector<ColumnGrid> grids;
  SmallVector<int64_t> ends;
  for (const ExprPiece &piece : expression->pieces) {
    grids.push_back(planGrid(piece));
    launch.spec.blocks += grids.back().rows.blocks() * grids.back().micropanels;
    ends.push_back(launch.spec.blocks);
  }
  launch.spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                          OpBuilder &b) -> llvm::Error {
    forPieceOfBlock(b, kernel.getLoc(), kernel.getBlockNumber(), ends,
                    [&](OpBuilder &inner, unsigned i, Value block) {
                      buildPiece(kernel, launch, cluster, expression->pieces[i],
                                 grids[i], block, target, inner);
                    });
    return llvm::Error::success();
  };
  return launch.emit(context);
}
