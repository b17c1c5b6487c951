// Lowers products, reductions, broadcasts and the vector ops that skeletons
// use.
#include "compiler/target/cpu/Lowering.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using tessera::tile::ReduceKind;

namespace tessera::cpu {

static ArrayRef<int64_t> shapeOf(Value value) {
  auto vector = dyn_cast<VectorType>(value.getType());
  return vector ? vector.getShape() : ArrayRef<int64_t>();
}

//===--- products ---------------------------------------------------------===//

Value KernelLowering::leftElement(const Tile &lhs, int64_t i, int64_t k,
                                  bool isBf16, Type type) {
  Value element = lhs.form == Form::scalars ? lhs.pieces[i * lhs.shape[1] + k]
                                            : p.element(lhs, i, k);
  if (isBf16)
    element = p.extendBf16(element);
  return p.like(element, type);
}

// Elements (i, k) and (i, k + 1) as one i32; a last odd element is paired with
// zero.
Value KernelLowering::leftPair(const Tile &lhs, int64_t i, int64_t k) {
  if (lhs.form == Form::scalars)
    return lhs.pieces[i * ((lhs.shape[1] + 1) / 2) + k / 2];
  bool hasOdd = k + 1 < lhs.shape[1];
  return p.pairRows(p.element(lhs, i, k),
                    hasOdd ? p.element(lhs, i, k + 1) : Value());
}

Value KernelLowering::rightPair(const Tile &rhs, int64_t k, int64_t chunk) {
  int64_t n = rhs.shape[1], chunks = (n + target.lanes - 1) / target.lanes;
  if (rhs.form == Form::pairs)
    return rhs.pieces[k / 2 * chunks + chunk];
  Value even = rhs.pieces[k * chunks + chunk];
  Value odd =
      k + 1 < rhs.shape[0] ? rhs.pieces[(k + 1) * chunks + chunk] : Value();
  Value words = p.pairRows(even, odd);
  return isa<VectorType>(words.getType()) ? words : p.gatherLanes(words);
}

// Row k of a right operand; bf16 is extended to f32.
Value KernelLowering::rightRow(const Tile &rhs, int64_t k, int64_t chunk,
                               bool isBf16) {
  int64_t n = rhs.shape[1], chunks = p.chunks(n);
  if (rhs.form == Form::pairs)
    return p.halfOfPair(rhs.pieces[k / 2 * chunks + chunk], k % 2);
  Value value = rhs.pieces[k * chunks + chunk];
  return isBf16 ? p.extendBf16(value) : value;
}

// Adds four products of bytes, `left` signed and `right` unsigned. Without an
// instruction that multiplies signed by unsigned bytes exactly, even and odd
// bytes are extended to 16 bits.
Value KernelLowering::multiplyBytes(Value sum, Value left, Value right) {
  auto call = [&](const char *name, Type type, ValueRange operands) -> Value {
    return b
        .create<LLVM::CallIntrinsicOp>(loc, type, b.getStringAttr(name),
                                       operands)
        .getResults();
  };
  Type type = sum.getType();
  if (target.byteDot)
    return call("llvm.x86.avx512.vpdpbusd.512", type,
                ValueRange{sum, right, left});
  Type halves = VectorType::get({2 * target.lanes}, b.getI16Type());
  Value eight = p.bits(halves, 8);
  auto cast = [&](Value x) -> Value {
    return b.create<LLVM::BitcastOp>(loc, halves, x);
  };
  left = cast(left);
  right = cast(right);
  Value even = b.create<arith::ShLIOp>(loc, left, eight);
  even = b.create<arith::ShRSIOp>(loc, even, eight);
  Value evenRight = b.create<arith::AndIOp>(loc, right, p.bits(halves, 255));
  Value odd = b.create<arith::ShRSIOp>(loc, left, eight);
  Value oddRight = b.create<arith::ShRUIOp>(loc, right, eight);
  for (auto [x, y] : {std::pair(even, evenRight), {odd, oddRight}})
    sum = b.create<arith::AddIOp>(
        loc, sum, call("llvm.x86.avx2.pmadd.wd", type, ValueRange{x, y}));
  return sum;
}

// The same as two sums of 16 bits; the maker of the op bounds them.
Value KernelLowering::multiplyPairs(Value sum, Value left, Value right) {
  const bool isWide = target.lanes == 16;
  Type halves = VectorType::get({2 * target.lanes}, b.getI16Type());
  auto cast = [&](Value x, Type to) -> Value {
    return b.create<LLVM::BitcastOp>(loc, to, x);
  };
  Type bytes = VectorType::get({4 * target.lanes}, b.getI8Type());
  Value products =
      b.create<LLVM::CallIntrinsicOp>(
           loc, halves,
           b.getStringAttr(isWide ? "llvm.x86.avx512.pmaddubs.w.512"
                                  : "llvm.x86.avx2.pmadd.ub.sw"),
           ValueRange{cast(right, bytes), cast(left, bytes)})
          .getResults();
  return cast(b.create<arith::AddIOp>(loc, cast(sum, halves), products),
              sum.getType());
}

llvm::Error KernelLowering::lowerDotPairs(tile::DotPairsOp op) {
  Tile lhs = tileOf(op.getLhs()), rhs = tileOf(op.getRhs()),
       sum = tileOf(op.getAccumulator());
  const bool isWide = target.lanes == 16;
  Type halves = VectorType::get({2 * target.lanes}, b.getI16Type());
  auto cast = [&](Value x) -> Value {
    return b.create<LLVM::BitcastOp>(loc, halves, x);
  };
  for (auto [x, y, so] : llvm::zip_equal(lhs.pieces, rhs.pieces, sum.pieces)) {
    if (!isa<VectorType>(so.getType()))
      return error(op, "requires more than one column");
    Value products =
        b.create<LLVM::CallIntrinsicOp>(
             loc, so.getType(),
             b.getStringAttr(isWide ? "llvm.x86.avx512.pmaddw.d.512"
                                    : "llvm.x86.avx2.pmadd.wd"),
             ValueRange{cast(x), cast(y)})
            .getResults();
    so = b.create<arith::AddIOp>(loc, so, products);
  }
  bind(op.getResult(), std::move(sum));
  return llvm::Error::success();
}

// One splat of A and a row of accumulators at a time, so that only the
// accumulators, a row of B and one splat are live.
llvm::Error KernelLowering::lowerMma(tile::MmaOp op) {
  Tile lhs = tileOf(op.getLhs()), rhs = tileOf(op.getRhs()),
       acc = tileOf(op.getAccumulator());
  int64_t m = acc.shape[0], n = acc.shape[1], k = lhs.shape[1];
  int64_t chunks = p.chunks(n);
  Type piece = acc.pieces.front().getType();
  bool isBf16 = getElementTypeOrSelf(op.getLhs().getType()).isBF16();
  bool dot = isBf16 && target.bf16Dot && isa<VectorType>(piece);
  if (getElementTypeOrSelf(op.getLhs().getType()).isF16())
    return error(op, "supports f32, f64, bf16 and words of bytes on the CPU");
  bool bytes = isa<IntegerType>(getElementTypeOrSelf(op.getLhs().getType()));
  if (bytes && !isa<VectorType>(piece))
    return error(op, "requires words of one column");
  Type halves = VectorType::get({2 * target.lanes}, b.getBF16Type());
  for (int64_t kk = 0; kk < k; kk += dot ? 2 : 1) {
    SmallVector<Value> right;
    for (int64_t c = 0; c < chunks; ++c) {
      right.push_back(
          dot ? b.create<LLVM::BitcastOp>(loc, halves, rightPair(rhs, kk, c))
                    .getResult()
              : rightRow(rhs, kk, c, isBf16));
    }
    for (int64_t i = 0; i < m; ++i) {
      Value left = dot ? p.splat(leftPair(lhs, i, kk))
                       : leftElement(lhs, i, kk, isBf16, piece);
      if (dot)
        left = b.create<LLVM::BitcastOp>(loc, halves, left);
      for (int64_t c = 0; c < chunks; ++c) {
        Value &sum = acc.pieces[i * chunks + c];
        if (dot)
          sum = b.create<LLVM::CallIntrinsicOp>(
                     loc, piece,
                     b.getStringAttr("llvm.x86.avx512bf16.dpbf16ps.512"),
                     ValueRange{sum, left, right[c]})
                    .getResults();
        else if (bytes)
          sum = op.getPairs() ? multiplyPairs(sum, left, right[c])
                              : multiplyBytes(sum, left, right[c]);
        else
          sum = b.create<math::FmaOp>(loc, left, right[c], sum);
      }
    }
  }
  bind(op.getResult(), std::move(acc));
  return llvm::Error::success();
}

//===--- reductions -------------------------------------------------------===//

// Maxima and minima keep NaN: x wherever it is one, else y unless x beats it.
Value KernelLowering::combine(ReduceKind kind, Value x, Value y) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(x.getType()));
  if (kind == ReduceKind::sum)
    return isFloat ? b.create<arith::AddFOp>(loc, x, y).getResult()
                   : b.create<arith::AddIOp>(loc, x, y).getResult();
  bool max = kind == ReduceKind::max;
  if (!isFloat)
    return max ? b.create<arith::MaxSIOp>(loc, x, y).getResult()
               : b.create<arith::MinSIOp>(loc, x, y).getResult();
  Value beats = b.create<arith::CmpFOp>(
      loc, max ? arith::CmpFPredicate::OGT : arith::CmpFPredicate::OLT, x, y);
  Value best = b.create<arith::SelectOp>(loc, beats, x, y);
  Value nan = b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::UNO, x, x);
  return b.create<arith::SelectOp>(loc, nan, x, best);
}

