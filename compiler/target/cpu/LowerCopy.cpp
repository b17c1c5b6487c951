// tile.copy: staged copies as loops of vector moves, complete when they return.
// Copying an odd number of rows into `pairs` writes zeros next to the last one.
#include "compiler/target/cpu/Lowering.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace tessera::cpu {

// Runs of at most this many rows are copied without a loop.
static constexpr int64_t kStraightPieces = 8;

void KernelLowering::loopNest(ArrayRef<int64_t> trips,
                              llvm::function_ref<void(ValueRange)> body) {
  SmallVector<Value> indices;
  OpBuilder::InsertionGuard guard(b);
  for (int64_t trip : trips) {
    if (trip == 1) {
      indices.push_back(p.index(0));
      continue;
    }
    auto loop =
        b.create<scf::ForOp>(loc, p.index(0), p.index(trip), p.index(1));
    b.setInsertionPointToStart(loop.getBody());
    indices.push_back(loop.getInductionVar());
  }
  body(indices);
}

Value KernelLowering::advance(Value pointer, Type element, ValueRange indices,
                              ArrayRef<int64_t> strides) {
  Memory memory;
  memory.pointer = pointer;
  memory.element = element;
  memory.strides.assign(strides.begin(), strides.end());
  SmallVector<Value> values(indices);
  return address(memory, values);
}

static SmallVector<int64_t> without(ArrayRef<int64_t> list,
                                    ArrayRef<int64_t> positions) {
  SmallVector<int64_t> result;
  for (auto [i, value] : llvm::enumerate(list))
    if (!llvm::is_contained(positions, static_cast<int64_t>(i)))
      result.push_back(value);
  return result;
}

// Both sides are contiguous along `dim`.
void KernelLowering::copyRuns(const Box &from, const Box &to, int64_t dim) {
  int64_t count = from.shape[dim], lanes = target.lanes;
  SmallVector<int64_t> trips = without(from.shape, {dim}),
                       sourceStrides = without(from.strides, {dim}),
                       targetStrides = without(to.strides, {dim});
  int64_t whole = count / (kStraightPieces * lanes);
  bool split = count > 2 * kStraightPieces * lanes;
  auto move = [&](Value source, Value sink, int64_t elements) {
    for (int64_t c = 0; c < elements; c += lanes)
      storePiece(
          loadPiece(step(source, from.element, c), from.element, elements - c),
          step(sink, to.element, c), to.element, elements - c);
  };
  loopNest(trips, [&](ValueRange at) {
    Value source = advance(from.start, from.element, at, sourceStrides);
    Value sink = advance(to.start, to.element, at, targetStrides);
    if (!split)
      return move(source, sink, count);
    int64_t run = kStraightPieces * lanes;
    loopNest({whole}, [&](ValueRange i) {
      move(advance(source, from.element, i, {run}),
           advance(sink, to.element, i, {run}), run);
    });
    move(step(source, from.element, whole * run),
         step(sink, to.element, whole * run), count - whole * run);
  });
}

// The source is contiguous along `fromDim`, the target along `toDim`:
// transposes blocks of lanes × lanes in registers, then the ragged remainder.
void KernelLowering::copyTransposed(const Box &from, const Box &to,
                                    int64_t fromDim, int64_t toDim) {
  SmallVector<int64_t> trips = without(from.shape, {fromDim, toDim});
  int64_t m = from.shape[toDim], n = from.shape[fromDim], lanes = target.lanes;
  auto micropanelOf = [&](int64_t size) { return std::min(size, lanes); };
  auto block = [&](Value source, Value sink, int64_t rows, int64_t columns) {
    Tile tile = loadBox(
        {source, from.element, {rows, columns}, {from.strides[toDim], 1}}, {});
    storeBox(p.transpose(tile),
             {sink, to.element, {columns, rows}, {to.strides[fromDim], 1}}, {});
  };
  loopNest(trips, [&](ValueRange at) {
    Value source = advance(from.start, from.element, at,
                           without(from.strides, {fromDim, toDim}));
    Value sink = advance(to.start, to.element, at,
                         without(to.strides, {fromDim, toDim}));
    // Up to four rectangles: whole blocks, and the edges.
    for (int64_t i = 0; i < m;
         i += i == 0 && m >= lanes ? m / lanes * lanes : m)
      for (int64_t j = 0; j < n;
           j += j == 0 && n >= lanes ? n / lanes * lanes : n) {
        int64_t rows = micropanelOf(m - i), columns = micropanelOf(n - j);
        Value corner = step(source, from.element, i * from.strides[toDim] + j);
        Value place = step(sink, to.element, j * to.strides[fromDim] + i);
        loopNest({(m - i) / rows, (n - j) / columns}, [&](ValueRange tile) {
          block(advance(corner, from.element, tile,
                        {rows * from.strides[toDim], columns}),
                advance(place, to.element, tile,
                        {rows, columns * to.strides[fromDim]}),
                rows, columns);
        });
      }
  });
}

