#include "passes/kernels/contraction/ContractionEngine.h"
#include "passes/kernels/ClusterLaunch.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

//===--- chunks -----------------------------------------------------------===//

static Value packedView(const ContractionBlock &block) {
  if (!block.tiles.readsPacked)
    return {};
  tile::KernelOp kernel = block.kernel;
  return emitView(block.b, block.loc, kernel.getBuffers()[0],
                  block.plan.packed->view());
}

ChunkedProduct::ChunkedProduct(ContractionBlock &block,
                               ContractionEpilogue &epilogue)
    : ContractionEngine(block, epilogue), packed(packedView(block)),
      lhs(block, /*isLeft=*/true), rhs(columnsOf(block)) {}

void ChunkedProduct::allocate() {
  rhs->allocateScales();
  if (tiles.stagesRows)
    rowCopy = allocateRows();
  rhs->allocate();
  sums = allocateSums();
}

void ChunkedProduct::emit() {
  forEach(block.chunksHere ? block.chunksHere : index(tiles.chunks),
          [&](Value i) {
            block.beginChunk(i);
            if (tiles.stagesColumns)
              rhs->stage();
            multiply();
          });
}

void ChunkedProduct::stageRows(Value start, int64_t rows) {
  block.forEachStep(tiles.chunk, [&](Value k, int64_t depth) {
    lhs.stage({rowCopy, index(0), add(block.rowStart, start), k, rows, depth});
  });
}

//===--- entry ------------------------------------------------------------===//

static MakeEngine *engineOf(const ContractionBlock &block) {
  const ContractionPlan &plan = block.plan;
  const bool streams =
      plan.quant && plan.quant->streams && !plan.isMicropanels();
  if (streams && plan.quant->bytes)
    return fewByteRows;
  if (streams && plan.quant->layout.superBlocks)
    return plan.quant->integers ? fewSuperIntegers : fewSuperFloats;
  if (streams)
    return plan.quant->integers ? fewIntegerRows : fewFloatRows;
  if (plan.quant && plan.quant->bytes)
    return byteRows;
  if (!block.tiles.matrices)
    return vectorProduct;
  return block.tiles.transposed ? transposedProduct : matrixProduct;
}

// The products if there is something to multiply; zeros for the rest.
static void emitGrouped(ContractionBlock &block, ContractionEpilogue &epilogue,
                        llvm::function_ref<void()> emitProducts) {
  const ContractionPlan &plan = block.plan;
  auto isSome = [&](Value count) {
    return block.compare(arith::CmpIPredicate::sgt, count, block.index(0));
  };
  Value none = block.index(0);
  if (block.ownedRows) {
    block.ifElse(isSome(block.ownedRows), emitProducts);
    return epilogue.emitZeroRows(block.ownedRows, block.allRows);
  }
  int64_t last = plan.rowDim().size - (plan.rowBlocks() - 1) * plan.blockRows;
  Value rows = block.select(block.isLastRows, last, plan.blockRows);
  block.ifElse(isSome(block.sumTerms), emitProducts,
               [&] { epilogue.emitZeroRows(none, rows); });
}

llvm::Error tessera::emitContraction(const ContractionPlan &plan,
                                     ClusterOp cluster, tile::KernelOp kernel,
                                     ArrayRef<Value> arguments,
                                     ArrayRef<Value> results,
                                     const TileTarget &target,
                                     OpBuilder &builder) {
  OpBuilder::InsertionGuard guard(builder);
  ContractionBlock block(plan, kernel, arguments, target, builder);
  ContractionEpilogue epilogue(block, cluster, results);
  std::unique_ptr<ContractionEngine> engine = engineOf(block)(block, epilogue);
  block.begin();
  engine->allocate();
  epilogue.begin();
  if (plan.groups)
    emitGrouped(block, epilogue, [&] { engine->emit(); });
  else
    engine->emit();
  return llvm::Error::success();
}