static TypedAttr identityOf(OpBuilder &b, ReduceKind kind, Type element) {
  if (auto type = dyn_cast<FloatType>(element)) {
    double value = kind == ReduceKind::sum ? -0.0
                   : kind == ReduceKind::max
                       ? -std::numeric_limits<double>::infinity()
                       : std::numeric_limits<double>::infinity();
    return b.getFloatAttr(type, value);
  }
  unsigned width = element.isIndex() ? 64 : element.getIntOrFloatBitWidth();
  llvm::APInt value = kind == ReduceKind::sum ? llvm::APInt(width, 0)
                      : kind == ReduceKind::max
                          ? llvm::APInt::getSignedMinValue(width)
                          : llvm::APInt::getSignedMaxValue(width);
  return b.getIntegerAttr(element, value);
}

// Along the last dimension: pieces one after another, then a tree over lanes,
// with the lanes after the last column replaced by the identity. Along another
// dimension: piece by piece.
llvm::Error KernelLowering::lowerReduce(tile::ReduceOp op) {
  Tile input = tileOf(op.getInput());
  ReduceKind kind = op.getKind();
  Type element = getElementTypeOrSelf(op.getInput().getType());
  if (element.isBF16() || element.isF16())
    return error(op, "supports f32, f64 and integers; extend first");
  int64_t rank = input.shape.size(), dim = op.getDim();
  Tile result{llvm::to_vector(shapeOf(op.getResult())), {}, Form::vectors};
  auto fold = [&](Value x, Value y) { return combine(kind, x, y); };
  int64_t columns = input.shape.back(), chunks = p.chunks(columns);
  if (dim == rank - 1) {
    SmallVector<Value> sums; // one for each row
    for (size_t row = 0; row < input.pieces.size(); row += chunks) {
      Value sum = input.pieces[row];
      for (int64_t c = 0; c < chunks; ++c) {
        Value piece = input.pieces[row + c];
        if (columns > 1 && columns - c * target.lanes < target.lanes) {
          Value fill = p.constant(
              DenseElementsAttr::get(cast<VectorType>(piece.getType()),
                                     Attribute(identityOf(b, kind, element))));
          piece = b.create<arith::SelectOp>(
              loc, p.laneMask(columns - c * target.lanes), piece, fill);
        }
        sum = c == 0 ? piece : fold(sum, piece);
      }
      sums.push_back(columns > 1 ? p.reduceLanes(sum, fold) : sum);
    }
    int64_t size = result.shape.empty() ? 1 : result.shape.back();
    for (size_t i = 0; i < sums.size(); i += size)
      for (int64_t c = 0; c < size; c += target.lanes)
        result.pieces.push_back(
            size == 1 ? sums[i]
                      : p.gatherLanes(ArrayRef(sums).slice(
                            i + c, std::min(target.lanes, size - c))));
    bind(op.getResult(), std::move(result));
    return llvm::Error::success();
  }
  // [outer, size, inner pieces]
  int64_t size = input.shape[dim], inner = chunks;
  for (int64_t d = dim + 1; d + 1 < rank; ++d)
    inner *= input.shape[d];
  int64_t outer = input.pieces.size() / (size * inner);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      Value sum = input.pieces[o * size * inner + i];
      for (int64_t s = 1; s < size; ++s)
        sum = fold(sum, input.pieces[(o * size + s) * inner + i]);
      result.pieces.push_back(sum);
    }
  bind(op.getResult(), std::move(result));
  return llvm::Error::success();
}