// Into [..., k/2, n, 2]; `start` is the target's first element. If n is
// contiguous in the source, rows are interleaved; if k is, pairs are transposed
// as i32.
void KernelLowering::copyToPairs(const Box &from, const Box &to,
                                 int64_t rowStride, int64_t kDim,
                                 int64_t nDim) {
  int64_t k = from.shape[kDim], n = from.shape[nDim], lanes = target.lanes;
  int64_t kStep = from.strides[kDim], nStep = from.strides[nDim];
  SmallVector<int64_t> others = without(from.shape, {kDim, nDim}),
                       otherSource = without(from.strides, {kDim, nDim}),
                       otherTarget = without(to.strides, {kDim, nDim});
  Type element = from.element, word = b.getI32Type();
  // The rows k and k + 1, a micropanel of up to `lanes` columns at a time.
  auto row = [&](Value source, int64_t columns) -> Value {
    Tile tile = loadBox({source, element, {columns}, {nStep}}, {});
    Value piece = tile.pieces[0];
    return isa<VectorType>(piece.getType()) ? piece : p.gatherLanes(piece);
  };
  auto zip = [&](Value source, Value sink, bool hasOdd) {
    for (int64_t c = 0; c < n; c += lanes) {
      int64_t columns = std::min(lanes, n - c);
      Value at = step(source, element, c * nStep);
      Value odd = hasOdd ? row(step(at, element, kStep), columns) : Value();
      storePiece(p.pairRows(row(at, columns), odd), step(sink, element, 2 * c),
                 word, columns);
    }
  };
  auto zipAll = [&](int64_t firstPair, int64_t pairs, bool hasOdd) {
    Value source = step(from.start, element, 2 * firstPair * kStep);
    Value sink = step(to.start, element, firstPair * rowStride);
    SmallVector<int64_t> trips{pairs}, sourceSteps{2 * kStep},
        targetSteps{rowStride};
    llvm::append_range(trips, others);
    llvm::append_range(sourceSteps, otherSource);
    llvm::append_range(targetSteps, otherTarget);
    loopNest(trips, [&](ValueRange at) {
      zip(advance(source, element, at, sourceSteps),
          advance(sink, element, at, targetSteps), hasOdd);
    });
  };
  if (kStep != 1 || k < 2 * lanes) {
    if (k > 1)
      zipAll(0, k / 2, true);
  } else {
    loopNest(others, [&](ValueRange at) {
      transposePairs(advance(from.start, element, at, otherSource),
                     advance(to.start, element, at, otherTarget), element,
                     nStep, rowStride, k / 2, n);
    });
  }
  if (k % 2)
    zipAll(k / 2, 1, false);
}

