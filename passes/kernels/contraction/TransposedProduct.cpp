// Few rows × rows of weights in matrix registers: the weights are the left
// operand in place, neither copied nor transposed, so columns of the result are
// rows of the registers.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/MatrixProduct.h"

using namespace mlir;
using namespace tessera;

namespace {
class TransposedProduct : public MatrixRegisters {
public:
  using MatrixRegisters::MatrixRegisters;

private:
  Value allocateRows() const override {
    return block.allocate({1, tiles.chunk, plan.blockRows}, tiles.compute,
                          tile::Layout::pairs);
  }
  Value allocateSums() const override;
  void multiply() override;
  void emitSums(Value at, Value panel, int64_t columns);
};
} // namespace

Value TransposedProduct::allocateSums() const {
  int64_t panels = partsOf(plan.blockColumns, tiles.width);
  return block.allocate(
      {hasPartials() ? panels * tiles.width : tiles.width, plan.blockRows},
      tiles.accumulate);
}

void TransposedProduct::multiply() {
  block.groupStart = index(0);
  stageRows(index(0), plan.blockRows);
  block.forEachPanel([&](Value panel, int64_t columns) {
    ColumnSource::Panel left = rhs->panelInPlace(panel);
    Value at = hasPartials() ? mul(panel, tiles.width) : index(0);
    b.create<tile::MmaStagedOp>(loc, left.memory, left.indices, rowCopy,
                                ValueRange{index(0), index(0), index(0)}, sums,
                                ValueRange{at, index(0)}, keepsSums(), depth(),
                                SmallVector<int64_t>{columns, plan.blockRows},
                                /*far=*/true);
    afterLast([&] { emitSums(at, panel, columns); });
  });
}

void TransposedProduct::emitSums(Value at, Value panel, int64_t columns) {
  int64_t rows = plan.blockRows;
  auto type = VectorType::get({rows, columns}, tiles.accumulate);
  auto transposed = VectorType::get({columns, rows}, tiles.accumulate);
  Value sum;
  if (rows == 1)
    sum = load(type, sums, {at, index(0)}, {1, 0});
  else
    sum = b.create<tile::TransposeOp>(
        loc, type, load(transposed, sums, {at, index(0)}, {0, 1}));
  epilogue.emit({rows, columns, index(0), panel}, sum);
}

std::unique_ptr<ContractionEngine>
tessera::transposedProduct(ContractionBlock &block,
                           ContractionEpilogue &epilogue) {
  return std::make_unique<TransposedProduct>(block, epilogue);
}