//===--- broadcasts -------------------------------------------------------===//

void KernelLowering::broadcast(const Tile &input, ArrayRef<int64_t> dims,
                               Tile &result) {
  int64_t rank = result.shape.size();
  int64_t columns = rank ? result.shape.back() : 1;
  int64_t chunks = p.chunks(columns);
  bool lastMapped = !dims.empty() && dims.back() == rank - 1;
  int64_t rows = p.pieceCount(result.shape) / chunks;
  for (int64_t row = 0; row < rows; ++row) {
    // The row's index, projected on the input's dimensions.
    SmallVector<int64_t> index(rank, 0);
    for (int64_t d = rank - 2, rest = row; d >= 0; --d) {
      index[d] = rest % result.shape[d];
      rest /= result.shape[d];
    }
    int64_t inputRow = 0, inputColumn = 0;
    for (auto [i, dim] : llvm::enumerate(dims)) {
      bool last = i + 1 == dims.size();
      if (!last)
        inputRow = inputRow * input.shape[i] + index[dim];
      else if (!lastMapped)
        inputColumn = index[dim];
    }
    if (lastMapped) {
      llvm::append_range(
          result.pieces,
          ArrayRef(input.pieces).slice(inputRow * chunks, chunks));
      continue;
    }
    Value scalar = p.element(input, inputRow, inputColumn);
    result.pieces.append(chunks, columns == 1 ? scalar : p.splat(scalar));
  }
}

