// A block's tile of the product, its operands, and the epilogue.
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/contraction/GroupedRows.h"
#include "passes/kernels/gpu/GpuContraction.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;
using namespace tessera::gpu;

// Sums of a thread that the epilogue processes at a time: the values that it
// loads for them need registers, too.
static constexpr int64_t kEpilogueSums = 16;

//===--- operands ---------------------------------------------------------===//

ProductSide GpuProduct::makeSide(const ContractionOperand &operand,
                                 Value buffer, int64_t stages, bool isLeft) {
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
  ProductSide side;
  if (!isLeft && plan.groups)
    append({plan.groups->count, 0, plan.groups->matrix});
  for (unsigned dim : plan.outer)
    append(plan.dims[dim]);
  for (const ContractionDim &dim : plan.outerSums)
    append(dim);
  side.advances[0] = append(tile);
  side.advances[1] = append(plan.sum);
  if (view.shape.empty()) // one element, repeated
    view.shape.push_back(1), view.strides.push_back(1);
  side.memory = emitView(b, e.loc, buffer, view);
  side.tile = isLeft ? plan.blockRows : plan.blockColumns;
  // Rows of shared memory run along the contiguous dimension of global memory;
  // with quantized weights, along the sum.
  side.sumInRows =
      strideOf(tile) == 1 && strideOf(plan.sum) != 1 && !plan.quant;
  side.staged = side.sumInRows
                    ? Staged::make(e, stages, chunk, side.tile, element)
                    : Staged::make(e, stages, side.tile, chunk, element);
  return side;
}

void GpuProduct::makeSides(int64_t stages) {
  lhs = makeSide(plan.lhs, epilogue.arguments[plan.lhs.argument], stages, true);
  rhs =
      makeSide(plan.rhs, epilogue.arguments[plan.rhs.argument], stages, false);
}

// Rows of tiles that are processed before the next columns, so that
// neighbouring blocks share operands in the L2 cache: all of them, or a
// divisor.
static int64_t rowsInGroup(int64_t rows) {
  constexpr int64_t kMost = 16, kLeast = 4;
  if (rows <= kMost)
    return rows;
  for (int64_t group = kMost; group >= kLeast; --group)
    if (rows % group == 0)
      return group;
  return rows;
}

// Tiles are numbered by rows of a group, then columns, then groups, then the
// outer dimensions.
void GpuProduct::locate(Value number) {
  int64_t group = rowsInGroup(plan.rowBlocks());
  SmallVector<int64_t> counts{group, plan.columnBlocks(),
                              plan.rowBlocks() / group};
  for (unsigned dim : llvm::reverse(plan.outer))
    counts.push_back(plan.dims[dim].size);
  SmallVector<Value> at = e.unravel(number, counts);
  Value row = e.add(e.mul(at[2], group), at[0]);
  rowStart = e.mul(row, plan.blockRows);
  columnStart = e.mul(at[1], plan.blockColumns);
  auto limit = [&](int64_t size, int64_t tile, Value start) -> Value {
    return size % tile ? e.sub(e.index(size), start) : Value();
  };
  rowLimit = limit(plan.rowDim().size, plan.blockRows, rowStart);
  columnLimit = limit(plan.columnDim().size, plan.blockColumns, columnStart);
  outerIndices.assign(plan.dims.size(), Value());
  for (auto [i, dim] : llvm::enumerate(llvm::reverse(plan.outer)))
    outerIndices[dim] = at[3 + i];
  if (plan.groups)
    locateGroup(row);
}

