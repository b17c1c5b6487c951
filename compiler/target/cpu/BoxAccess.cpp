#include "compiler/target/cpu/BoxAccess.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;

namespace tessera::cpu {

Type inMemory(Type element) {
  if (element.isInteger(1))
    return IntegerType::get(element.getContext(), 8);
  return PieceBuilder::stored(element);
}

int64_t bytesOf(Type element) {
  return inMemory(element).getIntOrFloatBitWidth() / 8;
}

//===--- addresses --------------------------------------------------------===//

Value BoxAccess::step(Value pointer, Type element, int64_t elements) {
  if (elements == 0)
    return pointer;
  Value count = p.constant(b.getI64IntegerAttr(elements));
  return b.create<LLVM::GEPOp>(loc, pointer.getType(), inMemory(element),
                               pointer, ArrayRef<LLVM::GEPArg>{count});
}

// Of paired memory, element (k, n) is (k / 2) · 2N + 2 n + k mod 2.
Value BoxAccess::address(const Memory &memory, ArrayRef<Value> indices) {
  Value sum = p.index(memory.fixedOffset);
  auto addTerm = [&](Value i, int64_t stride) {
    Value term = b.createOrFold<arith::MulIOp>(loc, i, p.index(stride));
    sum = b.createOrFold<arith::AddIOp>(loc, sum, term);
  };
  if (memory.offset)
    addTerm(memory.offset, 1);
  for (auto [d, i] : llvm::enumerate(indices)) {
    size_t fromEnd = indices.size() - d;
    if (memory.pairs && fromEnd == 2) {
      Value half = b.createOrFold<arith::ShRUIOp>(loc, i, p.index(1));
      addTerm(half, 2 * memory.strides[d]);
      addTerm(b.createOrFold<arith::AndIOp>(loc, i, p.index(1)), 1);
    } else {
      addTerm(i, memory.strides[d] * (memory.pairs && fromEnd == 1 ? 2 : 1));
    }
  }
  Value elements = b.createOrFold<arith::IndexCastOp>(loc, b.getI64Type(), sum);
  return b.create<LLVM::GEPOp>(loc, memory.pointer.getType(),
                               inMemory(memory.element), memory.pointer,
                               ArrayRef<LLVM::GEPArg>{elements});
}

Box BoxAccess::boxOf(const Memory &memory, ArrayRef<Value> indices,
                     ArrayRef<int64_t> along, ArrayRef<int64_t> shape) {
  Box box;
  box.start = address(memory, indices);
  box.element = memory.element;
  box.shape.assign(shape.begin(), shape.end());
  for (int64_t d : along)
    box.strides.push_back(memory.strides[d]);
  return box;
}

//===--- pieces -----------------------------------------------------------===//

Value BoxAccess::loadScalar(Value pointer, Type element) {
  Value loaded =
      b.create<LLVM::LoadOp>(loc, inMemory(element), pointer, bytesOf(element));
  if (!element.isInteger(1))
    return loaded;
  return b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ne, loaded,
                                 p.bits(loaded.getType(), 0));
}

void BoxAccess::storeScalar(Value value, Value pointer, Type element) {
  if (element.isInteger(1))
    value = b.create<arith::ExtUIOp>(loc, b.getI8Type(), value);
  b.create<LLVM::StoreOp>(loc, value, pointer, bytesOf(element));
}

// Whether `count` elements fill an xmm or a ymm register: these are loaded and
// stored without a mask. Masked stores are slow on Zen 4 and not forwarded to
// loads.
static bool fillsRegister(int64_t count, Type element) {
  constexpr int64_t kXmmBytes = 16, kYmmBytes = 32;
  int64_t bytes = count * bytesOf(element);
  return bytes == kXmmBytes || bytes == kYmmBytes;
}