llvm::Error KernelLowering::lowerBroadcast(tile::BroadcastOp op) {
  Tile result{llvm::to_vector(shapeOf(op.getResult())), {}, Form::vectors};
  broadcast(tileOf(op.getInput()), op.getDims(), result);
  bind(op.getResult(), std::move(result));
  return llvm::Error::success();
}

llvm::Error KernelLowering::lowerIota(tile::IotaOp op) {
  Tile result{llvm::to_vector(shapeOf(op.getResult())), {}, Form::vectors};
  Value start = b.create<arith::IndexCastOp>(loc, b.getI32Type(),
                                             scalarOf(op.getStart()));
  int64_t dim = op.getDim(), rank = result.shape.size();
  int64_t columns = result.shape.back(), chunks = p.chunks(columns);
  int64_t inner = 1; // rows of one index along `dim`
  for (int64_t d = dim + 1; d + 1 < rank; ++d)
    inner *= result.shape[d];
  int64_t rows = p.pieceCount(result.shape) / chunks;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t c = 0; c < chunks; ++c) {
      int64_t offset = dim == rank - 1 ? 0 : row / inner % result.shape[dim];
      Value value = b.create<arith::AddIOp>(
          loc, start, p.constant(b.getI32IntegerAttr(offset)));
      if (columns > 1) {
        value = p.splat(value);
        if (dim == rank - 1)
          value = b.create<arith::AddIOp>(loc, value,
                                          p.laneNumbers(c * target.lanes));
      }
      result.pieces.push_back(value);
    }
  bind(op.getResult(), std::move(result));
  return llvm::Error::success();
}

// vpermps takes the lowest bits of an index: four of 16 lanes, three of 8,
// where the fourth chooses between the halves of the table.
llvm::Error KernelLowering::lowerLookup(tile::LookupOp op) {
  Tile index = tileOf(op.getIndex());
  Tile result{index.shape, {}, Form::vectors};
  ArrayRef<float> table = op.getTable();
  VectorType floats = p.vectorOf(b.getF32Type());
  auto permute = [&](Value piece, size_t first) -> Value {
    Value part = p.constant(DenseElementsAttr::get(
        floats, table.slice(first, static_cast<size_t>(target.lanes))));
    bool isWide = target.lanes == 16;
    SmallVector<Value, 2> operands{part, piece};
    return b
        .create<LLVM::CallIntrinsicOp>(
            loc, floats,
            b.getStringAttr(isWide ? "llvm.x86.avx512.permvar.sf.512"
                                   : "llvm.x86.avx2.permps"),
            operands)
        .getResults();
  };
  for (Value piece : index.pieces) {
    if (!isa<VectorType>(piece.getType()))
      return error(op, "requires more than one column");
    Value value = permute(piece, 0);
    if (target.lanes == 8) {
      Value fourth =
          b.create<arith::AndIOp>(loc, piece, p.bits(piece.getType(), 8));
      Value isUpper = b.create<arith::CmpIOp>(
          loc, arith::CmpIPredicate::ne, fourth, p.bits(piece.getType(), 0));
      value = b.create<arith::SelectOp>(loc, isUpper, permute(piece, 8), value);
    }
    result.pieces.push_back(value);
  }
  bind(op.getResult(), std::move(result));
  return llvm::Error::success();
}

