// Elementwise clusters: every element of the results by itself. Where all
// tensors are dense and equally long the kernel runs over a flat range of
// dynamic length, so that the updates of all parameters share one kernel;
// otherwise over rows of static, strided tensors.
#include "dialects/tile/KernelBlocks.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/gpu/InFlight.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

//===--- flat -------------------------------------------------------------===//

static bool isFlat(ClusterOp cluster, const ClusterExpression &expression) {
  const ExprPiece &piece = expression.pieces.front();
  return expression.pieces.size() == 1 && piece.rank() == 1 &&
         loadsAreFlat(cluster, piece, 0) &&
         llvm::all_of(piece.roots, [&](const ExprPiece::Root &root) {
           return root.address == Linear::index(0, 1);
         });
}

static void emitRoots(EmitScope &scope, ClusterOp cluster,
                      ArrayRef<Value> buffers) {
  // All values first: a store may overwrite what another result reads.
  SmallVector<Value> values;
  for (const ExprPiece::Root &root : scope.target.piece.roots)
    values.push_back(scope.emitTile(root.node));
  for (auto [i, root] : llvm::enumerate(scope.target.piece.roots))
    scope.store(values[i], tensorType(cluster.getResult(i)).getElementType(),
                buffers[i], root.address);
}

// Block b covers elements [b, b + 1) × blockElements; the last tile of the
// last block is bounded.
static void buildFlat(tile::KernelOp kernel, const ClusterLaunch &launch,
                      ClusterOp cluster, const ExprPiece &piece,
                      const TileTarget &target, OpBuilder &b) {
  Location loc = kernel.getLoc();
  int64_t width = tileWidth(target, piece);
  EmitTarget emitTarget{piece, launch.argumentBuffers(kernel), loc};
  SmallVector<Value> results = launch.resultBuffers(kernel);
  EmitScope top(emitTarget, b);
  Value size = kernel.getSizes()[0];
  Value begin = b.create<arith::MulIOp>(
      loc, kernel.getBlockNumber(), emitIndex(b, loc, blockElements(target)));
  Value end = b.create<arith::AddIOp>(loc, begin,
                                      emitIndex(b, loc, blockElements(target)));
  Value valid = b.create<arith::MinUIOp>(loc, end, size);
  Value step = emitIndex(b, loc, width);
  Value length = b.create<arith::SubIOp>(loc, valid, begin);
  Value rest = b.create<arith::RemUIOp>(loc, length, step);
  Value whole = b.create<arith::SubIOp>(loc, valid, rest);
  auto fill = [&](OpBuilder inner, Value index, Value bound) {
    EmitScope scope(top, inner);
    scope.setIndex(0, index);
    scope.setTile({{0, width}}, bound);
    emitRoots(scope, cluster, results);
  };
  auto loop = b.create<scf::ForOp>(loc, begin, whole, step);
  top.builder.setInsertionPoint(loop);
  fill(OpBuilder::atBlockTerminator(loop.getBody()), loop.getInductionVar(),
       {});
  Value ragged = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ne, rest,
                                         emitIndex(b, loc, 0));
  auto branch = b.create<scf::IfOp>(loc, ragged, /*withElseRegion=*/false);
  fill(branch.getThenBodyBuilder(), whole, rest);
}

//===--- strided ----------------------------------------------------------===//

namespace {

// How a piece is traversed: blocks of rows over the leading dimensions, loops
// over the middle ones, register tiles along the last, which is divided into
// chunks if it is long.
struct StridedGrid {
  RowGrid rows;
  int64_t chunk = 0; ///< 0: the last dimension is walked whole
  int64_t chunks = 1;
  int64_t blocks() const { return rows.blocks() * chunks; }
};

} // namespace

// A loop nest inside a block spares dividing the row number for short rows.
static constexpr int64_t kLoopElements = 1024;

