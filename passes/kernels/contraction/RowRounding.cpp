#include "passes/kernels/contraction/RowRounding.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/ClusterLaunch.h"

using namespace mlir;
using namespace tessera;

// Columns that a block converts.
static constexpr int64_t kColumnsAtOnce = 2048;
// 1.5 × 2^23: a number added to it is rounded to an integer in the lowest bits
// of the sum.
static constexpr float kRounder = 12582912.0f;
static constexpr uint32_t kRounderBits = 0x4B400000u;

RowRounding::RowRounding(const ContractionPlan &plan, tile::KernelOp kernel,
                         OpBuilder &b)
    : KernelOps(b, kernel.getLoc()), layout(plan.quant->layout),
      to(integerRows(plan)), kernel(kernel) {
  View view{{}, plan.lhs.offset, {}, {}};
  auto addDim = [&](const ContractionDim &dim) {
    view.shape.push_back(dim.size);
    view.strides.push_back(dim.lhs ? dim.lhs : 1);
  };
  for (unsigned dim : plan.outer)
    if (plan.dims[dim].lhs)
      addDim(plan.dims[dim]);
  addDim(plan.rowDim());
  addDim(plan.sum);
  from = emitView(b, loc, kernel.getBuffers()[0], view);
  rowSizes.assign(view.shape.begin(), view.shape.end() - 1);
  packed = emitView(b, loc, kernel.getBuffers()[1], to.view());
}

int64_t RowRounding::groupsAtOnce(const QuantizedLayout &layout) {
  return std::max<int64_t>(kColumnsAtOnce / layout.group, 1);
}

Value RowRounding::like(Value x, uint32_t value) {
  Type type = x.getType();
  Attribute number = b.getI32IntegerAttr(static_cast<int32_t>(value));
  if (auto vector = dyn_cast<VectorType>(type))
    number = DenseElementsAttr::get(vector, number);
  return b.create<arith::ConstantOp>(loc, cast<TypedAttr>(number));
}

Value RowRounding::spread(Value x, int64_t count) {
  return b.create<tile::BroadcastOp>(loc, VectorType::get({count}, x.getType()),
                                     x, ArrayRef<int64_t>());
}

Value RowRounding::fold(Value x, tile::ReduceKind kind) {
  auto type = cast<VectorType>(x.getType());
  Value folded = b.create<tile::ReduceOp>(
      loc, VectorType::get({}, type.getElementType()), x, kind, 0);
  return b.create<vector::ExtractElementOp>(loc, folded);
}

// f32 [count].
Value RowRounding::load(Value k, int64_t count) {
  auto type = VectorType::get({count}, b.getBF16Type());
  SmallVector<Value> indices(at);
  indices.push_back(k);
  Value loaded = b.create<tile::LoadOp>(
      loc, type, from, indices, ValueRange(),
      ArrayRef<int64_t>{static_cast<int64_t>(at.size())});
  return b.create<arith::ExtFOp>(loc, type.clone(b.getF32Type()), loaded);
}

Value RowRounding::overBlocks(
    Value k, int64_t size, Value init,
    llvm::function_ref<Value(Value, int64_t, Value)> body) {
  int64_t blocks = size / kQuantBlock, rest = size % kQuantBlock;
  Value value = init;
  if (blocks > 1) {
    auto loop = b.create<scf::ForOp>(loc, index(0), index(blocks), index(1),
                                     ValueRange{init});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value next = body(add(k, mul(loop.getInductionVar(), kQuantBlock)),
                      kQuantBlock, loop.getRegionIterArgs()[0]);
    b.create<scf::YieldOp>(loc, next);
    value = loop.getResult(0);
  } else if (blocks == 1) {
    value = body(k, kQuantBlock, value);
  }
  return rest ? body(add(k, index(blocks * kQuantBlock)), rest, value) : value;
}

Value RowRounding::largest(Value k, int64_t size) {
  Value zero = b.create<arith::ConstantOp>(loc, b.getI32IntegerAttr(0));
  return overBlocks(
      k, size, zero, [&](Value first, int64_t count, Value most) -> Value {
        Value x = load(first, count);
        Value bits = b.create<arith::BitcastOp>(
            loc, VectorType::get({count}, b.getI32Type()), x);
        bits = b.create<arith::AndIOp>(loc, bits, like(bits, 0x7fffffff));
        return b.create<arith::MaxSIOp>(loc, most,
                                        fold(bits, tile::ReduceKind::max));
      });
}

Value RowRounding::roundBlock(Value k, int64_t count, Value inverse) {
  Value x = load(k, count);
  x = b.create<arith::MulFOp>(loc, x, spread(inverse, count));
  auto type = cast<VectorType>(x.getType());
  x = b.create<arith::AddFOp>(
      loc, x,
      b.create<arith::ConstantOp>(loc, DenseElementsAttr::get(type, kRounder)));
  Value bits = b.create<arith::BitcastOp>(loc, type.clone(b.getI32Type()), x);
  return b.create<arith::SubIOp>(loc, bits, like(bits, kRounderBits));
}

Value RowRounding::columnsOfWords(int64_t first, int64_t size) {
  const int64_t sets = setsOfWords();
  SmallVector<int64_t> shape{size / (4 * sets), 4, sets},
      strides{4 * sets, sets, 1};
  auto flat = cast<MemRefType>(integers.getType());
  auto type =
      MemRefType::get(shape, flat.getElementType(),
                      StridedLayoutAttr::get(b.getContext(), first, strides),
                      flat.getMemorySpace());
  return b.create<memref::ReinterpretCastOp>(loc, type, integers, first, shape,
                                             strides);
}

Value RowRounding::loadIntegers(Value from, ValueRange at, int64_t count) {
  return b.create<tile::LoadOp>(loc, VectorType::get({count}, b.getI32Type()),
                                from, at, ValueRange(), ArrayRef<int64_t>{0});
}

void RowRounding::storeInteger(Value x, Value at) {
  b.create<memref::StoreOp>(loc, x, packed, ValueRange{row, at});
}

void RowRounding::emit() {
  integers = b.create<tile::AllocOp>(
      loc, MemRefType::get(
               {kQuantBlock}, b.getI32Type(), AffineMap(),
               tile::SharedAttr::get(b.getContext(), tile::Layout::rows)));
  int64_t atOnce = groupsAtOnce(layout), parts = partsOf(to.groups, atOnce);
  int64_t whole = layout.columns / layout.group,
          rest = layout.columns % layout.group;
  auto divide = [&](Value x, int64_t by) -> std::pair<Value, Value> {
    return {b.createOrFold<arith::DivUIOp>(loc, x, index(by)),
            b.createOrFold<arith::RemUIOp>(loc, x, index(by))};
  };
  auto [rowNumber, part] = divide(kernel.getBlockNumber(), parts);
  row = rowNumber;
  at.resize(rowSizes.size());
  Value left = row;
  for (size_t i = rowSizes.size(); i-- > 0;)
    std::tie(left, at[i]) = divide(left, rowSizes[i]);
  Value begin = mul(part, atOnce);
  Value end =
      b.create<arith::MinUIOp>(loc, add(begin, index(atOnce)), index(whole));
  {
    auto loop = b.create<scf::ForOp>(loc, begin, end, index(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    emitGroup(loop.getInductionVar(), layout.group);
  }
  if (!rest)
    return;
  Value isLast = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, part,
                                         index(parts - 1));
  auto branch = b.create<scf::IfOp>(loc, isLast, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  emitGroup(index(whole), rest);
}
