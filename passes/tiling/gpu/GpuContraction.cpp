// Contractions on a GPU. A block owns one tile of the product. Chunks of both
// operands along the sum travel through shared memory in a ring of stages,
// filled by asynchronous copies while tensor cores multiply the oldest; what
// the cluster computes of the product is computed on the accumulators.
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/tiling/ClusterLaunch.h"
#include "passes/tiling/Contraction.h"
#include "passes/tiling/gpu/GpuTiles.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;
using namespace tessera::gpu;

namespace {

/// How a block divides its tile among warps, and among warpgroups.
struct BlockTile {
  int64_t rows, columns;
  std::array<int64_t, 2> warps, warpgroups;
};

// Large tiles read less memory a product; small ones fill the chip where there
// are few.
constexpr BlockTile kTiles[] = {{128, 128, {2, 4}, {8, 1}},
                                {64, 64, {2, 2}, {4, 1}},
                                {16, 64, {1, 4}, {1, 4}}};
// Blocks below which a chip of about 100 multiprocessors is not full.
constexpr int64_t kFullChip = 160;
// Sums of a thread that the epilogue takes at a time: what it loads for them
// are registers too.
constexpr int64_t kEpilogueSums = 16;
// Bytes of a chunk of the sum: one half of a swizzled row of 128.
constexpr int64_t kChunkBytes = 64;
constexpr int64_t kMaxStages = 4;

class GpuContraction {
public:
  GpuContraction(const ContractionPlan &plan, ClusterOp cluster,
                 tile::KernelOp kernel, ArrayRef<Value> arguments,
                 ArrayRef<Value> results, const TileTarget &target,
                 OpBuilder &builder)
      : plan(plan), cluster(cluster), kernel(kernel), results(results),
        target(target), b(builder), e{builder, kernel.getLoc()},
        epilogue{plan.expression.pieces.front(), llvm::to_vector(arguments),
                 kernel.getLoc()} {}

  llvm::Error emit();

private:
  /// One operand: a view of its buffer and how chunks of it are staged.
  struct Side {
    Value memory;
    SmallVector<Value> fixed; ///< indices of the outer dimensions
    bool advances[2];         ///< along the tile's dimension, along the sum
    bool sumInRows;           ///< staged as [sum, tile], not [tile, sum]
    int64_t tile;
    Staged staged;
  };

  Side makeSide(const ContractionOperand &operand, Value buffer, bool isLeft);
  void locate();
  void stage(Side &side, Value start, Value limit, Value step);
  void stageStep(Value step);
  Value operand(const Side &side, Value stage, bool isLeft);
  Value multiply();
  std::optional<bool> accumulatesPlainly() const;
  void describeGemm();
  std::pair<int64_t, int64_t> partShape();
  void emitEpilogue(Value sum, EmitScope &top);
  void emitPart(Value sum, std::pair<int64_t, int64_t> shape, Value row,
                Value column, EmitScope &top);

  const ContractionPlan &plan;
  ClusterOp cluster;
  tile::KernelOp kernel;
  ArrayRef<Value> results;
  const TileTarget &target;
  OpBuilder &b;
  TileBuilder e;
  EmitTarget epilogue;

  Type element; ///< of staged operands
  int64_t chunk, chunksOfSum, steps, stages;
  Side lhs, rhs;
  Value rowStart, columnStart, rowLimit, columnLimit; // limits may be null
  SmallVector<Value> outerIndices;
};

} // namespace

//===--- operands ---------------------------------------------------------===//

GpuContraction::Side GpuContraction::makeSide(const ContractionOperand &operand,
                                              Value buffer, bool isLeft) {
  auto strideOf = [&](const ContractionDim &dim) {
    return isLeft ? dim.lhs : dim.rhs;
  };
  ContractionDim tile = isLeft ? plan.rowDim() : plan.columnDim();
  View view;
  view.offset = operand.offset;
  auto append = [&](const ContractionDim &dim) {
    if (!strideOf(dim))
      return false;
    view.shape.push_back(dim.size);
    view.strides.push_back(strideOf(dim));
    return true;
  };
  Side side;
  for (unsigned dim : plan.outer)
    if (append(plan.dims[dim]))
      side.fixed.push_back(outerIndices[dim]);
  for (const ContractionDim &dim : plan.outerSums)
    append(dim);
  side.advances[0] = append(tile);
  side.advances[1] = append(plan.sum);
  if (view.shape.empty()) // one element, repeated
    view.shape.push_back(1), view.strides.push_back(1);
  side.memory = emitView(b, e.loc, buffer, view);
  side.tile = isLeft ? plan.blockRows : plan.blockColumns;
  // Rows of shared memory run along what is contiguous in global memory.
  side.sumInRows = strideOf(tile) == 1 && strideOf(plan.sum) != 1;
  side.staged = side.sumInRows
                    ? Staged::make(e, stages, chunk, side.tile, element)
                    : Staged::make(e, stages, side.tile, chunk, element);
  return side;
}

