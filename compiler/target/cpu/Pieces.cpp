#include "compiler/target/cpu/Pieces.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;

namespace tessera::cpu {

Type PieceBuilder::stored(Type element) {
  return element.isBF16() ? IntegerType::get(element.getContext(), 16)
                          : element;
}

VectorType PieceBuilder::vectorOf(Type element) const {
  return VectorType::get({lanes}, stored(element));
}

Type PieceBuilder::pieceType(ArrayRef<int64_t> shape, Type element) const {
  if (shape.empty() || shape.back() == 1)
    return stored(element);
  return vectorOf(element);
}

int64_t PieceBuilder::pieceCount(ArrayRef<int64_t> shape) const {
  if (shape.empty())
    return 1;
  int64_t rows = 1;
  for (int64_t size : shape.drop_back())
    rows *= size;
  return rows * chunks(shape.back());
}

//===--- constants --------------------------------------------------------===//

Value PieceBuilder::constant(TypedAttr value) {
  Value &known = constants[value];
  if (!known) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&entry);
    known = b.create<arith::ConstantOp>(b.getUnknownLoc(), value);
  }
  return known;
}

static TypedAttr splatAttr(Type type, TypedAttr scalar) {
  if (auto vector = dyn_cast<VectorType>(type))
    return DenseElementsAttr::get(vector, Attribute(scalar));
  return scalar;
}

Value PieceBuilder::number(Type type, double value) {
  Type element = getElementTypeOrSelf(type);
  if (isa<FloatType>(element))
    return constant(splatAttr(type, b.getFloatAttr(element, value)));
  return constant(
      splatAttr(type, b.getIntegerAttr(element, static_cast<int64_t>(value))));
}

Value PieceBuilder::bits(Type type, uint64_t value) {
  Type element = getElementTypeOrSelf(type);
  llvm::APInt word(64, value);
  return constant(splatAttr(
      type,
      b.getIntegerAttr(element, word.trunc(element.getIntOrFloatBitWidth()))));
}

Value PieceBuilder::laneNumbers(int64_t first) {
  SmallVector<int32_t> numbers;
  for (int64_t i : llvm::seq<int64_t>(0, lanes))
    numbers.push_back(static_cast<int32_t>(first + i));
  return constant(DenseIntElementsAttr::get(
      VectorType::get({lanes}, b.getI32Type()), numbers));
}

Value PieceBuilder::laneMask(int64_t count) {
  SmallVector<bool> mask;
  for (int64_t i : llvm::seq<int64_t>(0, lanes))
    mask.push_back(i < count);
  return constant(
      DenseElementsAttr::get(VectorType::get({lanes}, b.getI1Type()), mask));
}

//===--- lanes ------------------------------------------------------------===//

Value PieceBuilder::splat(Value scalar) {
  return b.create<vector::SplatOp>(
      loc, VectorType::get({lanes}, scalar.getType()), scalar);
}

Value PieceBuilder::like(Value scalar, Type type) {
  return isa<VectorType>(type) ? splat(scalar) : scalar;
}

Value PieceBuilder::lane(Value vector, int64_t i) {
  return b.create<vector::ExtractOp>(loc, vector, i);
}

Value PieceBuilder::setLane(Value vector, Value scalar, int64_t i) {
  return b.create<vector::InsertOp>(loc, scalar, vector, i);
}

Value PieceBuilder::shuffle(Value x, Value y, ArrayRef<int64_t> mask) {
  return b.create<vector::ShuffleOp>(loc, x, y, mask);
}

Value PieceBuilder::gatherLanes(ArrayRef<Value> scalars) {
  Value result =
      number(VectorType::get({lanes}, scalars.front().getType()), 0.0);
  for (auto [i, scalar] : llvm::enumerate(scalars))
    result = setLane(result, scalar, i);
  return result;
}

Value PieceBuilder::element(const Tile &tile, int64_t row, int64_t column) {
  int64_t columns = tile.shape.empty() ? 1 : tile.shape.back();
  Value piece = tile.pieces[row * chunks(columns) + column / lanes];
  return isa<VectorType>(piece.getType()) ? lane(piece, column % lanes) : piece;
}

Value PieceBuilder::reduceLanes(
    Value vector, llvm::function_ref<Value(Value, Value)> combine) {
  for (int64_t width = lanes / 2; width > 1; width /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < width; ++i) {
      low.push_back(i);
      high.push_back(width + i);
    }
    vector =
        combine(shuffle(vector, vector, low), shuffle(vector, vector, high));
  }
  return combine(lane(vector, 0), lane(vector, 1));
}

