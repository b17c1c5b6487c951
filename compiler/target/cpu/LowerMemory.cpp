// Views of memory, and tile.load and tile.store.
#include "compiler/target/cpu/Lowering.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;
using tessera::tile::Layout;

namespace tessera::cpu {

//===--- memories ---------------------------------------------------------===//

llvm::Expected<Memory> KernelLowering::describe(Operation *op, MemRefType type,
                                                Value pointer) {
  Memory memory;
  memory.pointer = pointer;
  memory.element = type.getElementType();
  memory.shape.assign(type.getShape().begin(), type.getShape().end());
  if (!memory.element.isIntOrFloat())
    return error(op, "memory holds integers or floats");
  if (failed(getStridesAndOffset(type, memory.strides, memory.fixedOffset)) ||
      llvm::is_contained(memory.strides, ShapedType::kDynamic))
    return error(op, "strides must be static");
  if (memory.fixedOffset == ShapedType::kDynamic)
    memory.fixedOffset = 0; // it is the view's operand
  auto shared = dyn_cast_or_null<tile::SharedAttr>(type.getMemorySpace());
  memory.pairs = shared && shared.getLayout() == Layout::pairs;
  return memory;
}

llvm::Error KernelLowering::lowerAlloc(tile::AllocOp op) {
  auto type = cast<MemRefType>(op.getMemory().getType());
  if (!type.getElementType().isIntOrFloat())
    return error(op, "memory holds integers or floats");
  Value pointer = step(scratch, b.getI8Type(), scratchUsed);
  int64_t bytes = type.getNumElements() * bytesOf(type.getElementType());
  scratchUsed += llvm::alignTo(bytes, 64);
  llvm::Expected<Memory> memory = describe(op, type, pointer);
  if (!memory)
    return memory.takeError();
  memories[op.getMemory()] = std::move(*memory);
  return llvm::Error::success();
}

// Views, and scalars in memory.
llvm::Error KernelLowering::lowerMemory(Operation *op) {
  if (auto view = dyn_cast<memref::ReinterpretCastOp>(op)) {
    Memory source = memories[view.getSource()];
    llvm::Expected<Memory> memory =
        describe(op, cast<MemRefType>(view.getType()), source.pointer);
    if (!memory)
      return memory.takeError();
    if (source.pairs)
      return error(op, "views of paired memory are not supported");
    if (!view.getOffsets().empty())
      memory->offset = scalarOf(view.getOffsets()[0]);
    memories[view.getResult()] = std::move(*memory);
    return llvm::Error::success();
  }
  // The same memory with another layout.
  if (auto view = dyn_cast<memref::MemorySpaceCastOp>(op)) {
    Memory source = memories[view.getSource()];
    if (source.offset || source.fixedOffset || source.pairs)
      return error(op, "only whole buffers may change their layout");
    llvm::Expected<Memory> memory =
        describe(op, cast<MemRefType>(view.getType()), source.pointer);
    if (!memory)
      return memory.takeError();
    memories[view.getResult()] = std::move(*memory);
    return llvm::Error::success();
  }
  if (auto cast = dyn_cast<memref::CastOp>(op)) {
    memories[cast.getDest()] = memories[cast.getSource()];
    return llvm::Error::success();
  }
  if (auto load = dyn_cast<memref::LoadOp>(op)) {
    const Memory &memory = memories[load.getMemref()];
    Value pointer = address(memory, scalarsOf(load.getIndices()));
    bind(load, {{}, {loadScalar(pointer, memory.element)}, Form::vectors});
    return llvm::Error::success();
  }
  if (auto store = dyn_cast<memref::StoreOp>(op)) {
    const Memory &memory = memories[store.getMemref()];
    storeScalar(scalarOf(store.getValueToStore()),
                address(memory, scalarsOf(store.getIndices())), memory.element);
    return llvm::Error::success();
  }
  if (auto prefetch = dyn_cast<memref::PrefetchOp>(op)) {
    const Memory &memory = memories[prefetch.getMemref()];
    b.create<LLVM::Prefetch>(loc,
                             address(memory, scalarsOf(prefetch.getIndices())),
                             b.getI32IntegerAttr(prefetch.getIsWrite()),
                             b.getI32IntegerAttr(prefetch.getLocalityHint()),
                             b.getI32IntegerAttr(prefetch.getIsDataCache()));
    return llvm::Error::success();
  }
  return error(op, "has no lowering on the CPU");
}

//===--- tile.load and tile.store -----------------------------------------===//

// Whether every use is the left (right) operand of a product with more than one
// column, or with a `single` one, which is summed in scalars, without pairs.
static bool feedsOnlyProducts(Value tile, bool left, bool single = false) {
  return !tile.use_empty() && llvm::all_of(tile.getUses(), [&](OpOperand &use) {
    auto mma = dyn_cast<tile::MmaOp>(use.getOwner());
    return mma && use.getOperandNumber() == (left ? 0 : 1) &&
           single ==
               (cast<VectorType>(mma.getRhs().getType()).getDimSize(1) == 1);
  });
}

// The same through an upcast: the products unpack pairs themselves.
static bool feedsOnlyRightOperands(Value tile) {
  if (feedsOnlyProducts(tile, false))
    return true;
  return tile.hasOneUse() && isa<arith::ExtFOp>(*tile.user_begin()) &&
         feedsOnlyProducts(tile.user_begin()->getResult(0), false);
}

// Whether a box of [k, n] holds whole pairs of bf16, consecutive along k.
static bool isOfTransposedPairs(Type element, ArrayRef<int64_t> shape,
                                ArrayRef<int64_t> strides) {
  return element.isBF16() && shape.size() == 2 && strides[0] == 1 &&
         shape[0] % 2 == 0 && shape[1] > 1;
}

// Such a box: words of two elements are transposed, half as many as elements.
Tile KernelLowering::loadTransposedPairs(const Box &box) {
  int64_t words = box.shape[0] / 2, n = box.shape[1], chunks = p.chunks(n);
  Tile tile{box.shape, {}, Form::pairs};
  tile.pieces.resize(words * chunks);
  Type word = b.getI32Type();
  Value zero = p.number(VectorType::get({target.lanes}, word), 0.0);
  for (int64_t c = 0; c < chunks; ++c)
    for (int64_t first = 0; first < words; first += target.lanes) {
      SmallVector<Value> block;
      for (int64_t i = c * target.lanes; i < (c + 1) * target.lanes; ++i) {
        if (i >= n) {
          block.push_back(zero);
          continue;
        }
        Value row = step(box.start, box.element, i * box.strides[1]);
        block.push_back(loadPiece(step(row, box.element, 2 * first), word,
                                  words - first, Value(),
                                  bytesOf(box.element)));
      }
      block = p.transpose(block);
      for (int64_t i = first; i < std::min(words, first + target.lanes); ++i)
        tile.pieces[i * chunks + c] = block[i - first];
    }
  return tile;
}

// [m, k] as scalars; pairs of bf16 as i32 if k is contiguous, the last of an
// odd count paired with zero.
Tile KernelLowering::loadScalars(const Box &box) {
  Tile tile{box.shape, {}, Form::scalars};
  bool pairs = box.element.isBF16() && target.bf16Dot;
  int64_t columns = box.shape.back(), stride = box.strides.back();
  Type word = b.getI32Type();
  forEachRow(box.shape, box.strides, [&](int64_t, int64_t offset) {
    Value row = step(box.start, box.element, offset);
    auto scalar = [&](int64_t c) {
      return loadScalar(step(row, box.element, c * stride), box.element);
    };
    for (int64_t c = 0; c < columns; c += pairs ? 2 : 1) {
      if (!pairs)
        tile.pieces.push_back(scalar(c));
      else if (stride == 1 && c + 1 < columns)
        tile.pieces.push_back(
            b.create<LLVM::LoadOp>(loc, word, step(row, box.element, c), 2));
      else
        tile.pieces.push_back(
            p.pairRows(scalar(c), c + 1 < columns ? scalar(c + 1) : Value()));
    }
  });
  return tile;
}

// Whether a value of the kernel is known to be even.
static bool isEven(Value value) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return !constant[0];
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    return loop && argument == loop.getInductionVar() &&
           isEven(loop.getLowerBound()) && isEven(loop.getStep());
  }
  if (auto mul = value.getDefiningOp<arith::MulIOp>())
    return isEven(mul.getLhs()) || isEven(mul.getRhs());
  if (auto add = value.getDefiningOp<arith::AddIOp>())
    return isEven(add.getLhs()) && isEven(add.getRhs());
  return false;
}