// The part of the tile that is its group's, from the sizes that the kernel
// reads.
void GpuProduct::locateGroup(Value rowBlock) {
  const ContractionGroups &groups = *plan.groups;
  Value sizes = epilogue.arguments[groups.argument];
  auto isSome = [&](Value rows) {
    return e.compare(arith::CmpIPredicate::sgt, rows, e.index(0));
  };
  if (groups.hasSlots()) {
    SlotRows tile = emitSlotRows(b, e.loc, sizes, rowBlock, groups.count,
                                 plan.rowDim().size, plan.blockRows);
    matrix = tile.group;
    rowStart = tile.start;
    rowLimit = tile.all;
    isOwned = isSome(tile.owned);
    isUsed = isSome(tile.all);
    return;
  }
  Value group = outerIndices[0] ? outerIndices[0] : e.index(0);
  Value first = emitLoadIndex(b, e.loc, sizes, group);
  if (!groups.ofSum) {
    ownedRows = emitClamp(b, e.loc, e.sub(first, rowStart), plan.blockRows);
    isOwned = isSome(ownedRows);
    return;
  }
  sumBegin = groups.isPadded ? e.index(0) : first;
  sumEnd =
      groups.isPadded ? first : emitLoadIndex(b, e.loc, sizes, e.add(group, 1));
  ownedSteps = e.div(e.add(e.sub(sumEnd, sumBegin), chunk - 1), chunk);
}

void GpuProduct::chooseChunks(int64_t size) {
  chunk = size;
  chunksOfSum = partsOf(plan.sum.size, chunk);
  steps = chunksOfSum;
  for (const ContractionDim &dim : plan.outerSums)
    steps *= dim.size;
}

Source GpuProduct::chunkOf(const ProductSide &side, Value step) {
  SmallVector<int64_t> counts{chunksOfSum};
  for (const ContractionDim &dim : llvm::reverse(plan.outerSums))
    counts.push_back(dim.size);
  SmallVector<Value> at = e.unravel(step, counts);
  bool isLeft = &side == &lhs;
  SmallVector<Value> indices;
  if (!isLeft && plan.groups && plan.groups->matrix)
    indices.push_back(matrix);
  for (unsigned dim : plan.outer)
    if (isLeft ? plan.dims[dim].lhs : plan.dims[dim].rhs)
      indices.push_back(outerIndices[dim]);
  for (auto [i, dim] : llvm::enumerate(plan.outerSums))
    if (isLeft ? dim.lhs : dim.rhs)
      indices.push_back(at[plan.outerSums.size() - i]);
  int64_t tileDim = -1, sumDim = -1;
  if (side.advances[0]) {
    tileDim = indices.size();
    indices.push_back(isLeft ? rowStart : columnStart);
  }
  Value k = e.mul(at[0], chunk);
  if (sumBegin)
    k = e.add(sumBegin, k);
  if (side.advances[1]) {
    sumDim = indices.size();
    indices.push_back(k);
  }
  if (indices.empty())
    indices.push_back(e.index(0));
  Value sumLimit =
      plan.sum.size % chunk ? e.sub(e.index(plan.sum.size), k) : Value();
  if (sumEnd)
    sumLimit = e.sub(sumEnd, k);
  Value rows = ownedRows ? ownedRows : rowLimit;
  Source from{
      side.memory, indices, tileDim, sumDim, isLeft ? rows : columnLimit,
      sumLimit};
  return side.sumInRows ? from.transposed() : from;
}

Value GpuProduct::operand(const ProductSide &side, Value stage) {
  bool isLeft = &side == &lhs;
  return side.sumInRows == isLeft ? side.staged.loadTransposed(e, stage)
                                  : side.staged.load(e, stage);
}

//===--- epilogue ---------------------------------------------------------===//

// Parts of the tile that the epilogue processes one after another: all columns
// of some rows, or fewer columns if those are still too many.
std::pair<int64_t, int64_t> GpuProduct::partShape() {
  ArrayRef<int64_t> warps = *kernel.getWarps();
  int64_t rows = 16 * warps[0], columns = plan.blockColumns;
  while (columns > 16 * warps[1] && columns % (32 * warps[1]) == 0 &&
         16 * columns / (32 * warps[1]) > kEpilogueSums)
    columns /= 2;
  return {rows, columns};
}