// Unpacks of 32 and 64 bits inside 128-bit lanes, then the 128-bit lanes
// themselves: 64 shuffles for 16×16, all of one instruction each.
SmallVector<Value> PieceBuilder::transpose32(SmallVector<Value> rows) {
  auto mask = [&](llvm::function_ref<int64_t(int64_t, int64_t)> pick) {
    SmallVector<int64_t> result; // pick(lane of 4, position in it)
    for (int64_t i = 0; i < lanes; ++i)
      result.push_back(pick(i / 4 * 4, i % 4));
    return result;
  };
  // unpack(width, half): alternates `width` elements of x and y.
  auto unpack = [&](int64_t width, int64_t half) {
    return mask([&](int64_t lane, int64_t i) {
      int64_t source = i / width % 2, offset = i % width;
      int64_t group = width == 1 ? i / 2 : 0;
      return source * lanes + lane + half * 2 + group * width + offset;
    });
  };
  for (int64_t i = 0; i < lanes; i += 2) {
    Value x = rows[i], y = rows[i + 1];
    rows[i] = shuffle(x, y, unpack(1, 0));
    rows[i + 1] = shuffle(x, y, unpack(1, 1));
  }
  for (int64_t i = 0; i < lanes; i += 4) {
    Value a = rows[i], b0 = rows[i + 1], c = rows[i + 2], d = rows[i + 3];
    rows[i] = shuffle(a, c, unpack(2, 0));
    rows[i + 1] = shuffle(a, c, unpack(2, 1));
    rows[i + 2] = shuffle(b0, d, unpack(2, 0));
    rows[i + 3] = shuffle(b0, d, unpack(2, 1));
  }
  // Now 128-bit lane q of rows[4 i + c] holds rows 4i … 4i+3 of column 4 q + c.
  SmallVector<Value> columns(lanes);
  auto lanesOf = [&](ArrayRef<int64_t> quads) { // quads of (x, y) concatenated
    SmallVector<int64_t> result;
    for (int64_t quad : quads)
      for (int64_t i = 0; i < 4; ++i)
        result.push_back(quad * 4 + i);
    return result;
  };
  for (int64_t c = 0; c < 4; ++c) {
    if (lanes == 8) {
      columns[c] = shuffle(rows[c], rows[4 + c], lanesOf({0, 2}));
      columns[4 + c] = shuffle(rows[c], rows[4 + c], lanesOf({1, 3}));
      continue;
    }
    Value low01 = shuffle(rows[c], rows[4 + c], lanesOf({0, 1, 4, 5}));
    Value high01 = shuffle(rows[c], rows[4 + c], lanesOf({2, 3, 6, 7}));
    Value low23 = shuffle(rows[8 + c], rows[12 + c], lanesOf({0, 1, 4, 5}));
    Value high23 = shuffle(rows[8 + c], rows[12 + c], lanesOf({2, 3, 6, 7}));
    columns[c] = shuffle(low01, low23, lanesOf({0, 2, 4, 6}));
    columns[4 + c] = shuffle(low01, low23, lanesOf({1, 3, 5, 7}));
    columns[8 + c] = shuffle(high01, high23, lanesOf({0, 2, 4, 6}));
    columns[12 + c] = shuffle(high01, high23, lanesOf({1, 3, 5, 7}));
  }
  return columns;
}

// Elements of fewer than 32 bits are shuffled as i32: shuffles of 16-bit lanes
// across a register are slow or missing on all three targets.
SmallVector<Value> PieceBuilder::transpose(ArrayRef<Value> rows) {
  Type element = cast<VectorType>(rows.front().getType()).getElementType();
  SmallVector<Value> work(rows);
  bool narrow = element.isIntOrFloat() && element.getIntOrFloatBitWidth() < 32;
  auto wide = VectorType::get({lanes}, b.getI32Type());
  Type asInteger =
      narrow ? VectorType::get(
                   {lanes}, b.getIntegerType(element.getIntOrFloatBitWidth()))
             : Type();
  if (narrow)
    for (Value &row : work) {
      if (isa<FloatType>(element))
        row = b.create<arith::BitcastOp>(loc, asInteger, row);
      row = b.create<arith::ExtUIOp>(loc, wide, row);
    }
  work = transpose32(std::move(work));
  if (narrow)
    for (Value &row : work) {
      row = b.create<arith::TruncIOp>(loc, asInteger, row);
      if (isa<FloatType>(element))
        row = b.create<arith::BitcastOp>(loc, rows.front().getType(), row);
    }
  return work;
}