// Transposes [n, halves] words of two k's to [halves, n]. Steps are in elements
// of bf16; rows may begin at any element.
void KernelLowering::transposePairs(Value source, Value sink, Type element,
                                    int64_t nStep, int64_t rowStride,
                                    int64_t halves, int64_t n) {
  int64_t lanes = target.lanes, whole = halves / lanes;
  auto words = VectorType::get({lanes}, b.getI32Type());
  auto block = [&](Value corner, Value place, int64_t rows, int64_t count) {
    SmallVector<Value> lines(lanes, p.bits(words, 0));
    for (int64_t r = 0; r < rows; ++r)
      lines[r] = b.create<LLVM::LoadOp>(loc, words,
                                        step(corner, element, r * nStep), 2);
    lines = p.transpose(lines);
    for (int64_t w = lanes - count; w < lanes; ++w)
      storePiece(lines[w], step(place, element, w * rowStride), b.getI32Type(),
                 rows);
  };
  for (int64_t c = 0; c < n;
       c += c == 0 && n >= lanes ? n / lanes * lanes : n) {
    int64_t rows = std::min(lanes, n - c), micropanels = (n - c) / rows;
    Value corner = step(source, element, c * nStep);
    Value place = step(sink, element, 2 * c);
    loopNest({micropanels, whole}, [&](ValueRange i) {
      block(advance(corner, element, i, {rows * nStep, 2 * lanes}),
            advance(place, element, i, {2 * rows, lanes * rowStride}), rows,
            lanes);
    });
    if (halves % lanes) // once more, overlapping the previous block
      loopNest({micropanels}, [&](ValueRange i) {
        int64_t first = halves - lanes;
        block(step(advance(corner, element, i, {rows * nStep}), element,
                   2 * first),
              step(advance(place, element, i, {2 * rows}), element,
                   first * rowStride),
              rows, halves % lanes);
      });
  }
}

llvm::Error KernelLowering::lowerCopy(tile::CopyOp op) {
  if (!op.getBounds().empty() || op.getSource().getType().getElementType() !=
                                     op.getTarget().getType().getElementType())
    return error(
        op,
        "with bounds, repetition or a conversion is not supported on the CPU");
  const Memory &source = memories[op.getSource()],
               &sink = memories[op.getTarget()];
  Box from = boxOf(source, scalarsOf(op.getSourceIndices()),
                   op.getSourceAlong(), op.getShape());
  Box to = boxOf(sink, scalarsOf(op.getTargetIndices()), op.getTargetAlong(),
                 op.getShape());
  if (sink.pairs) {
    int64_t rank = sink.shape.size(), boxRank = op.getShape().size();
    auto dimOf = [&](int64_t d) -> int64_t {
      return llvm::find(op.getTargetAlong(), d) - op.getTargetAlong().begin();
    };
    int64_t kDim = dimOf(rank - 2), nDim = dimOf(rank - 1);
    if (kDim >= boxRank || nDim >= boxRank)
      return error(op, "paired memory is filled along its last two dimensions");
    // A single column has the same layout as elsewhere.
    if (sink.shape[rank - 1] == 1 && from.strides[kDim] == 1 &&
        from.shape[kDim] % 2 == 0) {
      to.strides[kDim] = 1;
      copyRuns(from, to, kDim);
      return llvm::Error::success();
    }
    copyToPairs(from, to, 2 * sink.strides[rank - 2], kDim, nDim);
    return llvm::Error::success();
  }
  auto contiguous = [](const Box &box) -> int64_t { // -1: none
    int64_t best = -1;
    for (auto [d, stride] : llvm::enumerate(box.strides))
      if (stride == 1 && (best < 0 || box.shape[d] > box.shape[best]))
        best = d;
    return best;
  };
  int64_t fromDim = contiguous(from), toDim = contiguous(to);
  if (fromDim >= 0 && to.strides[fromDim] == 1) {
    copyRuns(from, to, fromDim);
  } else if (fromDim >= 0 && toDim >= 0) {
    copyTransposed(from, to, fromDim, toDim);
  } else {
    loopNest(op.getShape(), [&](ValueRange at) {
      Value element = loadScalar(
          advance(from.start, from.element, at, from.strides), from.element);
      storeScalar(element, advance(to.start, to.element, at, to.strides),
                  to.element);
    });
  }
  return llvm::Error::success();
}

} // namespace tessera::cpu