llvm::Error KernelLowering::checkPairs(Operation *op, const Memory &memory,
                                       ArrayRef<int64_t> along, Value bound) {
  int64_t rank = memory.shape.size();
  // Transposed only as the left operand of a product.
  bool transposed =
      along.size() == 2 && along[0] == rank - 1 && along[1] == rank - 2 &&
      target.bf16Dot && isa<tile::LoadOp>(op) &&
      (feedsOnlyProducts(op->getResult(0), true) ||
       feedsOnlyProducts(op->getResult(0), true, /*single=*/true));
  if (bound || (!transposed && (along.size() != 2 || along[0] != rank - 2 ||
                                along[1] != rank - 1)))
    return error(op, "accesses paired memory other than along its last two "
                     "dimensions in order, without a bound");
  Value k = isa<tile::LoadOp>(op)
                ? cast<tile::LoadOp>(op).getIndices()[rank - 2]
                : cast<tile::StoreOp>(op).getIndices()[rank - 2];
  if (!isEven(k))
    return error(op, "a tile of paired memory must start at an even row: a "
                     "constant, or a loop's induction value of even step, "
                     "times or plus such");
  return llvm::Error::success();
}

// [m, k] of paired memory [k, m], as the i32 that it holds, or as its elements
// where they are not `paired`.
Tile KernelLowering::loadPairScalars(const Memory &memory, Value start,
                                     int64_t m, int64_t k, bool paired) {
  Tile tile{{m, k}, {}, Form::scalars};
  int64_t rowStride = 2 * memory.strides[memory.shape.size() - 2];
  Type element = paired ? Type(b.getI32Type()) : memory.element;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t row = 0; row < k; row += paired ? 2 : 1)
      tile.pieces.push_back(loadScalar(
          step(start, memory.element, row / 2 * rowStride + 2 * i + row % 2),
          element));
  return tile;
}

