// tile.mma_staged: products in the tile registers of AMX.
//
// Eight registers of 16 rows of 64 bytes: four hold sums, two rows of lhs, two
// columns of rhs. They are addressed by number and used only in this file, so
// that LLVM does not have to allocate them.
#include "compiler/target/cpu/Lowering.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace tessera::cpu {

// Rows of a register, products that one instruction adds, bytes of a row.
static constexpr int64_t kRows = kMatrixRows, kTerms = kMatrixTerms,
                         kRowBytes = 64;
static constexpr int64_t kSums = 0, kLeft = 4, kRight = 6;
// Tiles of rows that are multiplied by a panel of micropanels, at most: the
// packed rows of a block (passes/kernels/contraction/ContractionGrid.cpp).
static constexpr int64_t kPassing = 16;
// Prefetch distance of memory outside the caches.
static constexpr int64_t kAheadBytes = 512;
static constexpr int64_t kFarBytes = 8192, kNearBytes = 2048;

static void callIntrinsic(OpBuilder &b, Location loc, StringRef name,
                          ValueRange operands) {
  b.create<LLVM::CallIntrinsicOp>(loc, TypeRange(), b.getStringAttr(name),
                                  operands, LLVM::FastmathFlagsAttr());
}

static Value byteConstant(OpBuilder &b, Location loc, int64_t value) {
  return b.create<LLVM::ConstantOp>(loc, b.getI8Type(),
                                    b.getI8IntegerAttr(int8_t(value)));
}

// The operand of ldtilecfg (Intel SDM volume 1, 18.3.2): palette 1, bytes a row
// from byte 16 on and rows from byte 48 on.
static DenseElementsAttr configuration(OpBuilder &b, const MatrixShape &shape) {
  SmallVector<int8_t> bytes(64, 0);
  bytes[0] = 1;
  auto set = [&](int64_t number, int64_t count, int64_t rowBytes) {
    if (count == 0)
      return;
    bytes[16 + 2 * number] = int8_t(rowBytes);
    bytes[48 + number] = int8_t(count);
  };
  int64_t across = 4 * std::min(shape.columns, kRows);
  for (int64_t i = 0; i < 2; ++i) {
    int64_t here = std::clamp<int64_t>(shape.rows - i * kRows, 0, kRows);
    set(kSums + 2 * i, here, across);
    set(kSums + 2 * i + 1, here, across);
    set(kLeft + i, here, kRowBytes);
    set(kRight + i, kRows, across);
  }
  return DenseElementsAttr::get(
      VectorType::get({int64_t(bytes.size())}, b.getI8Type()),
      ArrayRef<int8_t>(bytes));
}

void configureMatrixRegisters(OpBuilder &b, Location loc, Value memory,
                              const MatrixShape &shape) {
  DenseElementsAttr bytes = configuration(b, shape);
  Value value = b.create<LLVM::ConstantOp>(loc, bytes.getType(), bytes);
  b.create<LLVM::StoreOp>(loc, value, memory, /*alignment=*/64);
  callIntrinsic(b, loc, "llvm.x86.ldtilecfg", memory);
}

void releaseMatrixRegisters(OpBuilder &b, Location loc) {
  callIntrinsic(b, loc, "llvm.x86.tilerelease", {});
}

// The kernel's own shape is that of its first product, with whole registers of
// rows unless it `isExact`; another shape is configured for one product.
bool KernelLowering::setMatrixShape(const MatrixShape &shape, bool isExact) {
  if (!configuration) {
    int64_t rows = isExact ? shape.rows : 2 * kRows;
    configuration = {{rows, shape.columns}, scratchUsed};
    scratchUsed += 64;
  }
  auto across = [](int64_t columns) { return std::min(columns, kRows); };
  int64_t own = configuration->shape.rows;
  if ((shape.rows == own || (shape.rows % kRows == 0 && shape.rows < own)) &&
      across(shape.columns) == across(configuration->shape.columns))
    return false;
  configureMatrixRegisters(
      b, loc, step(scratch, b.getI8Type(), configuration->place), shape);
  return true;
}

// Loads or stores registers [first, first + rows × columns) at tiles of a
// matrix with `rowBytes` between rows.
void KernelLowering::moveMatrix(StringRef intrinsic, const Matrix &matrix,
                                int64_t first, int64_t rows, int64_t columns,
                                int64_t pitch) {
  Value stride = p.constant(b.getI64IntegerAttr(matrix.rowBytes));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      Value at = step(matrix.start, b.getI8Type(),
                      i * kRows * matrix.rowBytes + j * matrix.columnBytes);
      callIntrinsic(b, loc, intrinsic,
                    {byteConstant(b, loc, first + i * pitch + j), at, stride});
    }
}