// The product in the shape of the expression's tiles. Rows and columns that the
// product lacks were staged as zeros: a sum removes them.
void GpuProduct::emitEpilogue(Value sum, EmitScope &top) {
  auto sums = [&](Value tile, int64_t dim) {
    return e.reduce(tile, tile::ReduceKind::sum, dim);
  };
  if (!plan.row || !plan.column) {
    if (!sum)
      sum = e.splat(0, {tileRows, plan.blockColumns});
    if (!plan.row)
      sum = sums(sum, 0);
    if (!plan.column)
      sum = sums(sum, plan.row ? 1 : 0);
    if (!plan.row && !plan.column)
      sum = b.create<vector::ExtractElementOp>(e.loc, sum);
    Value zero = e.index(0);
    return emitPart(sum, {tileRows, plan.blockColumns}, zero, zero, top);
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
    if (sum) // which is divided
      std::prev(b.getInsertionPoint())
          ->setAttr(tile::TileDialect::kUnrollAttr, b.getUnitAttr());
  };
  loop(tileRows / shape.first, [&](Value i) {
    loop(plan.blockColumns / shape.second, [&](Value j) {
      auto type = VectorType::get({shape.first, shape.second}, b.getF32Type());
      Value part = sum ? Value(b.create<tile::SliceOp>(e.loc, type, sum, i, j))
                       : e.splat(0, type.getShape());
      emitPart(part, shape, e.mul(i, shape.first), e.mul(j, shape.second), top);
    });
  });
}

void GpuProduct::emitTile(llvm::function_ref<Value()> multiply,
                          EmitScope &top) {
  if (!isOwned)
    return emitEpilogue(multiply(), top);
  auto branch = b.create<scf::IfOp>(e.loc, isOwned, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  emitEpilogue(multiply(), top);
  b.setInsertionPoint(branch.elseBlock()->getTerminator());
  auto zeros = [&] {
    llvm::SaveAndRestore nothing(ownedRows, Value());
    emitEpilogue(Value(), top);
  };
  if (isUsed) // an empty slot ends at once
    e.ifTrue(isUsed, zeros);
  else
    zeros();
}

// Zeros in padding rows, from row `row` of the tile on: their products may be
// NaN.
Value GpuProduct::withoutStrangers(Value sum, Value row) {
  auto type = cast<VectorType>(sum.getType());
  Value keep =
      e.compare(arith::CmpIPredicate::slt, e.iota(row, type.getShape(), 0),
                e.spreadIndex(ownedRows, type.getShape()));
  return b.create<arith::SelectOp>(e.loc, keep, sum,
                                   e.splat(0, type.getShape()));
}

// The epilogue of a part that begins at (row, column) of the block's tile.
void GpuProduct::emitPart(Value sum, std::pair<int64_t, int64_t> shape,
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
  if (ownedRows)
    sum = withoutStrangers(sum, row);
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

//===--- plain GEMMs ------------------------------------------------------===//

// Whether the epilogue stores the product unchanged, or adds it to memory; and
// the addresses of its elements. Rounded once, as a library would.
std::optional<bool> GpuProduct::accumulatesPlainly() const {
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

void GpuProduct::describeGemm() {
  std::optional<bool> accumulates = accumulatesPlainly();
  if (!accumulates || plan.groups || !plan.row || !plan.column ||
      plan.outer.size() > 1 || !plan.outerSums.empty() ||
      plan.lhs.memory != plan.rhs.memory)
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
  // Libraries require matrices whose rows or columns have no gaps.
  for (const auto &operand : {lhs, rhs, result})
    if (operand[2] < 1 || operand[3] < 1 ||
        (operand[2] != 1 && operand[3] != 1))
      return;
  kernel.setGemmAttr(tile::GemmAttr::get(b.getContext(), sizes, lhs, rhs,
                                         result, *accumulates));
}