Tile PieceBuilder::transpose(const Tile &tile) {
  int64_t m = tile.shape[0], n = tile.shape[1];
  Tile result{{n, m}, {}, Form::vectors};
  if (m == 1 || n == 1) { // scalars on one side: lanes in, or lanes out
    SmallVector<Value> elements;
    for (int64_t i = 0; i < m * n; ++i)
      elements.push_back(n == 1 ? tile.pieces[i] : element(tile, 0, i));
    if (m == 1) {
      result.pieces = elements;
      return result;
    }
    for (int64_t i = 0; i < m; i += lanes)
      result.pieces.push_back(
          gatherLanes(ArrayRef(elements).slice(i, std::min(lanes, m - i))));
    return result;
  }
  int64_t rowChunks = chunks(n), columnChunks = chunks(m);
  result.pieces.resize(n * columnChunks);
  Value zero = number(tile.pieces.front().getType(), 0.0);
  for (int64_t i = 0; i < columnChunks; ++i)
    for (int64_t j = 0; j < rowChunks; ++j) {
      SmallVector<Value> block;
      for (int64_t r = i * lanes; r < (i + 1) * lanes; ++r)
        block.push_back(r < m ? tile.pieces[r * rowChunks + j] : zero);
      block = transpose(block);
      for (int64_t c = j * lanes; c < std::min(n, (j + 1) * lanes); ++c)
        result.pieces[c * columnChunks + i] = block[c - j * lanes];
    }
  return result;
}

//===--- bf16 -------------------------------------------------------------===//

static Type withElement(Type type, Type element) {
  if (auto vector = dyn_cast<VectorType>(type))
    return VectorType::get(vector.getShape(), element);
  return element;
}

Value PieceBuilder::pairRows(Value even, Value odd) {
  Type words = withElement(even.getType(), b.getI32Type());
  Value result = b.create<arith::ExtUIOp>(loc, words, even);
  if (!odd)
    return result;
  Value high = b.create<arith::ExtUIOp>(loc, words, odd);
  high = b.create<arith::ShLIOp>(loc, high, bits(words, 16));
  return b.create<arith::OrIOp>(loc, result, high);
}

Value PieceBuilder::halfOfPair(Value words, bool odd) {
  Value half =
      odd ? b.create<arith::AndIOp>(loc, words,
                                    bits(words.getType(), 0xffff0000))
                .getResult()
          : b.create<arith::ShLIOp>(loc, words, bits(words.getType(), 16));
  return b.create<arith::BitcastOp>(
      loc, withElement(words.getType(), b.getF32Type()), half);
}

Value PieceBuilder::extendBf16(Value piece) {
  Type words = withElement(piece.getType(), b.getI32Type());
  Value wide = b.create<arith::ExtUIOp>(loc, words, piece);
  wide = b.create<arith::ShLIOp>(loc, wide, bits(words, 16));
  return b.create<arith::BitcastOp>(loc, withElement(words, b.getF32Type()),
                                    wide);
}

// Round to nearest even by adding 0x7fff and the last kept bit; a NaN keeps its
// upper bits with the quiet bit set. The instruction does the same except that
// it treats f32 denormals as zeros.
Value PieceBuilder::truncateToBf16(Value piece, bool hasInstruction) {
  Type halves = withElement(piece.getType(), b.getI16Type());
  if (hasInstruction && isa<VectorType>(piece.getType())) {
    Type result = withElement(piece.getType(), b.getBF16Type());
    Value rounded =
        b.create<LLVM::CallIntrinsicOp>(
             loc, result,
             b.getStringAttr("llvm.x86.avx512bf16.cvtneps2bf16.512"), piece)
            .getResults();
    return b.create<arith::BitcastOp>(loc, halves, rounded);
  }
  Type words = withElement(piece.getType(), b.getI32Type());
  Value word = b.create<arith::BitcastOp>(loc, words, piece);
  Value high = b.create<arith::ShRUIOp>(loc, word, bits(words, 16));
  Value last = b.create<arith::AndIOp>(loc, high, bits(words, 1));
  Value sum = b.create<arith::AddIOp>(loc, word, bits(words, 0x7fff));
  sum = b.create<arith::AddIOp>(loc, sum, last);
  Value rounded = b.create<arith::ShRUIOp>(loc, sum, bits(words, 16));
  Value nan =
      b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::UNO, piece, piece);
  Value quiet = b.create<arith::OrIOp>(loc, high, bits(words, 0x40));
  rounded = b.create<arith::SelectOp>(loc, nan, quiet, rounded);
  return b.create<arith::TruncIOp>(loc, halves, rounded);
}

} // namespace tessera::cpu
