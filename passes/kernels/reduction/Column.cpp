// Column clusters: reductions over leading dimensions. A block owns a run of
// neighbouring columns and walks down all rows in order, so that the result
// does not depend on the number of blocks. Rounding errors of sums of floats
// are summed, too, and added at the end (Ogita, Rump & Oishi 2005, Sum2): tall
// sums are as exact as short ones, and rows of zeros change no bit, so that a
// sum over tokens does not depend on the padding between them.
#include "passes/kernels/reduction/Reductions.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Columns of a block: a multiple of every target's tile.
static constexpr int64_t kPanelColumns = 64;

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
  bool hasErrors(unsigned node) const;
  SmallVector<Value> inits(EmitScope &tile);
  SmallVector<Value> add(OpBuilder &b, Location loc, ValueRange carried,
                         ValueRange operands);
  SmallVector<Value> down(EmitScope &tile, unsigned dim, ValueRange carried);
  void store(EmitScope &tile);
};

} // namespace

bool ColumnKernel::hasErrors(unsigned node) const {
  return kindOf(piece.nodes[node]) == ReduceKind::sum &&
         isa<FloatType>(heldElement(piece.nodes[node].element));
}

// Of each reduction, then the errors of each, which only sums of floats have.
SmallVector<Value> ColumnKernel::inits(EmitScope &tile) {
  SmallVector<Value> sums, errors;
  for (unsigned node : reductions) {
    Type held = heldElement(piece.nodes[node].element);
    auto all = [&](ReduceKind kind) {
      Value scalar = neutral(tile.builder, tile.loc(), kind, held);
      if (tile.isScalar())
        return scalar;
      return Value(tile.builder.create<tile::BroadcastOp>(
          tile.loc(), tile.tileType(held), scalar, ArrayRef<int64_t>()));
    };
    sums.push_back(all(kindOf(piece.nodes[node])));
    errors.push_back(all(ReduceKind::sum));
  }
  sums.append(errors);
  return sums;
}

SmallVector<Value> ColumnKernel::add(OpBuilder &b, Location loc,
                                     ValueRange carried, ValueRange operands) {
  SmallVector<Value> sums, errors(carried.drop_front(reductions.size()));
  for (auto [i, node] : llvm::enumerate(reductions)) {
    Value x = carried[i], y = operands[i];
    sums.push_back(combine(b, loc, kindOf(piece.nodes[node]), x, y));
    if (!hasErrors(node))
      continue;
    // TwoSum (Knuth): x + y = sum + error, exactly.
    auto plus = [&](Value a, Value c) {
      return b.create<arith::AddFOp>(loc, a, c);
    };
    auto minus = [&](Value a, Value c) {
      return b.create<arith::SubFOp>(loc, a, c);
    };
    Value added = minus(sums.back(), x);
    Value error = plus(minus(x, minus(sums.back(), added)), minus(y, added));
    errors[i] = plus(errors[i], error);
  }
  sums.append(errors);
  return sums;
}

// All of dimension `dim` and those below, added to `carried`.
SmallVector<Value> ColumnKernel::down(EmitScope &tile, unsigned dim,
                                      ValueRange carried) {
  OpBuilder &b = tile.builder;
  Location loc = tile.loc();
  auto rows = b.create<scf::ForOp>(loc, emitIndex(b, loc, 0),
                                   emitIndex(b, loc, piece.sizes[dim]),
                                   emitIndex(b, loc, 1), carried);
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
    next = add(row.builder, loc, rows.getRegionIterArgs(), operands);
  }
  row.builder.create<scf::YieldOp>(loc, next);
  b.setInsertionPointAfter(rows);
  return SmallVector<Value>(rows.getResults());
}

void ColumnKernel::store(EmitScope &tile) {
  SmallVector<Value> values;
  for (const ExprPiece::Root &root : piece.roots)
    values.push_back(tile.emitTile(root.node));
  for (auto [i, root] : llvm::enumerate(piece.roots))
    tile.store(values[i], tensorType(cluster.getResult(i)).getElementType(),
               results[i], root.address);
}

// The error of an infinite sum is NaN.
static Value withError(EmitScope &tile, Value sum, Value error) {
  OpBuilder &b = tile.builder;
  Location loc = tile.loc();
  Value isNumber =
      b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::OEQ, error, error);
  return b.create<arith::SelectOp>(
      loc, isNumber, b.create<arith::AddFOp>(loc, sum, error), sum);
}

void ColumnKernel::emitMicropanel(EmitScope &tile) {
  SmallVector<Value> sums = down(tile, firstReduced(), inits(tile));
  for (auto [i, node] : llvm::enumerate(reductions)) {
    Value sum = sums[i];
    if (hasErrors(node))
      sum = withError(tile, sum, sums[reductions.size() + i]);
    tile.set(node, sum);
  }
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
  return {{last, rows, 1}, partsOf(piece.sizes[last], kPanelColumns)};
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
      emitIndex(b, loc, kPanelColumns));
  EmitScope top(emitTarget, b);
  unsigned last = grid.rows.dims;
  forEachRow(top, grid.rows, row, [&](EmitScope &level) {
    auto micropanel = [&](EmitScope &tile) { columns.emitMicropanel(tile); };
    if (grid.micropanels == 1)
      forEachTile(level, last, target, micropanel);
    else
      forEachTileOfChunk(level, last, begin, kPanelColumns, target, micropanel);
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