Value BoxAccess::loadPiece(Value pointer, Type element, int64_t count,
                           Value mask, int64_t alignment) {
  if (!alignment)
    alignment = bytesOf(element);
  auto type = VectorType::get({lanes}, inMemory(element));
  Value loaded;
  if (!mask && count >= lanes) {
    loaded = b.create<LLVM::LoadOp>(loc, type, pointer, alignment);
  } else if (!mask && fillsRegister(count, type.getElementType())) {
    auto part = VectorType::get({count}, type.getElementType());
    SmallVector<int64_t> order; // followed by zeros
    for (int64_t i : llvm::seq<int64_t>(0, lanes))
      order.push_back(std::min(i, count));
    loaded = p.shuffle(b.create<LLVM::LoadOp>(loc, part, pointer, alignment),
                       p.number(part, 0.0), order);
  } else {
    if (!mask)
      mask = p.laneMask(count);
    loaded = b.create<LLVM::MaskedLoadOp>(
        loc, type, pointer, mask, ValueRange{p.number(type, 0.0)}, alignment);
  }
  if (!element.isInteger(1))
    return loaded;
  return b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ne, loaded,
                                 p.bits(type, 0));
}

void BoxAccess::storePiece(Value piece, Value pointer, Type element,
                           int64_t count, Value mask) {
  if (element.isInteger(1))
    piece = b.create<arith::ExtUIOp>(
        loc, VectorType::get({lanes}, b.getI8Type()), piece);
  if (!mask && count >= lanes) {
    b.create<LLVM::StoreOp>(loc, piece, pointer, bytesOf(element));
    return;
  }
  if (!mask && fillsRegister(count, element)) {
    auto order = llvm::to_vector(llvm::seq<int64_t>(0, count));
    b.create<LLVM::StoreOp>(loc, p.shuffle(piece, piece, order), pointer,
                            bytesOf(element));
    return;
  }
  if (!mask)
    mask = p.laneMask(count);
  b.create<LLVM::MaskedStoreOp>(loc, piece, pointer, mask, bytesOf(element));
}

// Lane i is valid where first + i < bound.
Value BoxAccess::boundMask(Value bound, int64_t first) {
  Value capped = b.create<arith::MinSIOp>(loc, bound, p.index(1 << 30));
  Value count = b.create<arith::IndexCastOp>(loc, b.getI32Type(), capped);
  return b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::slt,
                                 p.laneNumbers(first), p.splat(count));
}

//===--- boxes ------------------------------------------------------------===//

