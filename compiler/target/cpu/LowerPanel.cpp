// tile.mma_staged of many rows: tiles of rows are streamed past a panel, and
// loops with `tile.interleave` (dialects/tile/Interleave.h) are interleaved
// with the products.
#include "compiler/target/cpu/Lowering.h"
#include "dialects/tile/Interleave.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace tessera::cpu {

static constexpr int64_t kRows = kMatrixRows, kTerms = kMatrixTerms;

// Tiles of rows are multiplied by a panel of rhs, which stays in L1. The
// interleaved iterations of the last tile follow all products.
llvm::Error KernelLowering::lowerPanel(const Product &product,
                                       tile::MmaStagedOp op, bool isMicropanels,
                                       ArrayRef<InterleavedLoop> interleaved) {
  int64_t tiles = op.getShape()[0] / (2 * kRows);
  Value depth = scalarOf(op.getDepth());
  Value last = b.create<arith::SubIOp>(loc, depth, p.index(kTerms));
  Panel panel{product, op, isMicropanels, interleaved, tiles, depth, last};
  for (int64_t i : {0, 1}) {
    loadRight(rightAt(panel, p.index(0)), i);
    loadLeft(leftAt(panel, p.index(0), p.index(0)), i);
  }
  auto loop = b.create<scf::ForOp>(loc, p.index(0), p.index(tiles), p.index(1));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    if (llvm::Error error = lowerPassingTile(panel, loop.getInductionVar()))
      return error;
  }
  for (const InterleavedLoop &work : interleaved)
    if (llvm::Error error =
            lowerIterations(work, p.index(tiles - 1), p.index(0)))
      return error;
  return llvm::Error::success();
}

KernelLowering::Matrix KernelLowering::leftAt(const Panel &panel, Value tile,
                                              Value k) {
  const Matrix &lhs = panel.product.lhs;
  return {advance(lhs.start, b.getI8Type(), {tile, k},
                  {2 * kRows * lhs.rowBytes, 2}),
          lhs.rowBytes};
}

KernelLowering::Matrix KernelLowering::rightAt(const Panel &panel, Value k) {
  const Matrix &rhs = panel.product.rhs;
  return {advance(rhs.start, b.getI8Type(), k, {rhs.rowBytes / 2}),
          rhs.rowBytes, rhs.columnBytes};
}

// The products of a tile, whose first block is in registers, interleaved with
// iterations of the previous tile.
llvm::Error KernelLowering::lowerPassingTile(const Panel &panel, Value tile) {
  const Matrix &sums = panel.product.sums;
  tile::MmaStagedOp op = panel.op;
  Matrix here{
      advance(sums.start, b.getI8Type(), tile, {2 * kRows * sums.rowBytes}),
      sums.rowBytes};
  startSums(here, 2, 2, scalarOf(op.getKeep()));
  Value row = b.create<arith::AddIOp>(
      loc, scalarsOf(op.getLhsIndices()).end()[-2],
      b.create<arith::MulIOp>(loc, tile, p.index(2 * kRows)));
  auto prefetch = [&](Value k) {
    if (panel.isMicropanels)
      prefetchNextPanel(panel.product.rhs, 2, row, panel.tiles,
                        {k, panel.depth});
    prefetchSums(here, k);
  };
  {
    auto inner =
        b.create<scf::ForOp>(loc, p.index(0), panel.last, p.index(kTerms));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(inner.getBody());
    Value k = inner.getInductionVar();
    Value block = b.create<arith::DivUIOp>(loc, k, p.index(kTerms));
    for (const InterleavedLoop &work : panel.interleaved)
      if (llvm::Error error = lowerIterationDuring(work, tile, block))
        return error;
    prefetch(k);
    Value next = b.create<arith::AddIOp>(loc, k, p.index(kTerms));
    multiplyBlock(leftAt(panel, tile, next), rightAt(panel, next));
  }
  Value blocks = b.create<arith::DivUIOp>(loc, panel.last, p.index(kTerms));
  for (const InterleavedLoop &work : panel.interleaved)
    if (llvm::Error error = lowerRemainingIterations(work, tile, blocks))
      return error;
  prefetch(panel.last);
  // There may be no memory after the last tile: reload its own first block.
  Value following = b.create<arith::MinUIOp>(
      loc, b.create<arith::AddIOp>(loc, tile, p.index(1)),
      p.index(panel.tiles - 1));
  multiplyBlock(leftAt(panel, following, p.index(0)),
                rightAt(panel, p.index(0)));
  storeSums(here, 2, 2);
  return llvm::Error::success();
}