// Threads of a block on a GPU: of short rows, each with two elements, since the
// others would have none.
static int64_t threadsFor(ArrayRef<ExprPiece> pieces,
                          const TileTarget &target) {
  constexpr int64_t kWarp = 32, kEach = 2;
  int64_t longest = 1;
  for (const ExprPiece &piece : pieces)
    longest = std::max(longest, piece.sizes.back());
  if (!target.gpu || longest >= target.lanes)
    return target.lanes;
  return std::max<int64_t>(
      kWarp, static_cast<int64_t>(llvm::PowerOf2Ceil(longest)) / kEach);
}

static StridedGrid planGrid(const ExprPiece &piece, const TileTarget &target,
                            int64_t threads) {
  int64_t elements = blockElements(target) * threads / target.lanes,
          looped = kLoopElements;
  int64_t chunk = elements;
  if (target.gpu) {
    int64_t all = 1;
    for (int64_t size : piece.sizes)
      all *= size;
    elements = gpu::elementsOfBlock(all, elements, target.multiprocessors);
    looped = std::min(looped, elements);
    chunk = llvm::alignTo(elements, 4 * target.lanes); // whole register tiles
  }
  int64_t last = piece.sizes.back(), inner = last;
  unsigned dims = piece.rank() - 1;
  while (dims > 0 && inner * piece.sizes[dims - 1] <= looped)
    inner *= piece.sizes[--dims];
  StridedGrid grid;
  int64_t rows = 1;
  for (unsigned dim = 0; dim < dims; ++dim)
    rows *= piece.sizes[dim];
  grid.rows = {dims, rows, partsOf(elements, inner)};
  if (inner == last && last >= 2 * chunk) {
    grid.rows.perBlock = 1;
    grid.chunk = chunk;
    grid.chunks = partsOf(last, chunk);
  }
  return grid;
}

static void buildStrided(tile::KernelOp kernel, const ClusterLaunch &launch,
                         ClusterOp cluster, const ExprPiece &piece,
                         const StridedGrid &grid, Value block,
                         const TileTarget &target, OpBuilder &b) {
  EmitTarget emitTarget{piece, launch.argumentBuffers(kernel), kernel.getLoc()};
  SmallVector<Value> results = launch.resultBuffers(kernel);
  Location loc = kernel.getLoc();
  // Two levels at the top: values that depend on the block come after those
  // that do not.
  Value row = block, begin;
  if (grid.chunk) {
    Value chunks = emitIndex(b, loc, grid.chunks);
    row = b.create<arith::DivUIOp>(loc, block, chunks);
    begin = b.create<arith::MulIOp>(
        loc, b.create<arith::RemUIOp>(loc, block, chunks),
        emitIndex(b, loc, grid.chunk));
  }
  EmitScope top(emitTarget, b);
  unsigned last = piece.rank() - 1;
  auto roots = [&](EmitScope &scope) { emitRoots(scope, cluster, results); };
  std::function<void(EmitScope &, unsigned)> nest = [&](EmitScope &scope,
                                                        unsigned dim) {
    if (dim < last)
      return forEachIndex(scope, dim,
                          [&](EmitScope &inner) { nest(inner, dim + 1); });
    if (grid.chunk)
      return forEachTileOfChunk(scope, last, begin, grid.chunk, target, roots);
    forEachTile(scope, last, target, roots);
  };
  forEachRow(top, grid.rows, row,
             [&](EmitScope &scope) { nest(scope, grid.rows.dims); });
  b = top.builder;
}

//===--- tables -----------------------------------------------------------===//

// A constant of several values, which is embedded in the kernel's code.
static std::optional<ConstantOp> asTable(ClusterOp cluster) {
  auto constant = cluster.getYield().getValues()[0].getDefiningOp<ConstantOp>();
  if (!constant || cast<DenseElementsAttr>(constant.getValue()).isSplat())
    return {};
  return constant;
}