llvm::Expected<Tile> KernelLowering::loadPairs(tile::LoadOp op,
                                               const Memory &memory) {
  if (llvm::Error error = checkPairs(op, memory, op.getAlong(), op.getBound()))
    return error;
  auto type = cast<VectorType>(op.getResult().getType());
  int64_t k = type.getDimSize(0), n = type.getDimSize(1);
  int64_t rowStride = 2 * memory.strides[memory.shape.size() - 2];
  Value start = address(memory, scalarsOf(op.getIndices()));
  if (op.getAlong()[0] > op.getAlong()[1])
    return loadPairScalars(memory, start, k, n,
                           feedsOnlyProducts(op.getResult(), true));
  Tile pairs{{k, n}, {}, Form::pairs};
  for (int64_t row = 0; row < k; row += 2)
    for (int64_t c = 0; c < n; c += target.lanes)
      pairs.pieces.push_back(
          loadPiece(step(start, memory.element, row / 2 * rowStride + 2 * c),
                    b.getI32Type(), std::max<int64_t>(n - c, 1)));
  if (n > 1 && feedsOnlyRightOperands(op.getResult()))
    return pairs;
  Tile rows{{k, n}, {}, Form::vectors};
  int64_t chunks = (n + target.lanes - 1) / target.lanes;
  Type halves = p.vectorOf(memory.element);
  for (int64_t row = 0; row < k; ++row)
    for (int64_t c = 0; c < chunks; ++c) {
      Value word = pairs.pieces[row / 2 * chunks + c];
      if (row % 2)
        word = b.create<arith::ShRUIOp>(loc, word, p.bits(word.getType(), 16));
      Value half = b.create<arith::TruncIOp>(loc, halves, word);
      rows.pieces.push_back(n == 1 ? p.lane(half, 0) : half);
    }
  return rows;
}

llvm::Error KernelLowering::lowerLoad(tile::LoadOp op) {
  if (op.getBounds().size() > 1)
    return error(op, "has more than one bound; CPU kernels support one");
  const Memory &memory = memories[op.getMemory()];
  if (memory.pairs) {
    llvm::Expected<Tile> tile = loadPairs(op, memory);
    if (!tile)
      return tile.takeError();
    bind(op, std::move(*tile));
    return llvm::Error::success();
  }
  Box box = boxOf(memory, scalarsOf(op.getIndices()), op.getAlong(),
                  cast<VectorType>(op.getResult().getType()).getShape());
  Value bound = op.getBound() ? scalarOf(op.getBound()) : Value();
  if (!bound && isOfTransposedPairs(box.element, box.shape, box.strides) &&
      feedsOnlyRightOperands(op.getResult())) {
    bind(op, loadTransposedPairs(box));
    return llvm::Error::success();
  }
  bind(op, !bound && feedsOnlyProducts(op.getResult(), true)
               ? loadScalars(box)
               : loadBox(box, bound));
  return llvm::Error::success();
}

llvm::Error KernelLowering::lowerStore(tile::StoreOp op) {
  if (op.getBounds().size() > 1)
    return error(op, "has more than one bound; CPU kernels support one");
  const Memory &memory = memories[op.getMemory()];
  Tile tile = tileOf(op.getValue());
  Value bound = op.getBound() ? scalarOf(op.getBound()) : Value();
  if (!memory.pairs) {
    storeBox(
        tile,
        boxOf(memory, scalarsOf(op.getIndices()), op.getAlong(), tile.shape),
        bound);
    return llvm::Error::success();
  }
  if (llvm::Error error = checkPairs(op, memory, op.getAlong(), bound))
    return error;
  int64_t k = tile.shape[0], n = tile.shape[1], chunks = p.chunks(n);
  int64_t rowStride = 2 * memory.strides[memory.shape.size() - 2];
  Value start = address(memory, scalarsOf(op.getIndices()));
  for (int64_t row = 0; row < k; row += 2)
    for (int64_t c = 0; c < chunks; ++c) {
      Value even = tile.pieces[row * chunks + c];
      Value odd = row + 1 < k ? tile.pieces[(row + 1) * chunks + c] : Value();
      Value words = p.pairRows(even, odd);
      Value pointer = step(start, memory.element,
                           row / 2 * rowStride + 2 * c * target.lanes);
      if (isa<VectorType>(words.getType()))
        storePiece(words, pointer, b.getI32Type(), n - c * target.lanes);
      else
        b.create<LLVM::StoreOp>(loc, words, pointer, 2);
    }
  return llvm::Error::success();
}

} // namespace tessera::cpu