//===--- interleaved loops ------------------------------------------------===//

// Iteration `iteration` of those that belong to a tile of rows.
llvm::Error KernelLowering::lowerIteration(const InterleavedLoop &work,
                                           Value tile, Value iteration) {
  Value first = b.create<arith::MulIOp>(loc, tile, p.index(work.iterations));
  Value number = b.create<arith::AddIOp>(loc, first, iteration);
  scf::ForOp loop = work.loop;
  bind(loop.getInductionVar(), {{}, {number}, Form::vectors});
  return lowerBlock(*loop.getBody());
}

// All of them from `begin` on.
llvm::Error KernelLowering::lowerIterations(const InterleavedLoop &work,
                                            Value tile, Value begin) {
  auto loop =
      b.create<scf::ForOp>(loc, begin, p.index(work.iterations), p.index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  return lowerIteration(work, tile, loop.getInductionVar());
}

// In block `block` of tile `tile`: an iteration of the previous tile.
llvm::Error KernelLowering::lowerIterationDuring(const InterleavedLoop &work,
                                                 Value tile, Value block) {
  Value isDue = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ult, block,
                                        p.index(work.iterations));
  isDue = b.create<arith::AndIOp>(loc, isDue, hasTileBefore(tile));
  auto branch = b.create<scf::IfOp>(loc, isDue, false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  return lowerIteration(work, tileBefore(tile), block);
}

// The iterations for which the tile had too few blocks.
llvm::Error
KernelLowering::lowerRemainingIterations(const InterleavedLoop &work,
                                         Value tile, Value begin) {
  auto branch = b.create<scf::IfOp>(loc, hasTileBefore(tile), false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  return lowerIterations(work, tileBefore(tile), begin);
}

Value KernelLowering::hasTileBefore(Value tile) {
  return b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ugt, tile,
                                 p.index(0));
}
Value KernelLowering::tileBefore(Value tile) {
  return b.create<arith::SubIOp>(loc, tile, p.index(1));
}

// The loops after a product that may be interleaved with it, with iterations
// for each of its `tiles`; empty if there are none, or their bounds do not fit.
SmallVector<KernelLowering::InterleavedLoop>
KernelLowering::interleavedLoops(tile::MmaStagedOp op, int64_t tiles) {
  SmallVector<InterleavedLoop> loops;
  for (Operation *next = op->getNextNode(); next; next = next->getNextNode()) {
    auto loop = dyn_cast<scf::ForOp>(next);
    if (!loop) {
      if (next->getNumRegions() || !isMemoryEffectFree(next) ||
          next->hasTrait<OpTrait::IsTerminator>())
        break;
      continue;
    }
    auto begin = getConstantIntValue(loop.getLowerBound()),
         end = getConstantIntValue(loop.getUpperBound()),
         step = getConstantIntValue(loop.getStep());
    if (!loop->hasAttr(tile::kInterleaveAttr) || loop.getNumResults() ||
        begin != 0 || step != 1 || !end || *end % tiles)
      break;
    loops.push_back({loop, *end / tiles});
  }
  return loops;
}

// A product and the loops interleaved with it. Index arithmetic and constants
// between them are emitted first.
llvm::Error KernelLowering::lowerWithLoops(tile::MmaStagedOp op) {
  int64_t tiles = op.getShape()[0] / (2 * kMatrixRows);
  SmallVector<InterleavedLoop> loops;
  if (tiles > 1)
    loops = interleavedLoops(op, tiles);
  if (loops.empty())
    return lowerMmaStaged(op, {});
  Operation *last = loops.back().loop;
  for (Operation *at = op->getNextNode();; at = at->getNextNode()) {
    if (!isa<scf::ForOp>(at))
      if (llvm::Error error = lowerOp(at))
        return error;
    done.insert(at);
    if (at == last)
      break;
  }
  return lowerMmaStaged(op, loops);
}

} // namespace tessera::cpu