// Which tile of the product this block owns: rows fastest, then columns, then
// the outer dimensions.
void GpuContraction::locate() {
  SmallVector<int64_t> counts{plan.rowBlocks(), plan.columnBlocks()};
  for (unsigned dim : llvm::reverse(plan.outer))
    counts.push_back(plan.dims[dim].size);
  SmallVector<Value> at = e.unravel(kernel.getBlockNumber(), counts);
  rowStart = e.mul(at[0], plan.blockRows);
  columnStart = e.mul(at[1], plan.blockColumns);
  auto limit = [&](int64_t size, int64_t tile, Value start) -> Value {
    return size % tile ? e.sub(e.index(size), start) : Value();
  };
  rowLimit = limit(plan.rowDim().size, plan.blockRows, rowStart);
  columnLimit = limit(plan.columnDim().size, plan.blockColumns, columnStart);
  outerIndices.assign(plan.dims.size(), Value());
  for (auto [i, dim] : llvm::enumerate(llvm::reverse(plan.outer)))
    outerIndices[dim] = at[2 + i];
}

// Starts copying chunk `step` of an operand.
void GpuContraction::stage(Side &side, Value start, Value limit, Value step) {
  SmallVector<int64_t> counts{chunksOfSum};
  for (const ContractionDim &dim : llvm::reverse(plan.outerSums))
    counts.push_back(dim.size);
  SmallVector<Value> at = e.unravel(step, counts);
  Value k = e.mul(at[0], chunk);
  bool isLeft = &side == &lhs;
  SmallVector<Value> indices(side.fixed);
  for (auto [i, dim] : llvm::enumerate(plan.outerSums))
    if (isLeft ? dim.lhs : dim.rhs)
      indices.push_back(at[plan.outerSums.size() - i]);
  int64_t tileDim = -1, sumDim = -1;
  if (side.advances[0]) {
    tileDim = indices.size();
    indices.push_back(start);
  }
  if (side.advances[1]) {
    sumDim = indices.size();
    indices.push_back(k);
  }
  if (indices.empty())
    indices.push_back(e.index(0));
  Value sumLimit =
      plan.sum.size % chunk ? e.sub(e.index(plan.sum.size), k) : Value();
  Source from{side.memory, indices, tileDim, sumDim, limit, sumLimit};
  side.staged.copy(e, e.rem(step, stages),
                   side.sumInRows ? from.turned() : from);
}

void GpuContraction::stageStep(Value step) {
  stage(lhs, rowStart, rowLimit, step);
  stage(rhs, columnStart, columnLimit, step);
}

Value GpuContraction::operand(const Side &side, Value stage, bool isLeft) {
  return side.sumInRows == isLeft ? side.staged.loadTransposed(e, stage)
                                  : side.staged.load(e, stage);
}

//===--- the loop ---------------------------------------------------------===//

Value GpuContraction::multiply() {
  for (int64_t step = 0; step < stages - 1; ++step) {
    if (step < steps)
      stageStep(e.index(step));
    b.create<tile::CommitOp>(e.loc);
  }
  auto type =
      VectorType::get({plan.blockRows, plan.blockColumns}, b.getF32Type());
  Value zeros = b.create<arith::ConstantOp>(e.loc, b.getZeroAttr(type));
  auto sums = e.forRange(
      e.index(0), e.index(steps), 1, zeros,
      [&](Value step, ValueRange sum) -> SmallVector<Value> {
        // The stage to multiply has landed, and nobody reads the one to fill.
        b.create<tile::WaitOp>(e.loc, stages - 2);
        Value next = e.add(step, stages - 1);
        e.ifTrue(e.compare(arith::CmpIPredicate::slt, next, e.index(steps)),
                 [&] { stageStep(next); });
        b.create<tile::CommitOp>(e.loc);
        Value stage = e.rem(step, stages);
        return {b.create<tile::MmaOp>(e.loc, type, operand(lhs, stage, true),
                                      operand(rhs, stage, false), sum[0])};
      });
  return sums[0];
}

// Parts of the tile that the epilogue takes one after another: all columns of
// some rows, or fewer columns where those are still too many.
std::pair<int64_t, int64_t> GpuContraction::partShape() {
  ArrayRef<int64_t> warps = *kernel.getWarps();
  int64_t rows = 16 * warps[0], columns = plan.blockColumns;
  while (columns > 16 * warps[1] && columns % (32 * warps[1]) == 0 &&
         16 * columns / (32 * warps[1]) > kEpilogueSums)
    columns /= 2;
  return {rows, columns};
}