// The elements [begin, begin + count) in their stored form.
static DenseElementsAttr storedElements(DenseElementsAttr values, int64_t begin,
                                        int64_t count) {
  Type element = memoryElement(values.getElementType());
  SmallVector<Attribute> elements;
  for (Attribute value :
       llvm::make_range(values.getValues<Attribute>().begin() + begin,
                        values.getValues<Attribute>().begin() + begin + count))
    elements.push_back(
        isa<FloatType>(element)
            ? value
            : IntegerAttr::get(element,
                               cast<IntegerAttr>(value).getValue().zextOrTrunc(
                                   element.getIntOrFloatBitWidth())));
  return DenseElementsAttr::get(VectorType::get({count}, element), elements);
}

static llvm::Expected<SmallVector<Value>>
tileTable(ClusterOp cluster, ConstantOp table, TilingContext &context) {
  auto values = cast<DenseElementsAttr>(table.getValue());
  int64_t size = values.getNumElements();
  LaunchSpec spec;
  spec.name = cluster.getName().str();
  spec.skeleton = tile::Skeleton::elementwise;
  spec.summary = "table";
  spec.buffers = {bufferType(table.getType())};
  spec.access = {tile::Access::write};
  spec.blocks = 1;
  spec.key = bodyKey(cluster);
  spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                   OpBuilder &b) -> llvm::Error {
    Location loc = kernel.getLoc();
    for (int64_t at = 0, count; at < size; at += count) {
      count = std::min(4 * target.lanes, size - at);
      Value tile =
          b.create<arith::ConstantOp>(loc, storedElements(values, at, count));
      b.create<tile::StoreOp>(loc, tile, kernel.getBuffers()[0],
                              emitIndex(b, loc, at), ValueRange(),
                              ArrayRef<int64_t>{0});
    }
    return llvm::Error::success();
  };
  return context.launch(cluster, spec, {}, table.getType());
}

//===--- entry ------------------------------------------------------------===//

llvm::Expected<SmallVector<Value>>
tessera::tileElementwise(ClusterOp cluster, TilingContext &context) {
  if (std::optional<ConstantOp> table = asTable(cluster))
    return tileTable(cluster, *table, context);
  llvm::Expected<ClusterExpression> expression = buildExpression(cluster);
  if (!expression)
    return expression.takeError();
  auto skeleton = cluster.getKind() == ClusterKind::gather
                      ? tile::Skeleton::gather
                      : tile::Skeleton::elementwise;
  ClusterLaunch launch(cluster, *expression, skeleton,
                       cluster.getResultTypes());
  if (isFlat(cluster, *expression)) {
    ExprPiece &piece = expression->pieces.front();
    int64_t elements = piece.sizes[0];
    launch.makeFlat(elements);
    launch.spec.blocks = partsOf(elements, blockElements(context.target()));
    // The kernel serves every length.
    piece.sizes[0] = std::numeric_limits<int64_t>::max();
    launch.spec.key = expression->key();
    launch.spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                            OpBuilder &b) -> llvm::Error {
      buildFlat(kernel, launch, cluster, piece, target, b);
      return llvm::Error::success();
    };
    return launch.emit(context);
  }
  SmallVector<StridedGrid> grids;
  SmallVector<int64_t> ends;
  int64_t threads = threadsFor(expression->pieces, context.target());
  for (const ExprPiece &piece : expression->pieces) {
    grids.push_back(planGrid(piece, context.target(), threads));
    launch.spec.blocks += grids.back().blocks();
    ends.push_back(launch.spec.blocks);
  }
  launch.spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                          OpBuilder &b) -> llvm::Error {
    if (threads != target.lanes)
      kernel->setAttr(tile::kThreadsAttr, b.getI64IntegerAttr(threads));
    forPieceOfBlock(b, kernel.getLoc(), kernel.getBlockNumber(), ends,
                    [&](OpBuilder &inner, unsigned i, Value block) {
                      buildStrided(kernel, launch, cluster,
                                   expression->pieces[i], grids[i], block,
                                   target, inner);
                    });
    return llvm::Error::success();
  };
  return launch.emit(context);
}