// Prefetches lines of lhs some iterations ahead; after the last of a row, the
// first of the next rows. Lines outside the operand are not prefetched.
void KernelLowering::prefetchMatrix(const Matrix &lhs, int64_t rows, Value k,
                                    Value depth) {
  Type i64 = b.getI64Type();
  auto number = [&](int64_t value) {
    return p.constant(b.getI64IntegerAttr(value));
  };
  auto bytes = [&](Value terms) -> Value {
    Value wide = b.create<arith::IndexCastOp>(loc, i64, terms);
    return b.create<arith::MulIOp>(loc, wide, number(2));
  };
  Value next = b.create<arith::AddIOp>(loc, bytes(k), number(kAheadBytes));
  Value wrapped = b.create<arith::AddIOp>(
      loc, b.create<arith::SubIOp>(loc, next, bytes(depth)),
      number(rows * lhs.rowBytes));
  Value ends = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::uge, next,
                                       bytes(depth));
  next = b.create<arith::SelectOp>(loc, ends, wrapped, next);
  Value start = b.create<LLVM::GEPOp>(loc, lhs.start.getType(), b.getI8Type(),
                                      lhs.start, ArrayRef<LLVM::GEPArg>{next});
  for (int64_t row = 0; row < rows; ++row)
    b.create<LLVM::Prefetch>(
        loc, step(start, b.getI8Type(), row * lhs.rowBytes),
        b.getI32IntegerAttr(0), b.getI32IntegerAttr(3), b.getI32IntegerAttr(1));
}

// Prefetches lines of rhs with two prefetch distances: far, into L2, and near,
// into L1. A micropanel is one run. Of a panel of two micropanels only a chunk
// is read, and the far prefetch is of the next panel. Lines outside the operand
// are not prefetched.
void KernelLowering::prefetchMicropanels(const Matrix &rhs, int64_t columns) {
  int64_t far = columns > 1 ? columns * rhs.columnBytes : kFarBytes;
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t row = 0; row < kRows; ++row)
      for (auto [ahead, hint] : {std::pair(far, 2), std::pair(kNearBytes, 3)})
        b.create<LLVM::Prefetch>(
            loc,
            step(rhs.start, b.getI8Type(),
                 j * rhs.columnBytes + row * rhs.rowBytes + ahead),
            b.getI32IntegerAttr(0), b.getI32IntegerAttr(hint),
            b.getI32IntegerAttr(1));
}

// While tiles of rows are multiplied by a panel of micropanels, each tile
// prefetches part of the next panel into L2: as many lines in each block of
// terms as it takes for `tiles` tiles to fetch all of it. Lines are
// consecutive, so that the processor detects a stream.
void KernelLowering::prefetchNextPanel(const Matrix &rhs, int64_t columns,
                                       Value firstRow, int64_t tiles,
                                       const Terms &terms) {
  Type i64 = b.getI64Type();
  auto number = [&](int64_t value) {
    return p.constant(b.getI64IntegerAttr(value));
  };
  auto wide = [&](Value index) -> Value {
    return b.create<arith::IndexCastOp>(loc, i64, index);
  };
  auto times = [&](Value x, Value y) -> Value {
    return b.create<arith::MulIOp>(loc, x, y);
  };
  auto sum = [&](Value x, Value y) -> Value {
    return b.create<arith::AddIOp>(loc, x, y);
  };
  tiles = std::min(tiles, kPassing);
  int64_t lines = std::min<int64_t>(
      llvm::PowerOf2Ceil(llvm::divideCeil(columns * kRows, tiles)), kRows);
  Value tile = b.create<arith::DivUIOp>(loc, wide(firstRow), number(2 * kRows));
  // Tiles after the last part start again.
  tile = b.create<arith::RemUIOp>(loc, tile, number(columns * kRows / lines));
  Value parts = number(kRows / lines);
  Value micropanel = b.create<arith::DivUIOp>(loc, tile, parts),
        part = b.create<arith::RemUIOp>(loc, tile, parts);
  Value done = sum(times(part, wide(terms.depth)), wide(terms.at));
  Value bytes = sum(times(micropanel, number(rhs.columnBytes)),
                    times(done, number(lines * kRowBytes / kTerms)));
  Value start = b.create<LLVM::GEPOp>(loc, rhs.start.getType(), b.getI8Type(),
                                      rhs.start, ArrayRef<LLVM::GEPArg>{bytes});
  for (int64_t line = 0; line < lines; ++line)
    b.create<LLVM::Prefetch>(loc,
                             step(start, b.getI8Type(),
                                  columns * rhs.columnBytes + line * kRowBytes),
                             b.getI32IntegerAttr(0), b.getI32IntegerAttr(2),
                             b.getI32IntegerAttr(1));
}