// The product in the shape of the expression's tiles. Rows and columns that the
// product lacks were staged as zeros: summing removes them.
void GpuContraction::emitEpilogue(Value sum, EmitScope &top) {
  auto sums = [&](Value tile, int64_t dim) {
    return e.reduce(tile, tile::ReduceKind::sum, dim);
  };
  if (!plan.row || !plan.column) {
    if (!plan.row)
      sum = sums(sum, 0);
    if (!plan.column)
      sum = sums(sum, plan.row ? 1 : 0);
    if (!plan.row && !plan.column)
      sum = b.create<vector::ExtractElementOp>(e.loc, sum);
    Value zero = e.index(0);
    return emitPart(sum, {plan.blockRows, plan.blockColumns}, zero, zero, top);
  }
  auto shape = partShape();
  auto loop = [&](int64_t count, llvm::function_ref<void(Value)> body) {
    if (count == 1)
      return body(e.index(0));
    e.forRange(e.index(0), e.index(count), 1, {},
               [&](Value i, ValueRange) -> SmallVector<Value> {
                 body(i);
                 return {};
               });
    std::prev(b.getInsertionPoint())
        ->setAttr(tile::TileDialect::kUnrollAttr, b.getUnitAttr());
  };
  loop(plan.blockRows / shape.first, [&](Value i) {
    loop(plan.blockColumns / shape.second, [&](Value j) {
      Value part = b.create<tile::SliceOp>(
          e.loc, VectorType::get({shape.first, shape.second}, b.getF32Type()),
          sum, i, j);
      emitPart(part, shape, e.mul(i, shape.first), e.mul(j, shape.second), top);
    });
  });
}

// The epilogue of a part that begins at (row, column) of the block's tile.
void GpuContraction::emitPart(Value sum, std::pair<int64_t, int64_t> shape,
                              Value row, Value column, EmitScope &top) {
  EmitScope scope(top, b);
  for (unsigned dim : plan.outer)
    scope.setIndex(dim, outerIndices[dim]);
  SmallVector<TileDim> tile;
  SmallVector<Value> bounds;
  auto take = [&](std::optional<unsigned> dim, int64_t size, Value start,
                  Value limit, Value offset) {
    if (!dim)
      return;
    scope.setIndex(*dim, e.add(start, offset));
    tile.push_back({*dim, size});
    bounds.push_back(limit ? e.sub(limit, offset) : Value());
  };
  take(plan.row, shape.first, rowStart, rowLimit, row);
  take(plan.column, shape.second, columnStart, columnLimit, column);
  scope.setTile(tile, bounds);
  // Rounded once to the result's element type.
  Type rounded = tensorType(plan.result).getElementType();
  Value product = toMemory(b, e.loc, sum, rounded);
  product = toHeld(b, e.loc, product, rounded);
  scope.builder = b;
  for (auto [i, node] : llvm::enumerate(epilogue.piece.nodes))
    if (node.kind == ExprNode::given)
      scope.set(i, product);
  SmallVector<Value> values;
  for (const ExprPiece::Root &root : epilogue.piece.roots)
    values.push_back(scope.emitTile(root.node));
  for (auto [i, root] : llvm::enumerate(epilogue.piece.roots))
    scope.store(values[i], tensorType(cluster.getResult(i)).getElementType(),
                results[i], root.address);
  b = scope.builder;
}

//===--- as a library's product -------------------------------------------===//

// Whether the epilogue stores the product as it is, or adds it to what is
// there; and the place of its elements. Rounded once, as a library would.
std::optional<bool> GpuContraction::accumulatesPlainly() const {
  const ExprPiece &piece = epilogue.piece;
  if (piece.roots.size() != 1)
    return {};
  const ExprNode *node = &piece.nodes[piece.roots[0].node];
  auto isProduct = [&](const ExprNode &n) { return n.kind == ExprNode::given; };
  if (node->kind == ExprNode::elementwise && isa<ConvertOp>(node->op) &&
      tensorType(plan.result).getElementType().isF32())
    node = &piece.nodes[node->operands[0]];
  if (isProduct(*node))
    return false;
  if (node->kind != ExprNode::elementwise || !isa<AddOp>(node->op) ||
      !node->element.isF32())
    return {};
  for (unsigned i : {0, 1}) {
    const ExprNode &there = piece.nodes[node->operands[i]];
    if (isProduct(piece.nodes[node->operands[1 - i]]) &&
        there.kind == ExprNode::load && !there.rowStride &&
        there.address == piece.roots[0].address &&
        epilogue.arguments[there.argument] == results[0])
      return true;
  }
  return {};
}

