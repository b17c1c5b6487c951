// Rows added by index, without atomics: a block owns a range of the table's
// rows, walks over all indices and adds the updates that fall into its range in
// their order. The result does not depend on how work is divided.
#include "passes/tiling/ClusterLaunch.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Rows of a block: few enough to feed all threads, so many that walking over
// the indices is cheap beside the adding.
static int64_t rowsPerBlock(int64_t rows) {
  return std::max<int64_t>(partsOf(rows, 64), 16);
}

namespace {

// One kernel. Root 0 of the piece is the update, root 1 its row.
struct ScatterKernel {
  ScatterAddOp op;
  const ExprPiece &piece;
  Value base;
  const TileTarget &target;
  Value begin, end; ///< rows of the block

  void overIndices(EmitScope &level, unsigned dim);
  void addRow(EmitScope &level);
  void overWidth(EmitScope &level, unsigned dim, Value row);
  void addTile(EmitScope &tile, Value row);
};

} // namespace

void ScatterKernel::overIndices(EmitScope &level, unsigned dim) {
  if (dim == piece.groups[0])
    return addRow(level);
  forEachIndex(level, dim,
               [&](EmitScope &inner) { overIndices(inner, dim + 1); });
}

void ScatterKernel::addRow(EmitScope &level) {
  OpBuilder &b = level.builder;
  Location loc = level.loc();
  Value row = b.create<arith::IndexCastOp>(loc, b.getIndexType(),
                                           level.emit(piece.roots[1].node));
  auto compare = [&](arith::CmpIPredicate predicate, Value bound) -> Value {
    return b.create<arith::CmpIOp>(loc, predicate, row, bound);
  };
  Value mine =
      b.create<arith::AndIOp>(loc, compare(arith::CmpIPredicate::sge, begin),
                              compare(arith::CmpIPredicate::slt, end));
  auto branch = b.create<scf::IfOp>(loc, mine, /*withElseRegion=*/false);
  b.setInsertionPoint(branch);
  EmitScope inner(level, branch.getThenBodyBuilder());
  overWidth(inner, piece.groups[0], row);
  b.setInsertionPointAfter(branch);
}

void ScatterKernel::overWidth(EmitScope &level, unsigned dim, Value row) {
  if (dim + 1 < piece.rank())
    return forEachIndex(
        level, dim, [&](EmitScope &inner) { overWidth(inner, dim + 1, row); });
  forEachTile(level, dim, target, [&](EmitScope &tile) { addTile(tile, row); });
}

void ScatterKernel::addTile(EmitScope &tile, Value row) {
  RankedTensorType type = tensorType(op.getBase());
  Linear place = Linear::zero(piece.rank());
  int64_t stride = 1;
  for (unsigned dim = piece.rank(); dim-- > piece.groups[0];) {
    place.coefficients[dim] = stride;
    stride *= piece.sizes[dim];
  }
  int64_t width = type.getDimSize(1);
  Value update = tile.emitTile(piece.roots[0].node);
  Value old = tile.load(base, type.getElementType(), place, row, width);
  if (update.getType() != old.getType())
    update =
        tile.builder.create<arith::ExtFOp>(tile.loc(), old.getType(), update);
  Value sum = tile.builder.create<arith::AddFOp>(tile.loc(), old, update);
  tile.store(sum, type.getElementType(), base, place, row, width);
}

llvm::Expected<SmallVector<Value>>
tessera::tileScatter(ClusterOp cluster, TilingContext &context) {
  auto op = *cluster.getBody().front().getOps<ScatterAddOp>().begin();
  llvm::Expected<ClusterExpression> expression =
      buildExpression(cluster, scatterExpression(op));
  if (!expression)
    return expression.takeError();
  if (expression->pieces.size() != 1)
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   "updates of a scatter are one piece");
  ClusterLaunch launch(cluster, *expression, tile::Skeleton::scatter,
                       cluster.getResultTypes(), op.getBase());
  launch.spec.reuse.clear();
  int64_t rows = tensorType(op.getBase()).getDimSize(0);
  int64_t perBlock = rowsPerBlock(rows);
  launch.spec.blocks = partsOf(rows, perBlock);
  launch.spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                          OpBuilder &b) -> llvm::Error {
    Location loc = kernel.getLoc();
    const ExprPiece &piece = expression->pieces.front();
    EmitTarget emitTarget{piece, launch.argumentBuffers(kernel), loc};
    Value size = emitIndex(b, loc, perBlock);
    Value begin = b.create<arith::MulIOp>(loc, kernel.getBlockNumber(), size);
    Value end = b.create<arith::AddIOp>(loc, begin, size);
    ScatterKernel scatter{op,     piece, launch.resultBuffers(kernel)[0],
                          target, begin, end};
    EmitScope top(emitTarget, b);
    scatter.overIndices(top, 0);
    return llvm::Error::success();
  };
  return launch.emit(context);
}
