// The epilogue of a contraction, computed on its sums in registers.
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/contraction/ContractionBlock.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Rows of an accumulator that the epilogue takes at a time: a few chains to
// overlap, few enough registers that none spills.
static constexpr int64_t kEpilogueRows = 2;

void ContractionEpilogue::begin() {
  Operation *mark = index(0).getDefiningOp();
  top.emplace(buffers, b);
  top->builder.setInsertionPoint(mark);
}

void ContractionEpilogue::emit(const TilePlace &place, Value sums) {
  for (int64_t row = 0; row < place.rows; row += kEpilogueRows)
    emitRows(place, sums, row, std::min(kEpilogueRows, place.rows - row));
}

void ContractionEpilogue::emitZeroRows(Value begin, Value end) {
  forRange(begin, end, 1, [&](Value row) {
    block.groupStart = index(0);
    block.forEachPanel([&](Value panel, int64_t columns) {
      emit({1, columns, row, panel},
           zeros(VectorType::get({1, columns}, tiles.accumulate)));
    });
  });
}

void ContractionEpilogue::emitRows(const TilePlace &place, Value sums,
                                   int64_t row, int64_t rows) {
  Value sum = b.create<vector::ExtractStridedSliceOp>(
      loc, sums, ArrayRef<int64_t>{row, 0},
      ArrayRef<int64_t>{rows, place.columns}, ArrayRef<int64_t>{1, 1});
  EmitScope scope(*top, b);
  for (unsigned dim : plan.outer)
    scope.setIndex(dim, block.outerIndices[dim]);
  SmallVector<TileDim> tile;
  if (plan.row) {
    scope.setIndex(*plan.row,
                   add(block.rowStart, add(block.rowOf(place), index(row))));
    tile.push_back({*plan.row, rows});
  }
  if (plan.column) {
    scope.setIndex(*plan.column, block.firstColumn(place.panel));
    tile.push_back({*plan.column, place.columns});
  }
  // The sum in the shape that the expression's tiles have.
  scope.setTile(tile);
  if (tile.empty())
    sum = b.create<vector::ExtractOp>(loc, sum, ArrayRef<int64_t>{0, 0});
  else if (tile.size() == 1)
    sum = b.create<vector::ShapeCastOp>(loc, scope.tileType(tiles.accumulate),
                                        sum);
  scope.builder = b;
  // Rounded once to the result's element type.
  Type element = tensorType(plan.result).getElementType();
  Value product = toMemory(b, loc, sum, element);
  product = toHeld(b, loc, product, element);
  scope.builder = b;
  const ExprPiece &piece = buffers.piece;
  for (auto [i, node] : llvm::enumerate(piece.nodes))
    if (node.kind == ExprNode::given)
      scope.set(i, product);
  SmallVector<Value> values;
  for (const ExprPiece::Root &root : piece.roots)
    values.push_back(scope.emitTile(root.node));
  for (auto [i, root] : llvm::enumerate(piece.roots))
    scope.store(values[i], tensorType(cluster.getResult(i)).getElementType(),
                results[i], root.address);
  b = scope.builder;
}