// Zeros, or the sums in memory if `keep`.
void KernelLowering::startSums(const Matrix &sums, int64_t rows,
                               int64_t columns, Value keep) {
  auto branch = b.create<scf::IfOp>(loc, keep, true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  moveMatrix("llvm.x86.tileloadd64", sums, kSums, rows, columns, 2);
  b.setInsertionPointToStart(branch.elseBlock());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      callIntrinsic(b, loc, "llvm.x86.tilezero",
                    byteConstant(b, loc, kSums + 2 * i + j));
}

void KernelLowering::storeSums(const Matrix &sums, int64_t rows,
                               int64_t columns) {
  moveMatrix("llvm.x86.tilestored64", sums, kSums, rows, columns, 2);
}

// Prefetches lines of the sums of the following rows: kSumLines in each block
// of terms.
void KernelLowering::prefetchSums(const Matrix &sums, Value k) {
  constexpr int64_t kSumLines = 4;
  constexpr int64_t kRowsAtOnce = kSumLines / 2;
  Value block = b.create<arith::DivUIOp>(loc, k, p.index(kTerms));
  Value following = step(sums.start, b.getI8Type(), 2 * kRows * sums.rowBytes);
  Value at =
      advance(following, b.getI8Type(), block, {kRowsAtOnce * sums.rowBytes});
  for (int64_t line = 0; line < kSumLines; ++line)
    b.create<LLVM::Prefetch>(
        loc,
        step(at, b.getI8Type(),
             line / 2 * sums.rowBytes + line % 2 * kRowBytes),
        b.getI32IntegerAttr(0), b.getI32IntegerAttr(3), b.getI32IntegerAttr(1));
}

// The four products of a block of terms. As soon as a register has been read
// for the last time, it is loaded for the next block; a load from L2 then has
// the time of three products.
void KernelLowering::multiplyBlock(const Matrix &nextLeft,
                                   const Matrix &nextRight) {
  auto product = [&](int64_t i, int64_t j) {
    callIntrinsic(b, loc, "llvm.x86.tdpbf16ps",
                  {byteConstant(b, loc, kSums + 2 * i + j),
                   byteConstant(b, loc, kLeft + i),
                   byteConstant(b, loc, kRight + j)});
  };
  product(0, 0);
  product(0, 1);
  loadLeft(nextLeft, 0);
  product(1, 0);
  loadRight(nextRight, 0);
  product(1, 1);
  loadRight(nextRight, 1);
  loadLeft(nextLeft, 1);
}

void KernelLowering::loadLeft(const Matrix &lhs, int64_t i) {
  Matrix part{step(lhs.start, b.getI8Type(), i * kRows * lhs.rowBytes),
              lhs.rowBytes};
  moveMatrix("llvm.x86.tileloaddt164", part, kLeft + i, 1, 1, 0);
}

void KernelLowering::loadRight(const Matrix &rhs, int64_t j) {
  Matrix part{step(rhs.start, b.getI8Type(), j * rhs.columnBytes),
              rhs.rowBytes};
  moveMatrix("llvm.x86.tileloadd64", part, kRight + j, 1, 1, 0);
}

bool KernelLowering::meetsMicropanels(tile::MmaStagedOp op) {
  const Memory &columns = memories[op.getRhs()];
  return columns.pairs && columns.shape.size() > 2 &&
         columns.shape.back() == kRows;
}

// The start addresses of the operands.
llvm::Expected<KernelLowering::Product>
KernelLowering::productOf(tile::MmaStagedOp op) {
  auto matrixOf = [&](Value value, ValueRange indices, int64_t bytes) {
    const Memory &memory = memories[value];
    int64_t pitch = memory.strides[memory.strides.size() - 2];
    return Matrix{address(memory, scalarsOf(indices)),
                  pitch * bytes * (memory.pairs ? 2 : 1)};
  };
  if (memories[op.getLhs()].strides.back() != 1)
    return error(op, "requires contiguous rows of the left operand");
  Product product{matrixOf(op.getLhs(), op.getLhsIndices(), 2),
                  matrixOf(op.getRhs(), op.getRhsIndices(), 2),
                  matrixOf(op.getSums(), op.getSumIndices(), 4)};
  if (meetsMicropanels(op))
    product.rhs.columnBytes = 2 * memories[op.getRhs()].strides.end()[-3];
  return product;
}

llvm::Error
KernelLowering::lowerMmaStaged(tile::MmaStagedOp op,
                               ArrayRef<InterleavedLoop> interleaved) {
  if (!target.matrixTiles)
    return error(op, "requires a target with matrix registers");
  llvm::Expected<Product> product = productOf(op);
  if (!product)
    return product.takeError();
  int64_t count = op.getShape()[0];
  bool isMicropanels = meetsMicropanels(op);
  bool isOther = setMatrixShape({std::min(count, 2 * kRows), op.getShape()[1]},
                                isMicropanels && op.getFar());
  if (count > 2 * kRows) {
    if (llvm::Error error =
            lowerPanel(*product, op, isMicropanels, interleaved))
      return error;
  } else {
    lowerOneTile(*product, op);
  }
  if (isOther)
    configureMatrixRegisters(b, loc,
                             step(scratch, b.getI8Type(), configuration->place),
                             configuration->shape);
  return llvm::Error::success();
}

// As many rows as the registers hold, or fewer.
void KernelLowering::lowerOneTile(const Product &product,
                                  tile::MmaStagedOp op) {
  const auto &[lhs, rhs, sums] = product;
  int64_t rows = llvm::divideCeil(op.getShape()[0], kRows),
          columns = llvm::divideCeil(op.getShape()[1], kRows);
  bool isMicropanels = meetsMicropanels(op);
  int64_t rowsOfLhs = memories[op.getLhs()].shape.end()[-2];
  startSums(sums, rows, columns, scalarOf(op.getKeep()));
  Value depth = scalarOf(op.getDepth());
  auto loop = b.create<scf::ForOp>(loc, p.index(0), depth, p.index(kTerms));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value k = loop.getInductionVar();
    if (op.getFar() && !isMicropanels)
      prefetchMatrix(lhs, op.getShape()[0], k, depth);
    Matrix left{advance(lhs.start, b.getI8Type(), k, {2}), lhs.rowBytes};
    Matrix right{advance(rhs.start, b.getI8Type(), k, {rhs.rowBytes / 2}),
                 rhs.rowBytes, rhs.columnBytes};
    if (op.getFar() && isMicropanels)
      prefetchMicropanels(right, columns);
    if (!op.getFar() && isMicropanels)
      prefetchNextPanel(rhs, columns, scalarsOf(op.getLhsIndices()).end()[-2],
                        llvm::divideCeil(rowsOfLhs, 2 * kRows), {k, depth});
    multiplyTile(left, right, op);
  }
  storeSums(sums, rows, columns);
}