void GpuContraction::describeGemm() {
  std::optional<bool> accumulates = accumulatesPlainly();
  if (!accumulates || !plan.row || !plan.column || plan.outer.size() > 1 ||
      !plan.outerSums.empty() || plan.lhs.memory != plan.rhs.memory)
    return;
  auto numberOf = [&](Value buffer) -> int64_t {
    return cast<BlockArgument>(buffer).getArgNumber() - 1 -
           kernel.getDynamicSizes();
  };
  ContractionDim batch =
      plan.outer.empty() ? ContractionDim{1, 0, 0} : plan.dims[plan.outer[0]];
  ContractionDim row = plan.rowDim(), column = plan.columnDim();
  const Linear &place = epilogue.piece.roots[0].address;
  int64_t ofBatch = plan.outer.empty() ? 0 : place.coefficients[plan.outer[0]];
  int64_t lhs[] = {numberOf(epilogue.arguments[plan.lhs.argument]),
                   plan.lhs.offset, row.lhs, plan.sum.lhs, batch.lhs};
  int64_t rhs[] = {numberOf(epilogue.arguments[plan.rhs.argument]),
                   plan.rhs.offset, column.rhs, plan.sum.rhs, batch.rhs};
  int64_t result[] = {numberOf(results[0]), place.constant,
                      place.coefficients[*plan.row],
                      place.coefficients[*plan.column], ofBatch};
  int64_t sizes[] = {row.size, column.size, plan.sum.size, batch.size};
  // Matrices of a library have rows or columns without gaps.
  for (const auto &operand : {lhs, rhs, result})
    if (operand[2] < 1 || operand[3] < 1 ||
        (operand[2] != 1 && operand[3] != 1))
      return;
  kernel.setGemmAttr(tile::GemmAttr::get(b.getContext(), sizes, lhs, rhs,
                                         result, *accumulates));
}

llvm::Error GpuContraction::emit() {
  for (const ContractionOperand *operand : {&plan.lhs, &plan.rhs})
    if (!operand->memory.isBF16() && !operand->memory.isF32())
      return llvm::createStringError(
          "tensor cores multiply bf16 and f32 here, not " +
          std::string(operand->memory.isF64() ? "f64" : "such elements") +
          "; compile for cpu");
  element = operandType(plan.lhs.memory, plan.rhs.memory);
  chunk = kChunkBytes * 8 / element.getIntOrFloatBitWidth();
  chunksOfSum = partsOf(plan.sum.size, chunk);
  steps = chunksOfSum;
  for (const ContractionDim &dim : plan.outerSums)
    steps *= dim.size;
  stages = std::clamp<int64_t>(steps + 1, 2, kMaxStages);
  for (const BlockTile &tile : kTiles)
    if (tile.rows == plan.blockRows && tile.columns == plan.blockColumns)
      kernel.setWarps(target.warpgroups && element.isBF16() ? tile.warpgroups
                                                            : tile.warps);
  describeGemm();
  locate();
  lhs = makeSide(plan.lhs, epilogue.arguments[plan.lhs.argument], true);
  rhs = makeSide(plan.rhs, epilogue.arguments[plan.rhs.argument], false);
  // What the epilogue needs outside of all tiles goes before the loop.
  Operation *mark = e.index(0).getDefiningOp();
  EmitScope top(epilogue, b);
  top.builder.setInsertionPoint(mark);
  emitEpilogue(multiply(), top);
  return llvm::Error::success();
}

//===--- entry ------------------------------------------------------------===//

void tessera::chooseGpuGrid(ContractionPlan &plan) {
  int64_t m = plan.rowDim().size, n = plan.columnDim().size, outer = 1;
  for (unsigned dim : plan.outer)
    outer *= plan.dims[dim].size;
  auto take = [&](const BlockTile &tile) {
    plan.blockRows = tile.rows;
    plan.blockColumns = tile.columns;
  };
  auto blocks = [&](const BlockTile &tile) {
    return outer * partsOf(m, tile.rows) * partsOf(n, tile.columns);
  };
  if (m <= 16)
    return take(kTiles[2]);
  bool large = m > 64 && n > 64 && blocks(kTiles[0]) >= kFullChip;
  take(large ? kTiles[0] : kTiles[1]);
}

llvm::Error
tessera::emitGpuContraction(const ContractionPlan &plan, ClusterOp cluster,
                            tile::KernelOp kernel, ArrayRef<Value> arguments,
                            ArrayRef<Value> results, const TileTarget &target,
                            OpBuilder &builder) {
  OpBuilder::InsertionGuard guard(builder);
  return GpuContraction(plan, cluster, kernel, arguments, results, target,
                        builder)
      .emit();
}
