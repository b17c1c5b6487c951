#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/sampling/Sample.h"

using namespace mlir;
using namespace tessera;

//===--- numbers ----------------------------------------------------------===//

Value SampleOps::i32(int64_t value) const {
  return b.create<arith::ConstantOp>(
      loc, b.getI32IntegerAttr(static_cast<int32_t>(value)));
}
Value SampleOps::i64(int64_t value) const {
  return b.create<arith::ConstantOp>(loc, b.getI64IntegerAttr(value));
}
Value SampleOps::f32(float value) const {
  return b.create<arith::ConstantOp>(loc, b.getF32FloatAttr(value));
}

Value SampleOps::spread(Value x, Value like) const {
  bool isAlike =
      isa<VectorType>(x.getType()) || !isa<VectorType>(like.getType());
  return isAlike ? x : tileOf(x);
}
Value SampleOps::tileOf(Value scalar) const {
  return b.create<tile::BroadcastOp>(loc,
                                     VectorType::get({lanes}, scalar.getType()),
                                     scalar, ArrayRef<int64_t>());
}
Type SampleOps::elementOf(Value x) const {
  return getElementTypeOrSelf(x.getType());
}

static Type withElement(Value like, Type element) {
  auto vector = dyn_cast<VectorType>(like.getType());
  return vector ? Type(vector.clone(element)) : element;
}

Value SampleOps::compare(Compare predicate, Value x, Value y) const {
  return b.create<arith::CmpIOp>(loc, predicate, spread(x, y), spread(y, x));
}
Value SampleOps::select(Value condition, Value x, Value y) const {
  x = spread(x, condition), y = spread(y, condition);
  return b.create<arith::SelectOp>(loc, spread(condition, x), x, y);
}

Value SampleOps::cast(Value x, Type element) const {
  Type from = elementOf(x), to = withElement(x, element);
  if (from == element)
    return x;
  if (from.isIndex() || element.isIndex())
    return b.create<arith::IndexCastOp>(loc, to, x);
  if (isa<FloatType>(element))
    return b.create<arith::SIToFPOp>(loc, to, x);
  if (isa<FloatType>(from))
    return b.create<arith::FPToSIOp>(loc, to, x);
  return b.create<arith::TruncIOp>(loc, to, x);
}
Value SampleOps::extend(Value word) const {
  return b.create<arith::ExtUIOp>(loc, withElement(word, b.getI64Type()), word);
}
Value SampleOps::bitsOf(Value real) const {
  return b.create<arith::BitcastOp>(loc, withElement(real, b.getI32Type()),
                                    real);
}
Value SampleOps::realOf(Value bits) const {
  return b.create<arith::BitcastOp>(loc, withElement(bits, b.getF32Type()),
                                    bits);
}

Value SampleOps::reduce(Value tile, tile::ReduceKind kind) const {
  Value all = b.create<tile::ReduceOp>(
      loc, VectorType::get({}, elementOf(tile)), tile, kind, 0);
  return b.create<vector::ExtractElementOp>(loc, all);
}

//===--- memory -----------------------------------------------------------===//

Value SampleOps::load(Value memory, Value at) const {
  return b.create<memref::LoadOp>(loc, memory, at);
}
void SampleOps::store(Value value, Value memory, Value at) const {
  b.create<memref::StoreOp>(loc, value, memory, at);
}

static SmallVector<Value> listOf(Value bound) {
  return bound ? SmallVector<Value>{bound} : SmallVector<Value>();
}

Value SampleOps::loadTile(Value memory, Value at, Value bound) const {
  auto type = VectorType::get(
      {lanes}, cast<MemRefType>(memory.getType()).getElementType());
  return b.create<tile::LoadOp>(loc, type, memory, ValueRange(at),
                                listOf(bound), ArrayRef<int64_t>{0});
}
void SampleOps::storeTile(Value tile, Value memory, Value at,
                          Value bound) const {
  b.create<tile::StoreOp>(loc, tile, memory, ValueRange(at), listOf(bound),
                          ArrayRef<int64_t>{0});
}

//===--- rows -------------------------------------------------------------===//

Value SampleOps::isThere(const Place &place) const {
  if (!place.bound)
    return {};
  Value number = b.create<tile::IotaOp>(
      loc, VectorType::get({lanes}, b.getI32Type()), index(0), 0);
  return compare(Compare::slt, number, cast(place.bound, b.getI32Type()));
}

// Whole tiles, some at once, then the rest one by one.
ValueRange SampleOps::forTiles(
    Value memory, Value row, Value begin, Value end, int64_t most,
    ValueRange init,
    llvm::function_ref<Values(const Place &, Value, ValueRange)> body) const {
  ValueRange state = init;
  if (int64_t together = lanes * atOnce; together <= most) {
    Value rest =
        b.createOrFold<arith::RemUIOp>(loc, sub(end, begin), index(together));
    Value whole = sub(end, rest);
    state = forRange(begin, whole, index(together), init,
                     [&](Value first, ValueRange carried) {
                       Values tiles, offsets, now(carried);
                       for (int64_t i = 0; i < atOnce; ++i) {
                         offsets.push_back(add(first, index(i * lanes)));
                         tiles.push_back(
                             loadTile(memory, add(row, offsets.back()), {}));
                       }
                       for (auto [at, tile] : llvm::zip_equal(offsets, tiles))
                         now = body({at, {}}, tile, now);
                       return now;
                     });
    begin = whole;
  }
  return forRange(begin, end, index(lanes), state,
                  [&](Value at, ValueRange carried) {
                    Value bound = min(index(lanes), sub(end, at));
                    Value tile = loadTile(memory, add(row, at), bound);
                    return body({at, bound}, tile, carried);
                  });
}