// The elements in row-major order under another shape.
void KernelLowering::castShape(const Tile &input, Tile &result) {
  auto last = [](ArrayRef<int64_t> shape) -> int64_t {
    return shape.empty() ? 1 : shape.back();
  };
  int64_t from = last(input.shape), to = last(result.shape);
  if (from == to) {
    result.pieces = input.pieces;
    return;
  }
  int64_t count = input.pieces.size() / p.chunks(from) * from;
  for (int64_t row = 0; row < count; row += to)
    for (int64_t c = 0; c < to; c += target.lanes) {
      SmallVector<Value> scalars;
      for (int64_t i = row + c; i < row + std::min(to, c + target.lanes); ++i)
        scalars.push_back(p.element(input, i / from, i % from));
      result.pieces.push_back(to == 1 ? scalars[0] : p.gatherLanes(scalars));
    }
}

// Interleaves the elements of two vectors.
void KernelLowering::interleave(const Tile &x, const Tile &y, Tile &result) {
  int64_t lanes = target.lanes;
  // Vectors of one element are scalars.
  if (result.shape.back() == 2) {
    result.pieces = {p.gatherLanes({x.pieces[0], y.pieces[0]})};
    return;
  }
  for (int64_t i = 0; i < p.chunks(result.shape.back()); ++i) {
    SmallVector<int64_t> mask;
    for (int64_t lane = 0; lane < lanes; ++lane)
      mask.push_back((i % 2 * lanes + lane) / 2 + lane % 2 * lanes);
    result.pieces.push_back(p.shuffle(x.pieces[i / 2], y.pieces[i / 2], mask));
  }
}

// Extracts whole rows of a matrix.
llvm::Error KernelLowering::sliceTile(vector::ExtractStridedSliceOp op,
                                      Tile &result) {
  const Tile &input = tileOf(op.getVector());
  auto at = [](ArrayAttr list, size_t i) {
    return cast<IntegerAttr>(list[i]).getInt();
  };
  if (input.shape.size() != 2 || op.getOffsets().size() != 2 ||
      at(op.getOffsets(), 1) != 0 || at(op.getSizes(), 1) != input.shape[1])
    return error(op, "takes whole rows of a matrix");
  int64_t chunks = p.chunks(input.shape[1]);
  llvm::append_range(result.pieces, ArrayRef(input.pieces)
                                        .slice(at(op.getOffsets(), 0) * chunks,
                                               at(op.getSizes(), 0) * chunks));
  return llvm::Error::success();
}

// The ops of the vector dialect that convert between scalars and tiles.
llvm::Error KernelLowering::lowerVector(Operation *op) {
  Tile result;
  if (op->getNumResults() == 1)
    result.shape = llvm::to_vector(shapeOf(op->getResult(0)));
  if (isa<vector::SplatOp>(op) ||
      (isa<vector::BroadcastOp>(op) && shapeOf(op->getOperand(0)).empty())) {
    broadcast(tileOf(op->getOperand(0)), {}, result);
  } else if (auto extract = dyn_cast<vector::ExtractOp>(op);
             extract && result.shape.empty() && !extract.hasDynamicPosition()) {
    const Tile &tile = tileOf(extract.getVector());
    int64_t row = 0, column = 0;
    for (auto [i, at] : llvm::enumerate(extract.getStaticPosition()))
      if (i + 1 == tile.shape.size())
        column = at;
      else
        row = row * tile.shape[i] + at;
    result.pieces = {p.element(tile, row, column)};
  } else if (isa<vector::ExtractElementOp>(op) &&
             shapeOf(op->getOperand(0)).empty()) {
    result.pieces = tileOf(op->getOperand(0)).pieces;
  } else if (isa<vector::InterleaveOp>(op) && result.shape.size() == 1) {
    interleave(tileOf(op->getOperand(0)), tileOf(op->getOperand(1)), result);
  } else if (isa<vector::ShapeCastOp>(op)) {
    castShape(tileOf(op->getOperand(0)), result);
  } else if (auto slice = dyn_cast<vector::ExtractStridedSliceOp>(op)) {
    if (llvm::Error error = sliceTile(slice, result))
      return error;
  } else {
    return error(op, "has no lowering on the CPU");
  }
  bind(op->getResult(0), std::move(result));
  return llvm::Error::success();
}

} // namespace tessera::cpu