void forEachRow(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides,
                llvm::function_ref<void(int64_t, int64_t)> visit) {
  int64_t rows = 1, leading = static_cast<int64_t>(shape.size()) - 1;
  for (int64_t d = 0; d < leading; ++d)
    rows *= shape[d];
  for (int64_t row = 0; row < rows; ++row) {
    int64_t offset = 0, rest = row;
    for (int64_t d = leading - 1; d >= 0; --d) {
      offset += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    visit(row, offset);
  }
}

Tile BoxAccess::loadBox(const Box &box, Value bound) {
  if (box.shape.empty())
    return {{}, {loadScalar(box.start, box.element)}, Form::vectors};
  int64_t columns = box.shape.back(), stride = box.strides.back();
  // The rows of a transposed box are contiguous: load it transposed.
  if (!bound && stride != 1 && stride != 0 && columns > 1 &&
      box.shape.size() == 2 && box.strides[0] == 1 && box.shape[0] > 1) {
    Box lying = box;
    std::swap(lying.shape[0], lying.shape[1]);
    std::swap(lying.strides[0], lying.strides[1]);
    return p.transpose(loadBox(lying, {}));
  }
  if (columns == 1 || (stride != 1 && stride != 0) || (stride == 0 && bound))
    return loadElements(box, bound);
  Tile tile{box.shape, {}, Form::vectors};
  SmallVector<Value> masks;
  for (int64_t c = 0; bound && c < columns; c += lanes)
    masks.push_back(boundMask(bound, c));
  forEachRow(box.shape, box.strides, [&](int64_t, int64_t offset) {
    Value row = step(box.start, box.element, offset);
    Value splat = stride == 0 ? p.splat(loadScalar(row, box.element)) : Value();
    for (int64_t c = 0; c < columns; c += lanes)
      tile.pieces.push_back(
          splat ? splat
                : loadPiece(step(row, box.element, c), box.element, columns - c,
                            bound ? masks[c / lanes] : Value()));
  });
  return tile;
}

// One element at a time, for strides that no vector load supports.
Tile BoxAccess::loadElements(const Box &box, Value bound) {
  Tile tile{box.shape, {}, Form::vectors};
  int64_t columns = box.shape.back();
  Type stored = PieceBuilder::stored(box.element);
  auto load = [&](Value row, int64_t column) -> Value {
    Value pointer = step(row, box.element, column * box.strides.back());
    if (!bound)
      return loadScalar(pointer, box.element);
    Value valid = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::sgt, bound,
                                          p.index(column));
    auto branch = b.create<scf::IfOp>(loc, stored, valid, true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    b.create<scf::YieldOp>(loc, loadScalar(pointer, box.element));
    b.setInsertionPointToStart(branch.elseBlock());
    b.create<scf::YieldOp>(loc, p.number(stored, 0.0));
    return branch.getResult(0);
  };
  forEachRow(box.shape, box.strides, [&](int64_t, int64_t offset) {
    Value row = step(box.start, box.element, offset);
    if (columns == 1) {
      tile.pieces.push_back(load(row, 0));
      return;
    }
    for (int64_t c = 0; c < columns; c += lanes) {
      SmallVector<Value> scalars;
      for (int64_t i = c; i < std::min(columns, c + lanes); ++i)
        scalars.push_back(load(row, i));
      tile.pieces.push_back(p.gatherLanes(scalars));
    }
  });
  return tile;
}

void BoxAccess::storeBox(const Tile &tile, const Box &box, Value bound) {
  if (box.shape.empty())
    return storeScalar(tile.pieces[0], box.start, box.element);
  int64_t columns = box.shape.back(), stride = box.strides.back();
  if (!bound && stride != 1 && columns > 1 && box.shape.size() == 2 &&
      box.strides[0] == 1 && box.shape[0] > 1) {
    Box lying = box;
    std::swap(lying.shape[0], lying.shape[1]);
    std::swap(lying.strides[0], lying.strides[1]);
    return storeBox(p.transpose(tile), lying, {});
  }
  if (columns == 1 || stride != 1)
    return storeElements(tile, box, bound);
  SmallVector<Value> masks;
  for (int64_t c = 0; bound && c < columns; c += lanes)
    masks.push_back(boundMask(bound, c));
  int64_t chunks = p.chunks(columns);
  forEachRow(box.shape, box.strides, [&](int64_t row, int64_t offset) {
    Value pointer = step(box.start, box.element, offset);
    for (int64_t c = 0; c < columns; c += lanes)
      storePiece(tile.pieces[row * chunks + c / lanes],
                 step(pointer, box.element, c), box.element, columns - c,
                 bound ? masks[c / lanes] : Value());
  });
}

void BoxAccess::storeElements(const Tile &tile, const Box &box, Value bound) {
  forEachRow(box.shape, box.strides, [&](int64_t row, int64_t offset) {
    Value pointer = step(box.start, box.element, offset);
    for (int64_t c = 0; c < box.shape.back(); ++c) {
      OpBuilder::InsertionGuard guard(b);
      if (bound) {
        Value valid = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::sgt,
                                              bound, p.index(c));
        auto branch = b.create<scf::IfOp>(loc, valid, false);
        b.setInsertionPointToStart(branch.thenBlock());
      }
      storeScalar(p.element(tile, row, c),
                  step(pointer, box.element, c * box.strides.back()),
                  box.element);
    }
  });
}

} // namespace tessera::cpu
