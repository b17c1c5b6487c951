// Rows written by index. Rows are added without atomics: a block owns a range
// of the table's rows, walks over all indices and adds the updates of its range
// in order, so the result does not depend on the number of blocks. If rows are
// replaced no two updates have the same row, and a block owns some of the
// updates.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/gpu/InFlight.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Rows of a block: few enough to occupy all threads, so many that walking over
// the indices is cheap compared with the additions. Frequent rows are often
// next to each other (tokens by frequency): many blocks divide them, but as all
// of a GPU's threads walk, no more than one for each multiprocessor.
static int64_t rowsPerBlock(int64_t rows, const TileTarget &target) {
  constexpr int64_t kBlocksOfCpu = 64;
  int64_t blocks = target.gpu ? target.multiprocessors : kBlocksOfCpu;
  return std::max<int64_t>(partsOf(rows, blocks), 16);
}

// Indices that a GPU's thread loads before it compares one, since a round trip
// for each would take longer than all additions: the integers of two sectors.
// Most are other blocks' rows.
static constexpr int64_t kIndicesAtOnce = 16;

namespace {

// One kernel. Root 0 of the piece is the update, root 1 its row.
struct ScatterKernel {
  RowScatter op;
  const ExprPiece &piece;
  Value base;
  const TileTarget &target;
  Value begin, end; ///< rows of the block

  void overIndices(EmitScope &level, unsigned dim);
  void overRuns(EmitScope &level, unsigned dim);
  Value hasOwn(EmitScope &level, unsigned dim, Value run);
  void addRows(EmitScope &level, unsigned dim, Value begin, int64_t count);
  void addRow(EmitScope &level);
  Value isOwn(EmitScope &level);
  void replaceRow(EmitScope &level);
  Value rowOf(EmitScope &level);
  void overWidthIf(EmitScope &level, Value condition, Value row);
  void overWidth(EmitScope &level, unsigned dim, Value row);
  void writeTile(EmitScope &tile, Value row);
};

} // namespace

void ScatterKernel::overIndices(EmitScope &level, unsigned dim) {
  if (dim == piece.groups[0])
    return addRow(level);
  if (target.gpu && dim + 1 == piece.groups[0] &&
      piece.sizes[dim] > kIndicesAtOnce)
    return overRuns(level, dim);
  forEachIndex(level, dim,
               [&](EmitScope &inner) { overIndices(inner, dim + 1); });
}

// Runs of indices: of one without a row of the block nothing else is done.
void ScatterKernel::overRuns(EmitScope &level, unsigned dim) {
  int64_t size = piece.sizes[dim], whole = size - size % kIndicesAtOnce;
  KernelOps e{level.builder, level.loc()};
  auto loop = e.b.create<scf::ForOp>(e.loc, e.index(0), e.index(whole),
                                     e.index(kIndicesAtOnce));
  level.builder.setInsertionPoint(loop);
  EmitScope inner(level, OpBuilder::atBlockTerminator(loop.getBody()));
  Value run = loop.getInductionVar(), some = hasOwn(inner, dim, run);
  auto branch =
      inner.builder.create<scf::IfOp>(e.loc, some, /*withElseRegion=*/false);
  inner.builder.setInsertionPoint(branch);
  EmitScope own(inner, branch.getThenBodyBuilder());
  addRows(own, dim, run, kIndicesAtOnce);
  level.builder.setInsertionPointAfter(loop);
  if (whole < size)
    addRows(level, dim, emitIndex(level.builder, e.loc, whole), size - whole);
}

// Whether the block has the row of one of the indices from `run` on.
Value ScatterKernel::hasOwn(EmitScope &level, unsigned dim, Value run) {
  OpBuilder &b = level.builder;
  Location loc = level.loc();
  Value none = b.create<arith::ConstantOp>(loc, b.getBoolAttr(false));
  auto loop = b.create<scf::ForOp>(loc, emitIndex(b, loc, 0),
                                   emitIndex(b, loc, kIndicesAtOnce),
                                   emitIndex(b, loc, 1), ValueRange(none));
  loop->setAttr(gpu::kUnrollByAttr, b.getI64IntegerAttr(kIndicesAtOnce));
  b.setInsertionPoint(loop);
  EmitScope inner(level, OpBuilder::atBlockEnd(loop.getBody()));
  OpBuilder &each = inner.builder;
  inner.setIndex(dim,
                 each.create<arith::AddIOp>(loc, run, loop.getInductionVar()));
  Value own = isOwn(inner);
  each.create<scf::YieldOp>(loc, ValueRange(each.create<arith::OrIOp>(
                                     loc, loop.getRegionIterArg(0), own)));
  b.setInsertionPointAfter(loop);
  return loop.getResult(0);
}

// The updates of `count` indices from `begin` on.
void ScatterKernel::addRows(EmitScope &level, unsigned dim, Value begin,
                            int64_t count) {
  OpBuilder &b = level.builder;
  Location loc = level.loc();
  Value end = b.create<arith::AddIOp>(loc, begin, emitIndex(b, loc, count));
  auto loop = b.create<scf::ForOp>(loc, begin, end, emitIndex(b, loc, 1));
  b.setInsertionPoint(loop);
  EmitScope inner(level, OpBuilder::atBlockTerminator(loop.getBody()));
  inner.setIndex(dim, loop.getInductionVar());
  addRow(inner);
  b.setInsertionPointAfter(loop);
}