// A block of terms. One operand stays in L1 while the other is streamed, which
// the hint says; this gains a tenth and more. Panels of micropanels stay while
// rows are streamed, and so does rhs if lhs is far away; otherwise rows stay.
void KernelLowering::multiplyTile(const Matrix &left, const Matrix &right,
                                  tile::MmaStagedOp op) {
  int64_t rows = llvm::divideCeil(op.getShape()[0], kRows),
          columns = llvm::divideCeil(op.getShape()[1], kRows);
  bool keepsRight = op.getFar() || meetsMicropanels(op);
  StringRef stays = "llvm.x86.tileloadd64", passes = "llvm.x86.tileloaddt164";
  StringRef loadLeft = keepsRight && !op.getFar() ? passes : stays;
  moveMatrix(keepsRight ? stays : passes, right, kRight, 1, columns, 0);
  for (int64_t i = 0; i < rows; ++i) {
    Matrix part{step(left.start, b.getI8Type(), i * kRows * left.rowBytes),
                left.rowBytes};
    moveMatrix(loadLeft, part, kLeft + i, 1, 1, 0);
    for (int64_t j = 0; j < columns; ++j)
      callIntrinsic(b, loc, "llvm.x86.tdpbf16ps",
                    {byteConstant(b, loc, kSums + 2 * i + j),
                     byteConstant(b, loc, kLeft + i),
                     byteConstant(b, loc, kRight + j)});
  }
}

} // namespace tessera::cpu