void ScatterKernel::addRow(EmitScope &level) {
  Value own = isOwn(level);
  overWidthIf(level, own, rowOf(level));
}

Value ScatterKernel::isOwn(EmitScope &level) {
  OpBuilder &b = level.builder;
  Location loc = level.loc();
  Value row = rowOf(level);
  auto compare = [&](arith::CmpIPredicate predicate, Value bound) -> Value {
    return b.create<arith::CmpIOp>(loc, predicate, row, bound);
  };
  return b.create<arith::AndIOp>(loc, compare(arith::CmpIPredicate::sge, begin),
                                 compare(arith::CmpIPredicate::slt, end));
}

void ScatterKernel::replaceRow(EmitScope &level) {
  OpBuilder &b = level.builder;
  Value row = rowOf(level);
  overWidthIf(level,
              b.create<arith::CmpIOp>(level.loc(), arith::CmpIPredicate::sge,
                                      row, emitIndex(b, level.loc(), 0)),
              row);
}

Value ScatterKernel::rowOf(EmitScope &level) {
  OpBuilder &b = level.builder;
  return b.create<arith::IndexCastOp>(level.loc(), b.getIndexType(),
                                      level.emit(piece.roots[1].node));
}

void ScatterKernel::overWidthIf(EmitScope &level, Value condition, Value row) {
  OpBuilder &b = level.builder;
  auto branch =
      b.create<scf::IfOp>(level.loc(), condition, /*withElseRegion=*/false);
  b.setInsertionPoint(branch);
  EmitScope inner(level, branch.getThenBodyBuilder());
  overWidth(inner, piece.groups[0], row);
  b.setInsertionPointAfter(branch);
}

void ScatterKernel::overWidth(EmitScope &level, unsigned dim, Value row) {
  if (dim + 1 < piece.rank())
    return forEachIndex(
        level, dim, [&](EmitScope &inner) { overWidth(inner, dim + 1, row); });
  forEachTile(level, dim, target,
              [&](EmitScope &tile) { writeTile(tile, row); });
}

void ScatterKernel::writeTile(EmitScope &tile, Value row) {
  RankedTensorType type = tensorType(op.getBase());
  Linear place = Linear::zero(piece.rank());
  int64_t stride = 1;
  for (unsigned dim = piece.rank(); dim-- > piece.groups[0];) {
    place.coefficients[dim] = stride;
    stride *= piece.sizes[dim];
  }
  int64_t width = type.getDimSize(1);
  Value update = tile.emitTile(piece.roots[0].node);
  if (!op.adds())
    return tile.store(update, type.getElementType(), base, place, row, width);
  Value old = tile.load(base, type.getElementType(), place, row, width);
  if (update.getType() != old.getType())
    update =
        tile.builder.create<arith::ExtFOp>(tile.loc(), old.getType(), update);
  Value sum = tile.builder.create<arith::AddFOp>(tile.loc(), old, update);
  tile.store(sum, type.getElementType(), base, place, row, width);
}

// Fills in how the work is divided, and the kernel.
static void describe(RowScatter op, const ExprPiece &piece,
                     ClusterLaunch &launch, const TileTarget &any) {
  RankedTensorType base = tensorType(op.getBase());
  bool adds = op.adds();
  int64_t rows = base.getDimSize(0), updates = 1;
  for (unsigned dim = 0; dim < piece.groups[0]; ++dim)
    updates *= piece.sizes[dim];
  int64_t perBlock =
      adds ? rowsPerBlock(rows, any)
           : std::max<int64_t>(blockElements(any) / base.getDimSize(1), 1);
  RowGrid grid{piece.groups[0], updates, perBlock};
  launch.spec.blocks = adds ? partsOf(rows, perBlock) : grid.blocks();
  launch.spec.build = [=, &piece, &launch](tile::KernelOp kernel,
                                           const TileTarget &target,
                                           OpBuilder &b) -> llvm::Error {
    Location loc = kernel.getLoc();
    EmitTarget emitTarget{piece, launch.argumentBuffers(kernel), loc};
    Value size = emitIndex(b, loc, perBlock), block = kernel.getBlockNumber();
    Value result = launch.resultBuffers(kernel)[0];
    EmitScope top(emitTarget, b);
    if (adds) {
      Value begin = b.create<arith::MulIOp>(loc, block, size);
      Value end = b.create<arith::AddIOp>(loc, begin, size);
      ScatterKernel scatter{op, piece, result, target, begin, end};
      scatter.overIndices(top, 0);
    } else {
      ScatterKernel scatter{op, piece, result, target, {}, {}};
      forEachRow(top, grid, block,
                 [&](EmitScope &row) { scatter.replaceRow(row); });
    }
    return llvm::Error::success();
  };
}

llvm::Expected<SmallVector<Value>>
tessera::tileScatter(ClusterOp cluster, TilingContext &context) {
  auto op = *cluster.getBody().front().getOps<RowScatter>().begin();
  llvm::Expected<ClusterExpression> expression =
      buildExpression(cluster, scatterExpression(op));
  if (!expression)
    return expression.takeError();
  if (expression->pieces.size() != 1)
    return llvm::createStringError("updates of a scatter are one piece");
  ClusterLaunch launch(cluster, *expression, tile::Skeleton::scatter,
                       cluster.getResultTypes(), op.getBase());
  launch.spec.reuse.clear();
  describe(op, expression->pieces.front(), launch, context.target());
  return launch.emit(context);
}
