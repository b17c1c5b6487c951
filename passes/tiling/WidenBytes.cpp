// Weights of 8 bits on a CPU: integers or e4m3, as f32.
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/tiling/ContractionEmit.h"

using namespace mlir;
using namespace tessera;

// Exponent and fraction stand four bits to the right of where f32 has theirs,
// and are then a number 2^120 times too small, subnormal ones too; the product
// is exact.
static Value widenFloats(OpBuilder &b, Location loc, Value words) {
  auto type = cast<VectorType>(words.getType());
  auto number = [&](uint32_t value) -> Value {
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(type, llvm::APInt(32, value)));
  };
  Value sign = b.create<arith::AndIOp>(loc, words, number(0x80000000u)),
        rest = b.create<arith::ShRUIOp>(loc, words, number(4));
  rest = b.create<arith::AndIOp>(loc, rest, number(0x07f00000u));
  VectorType wide = type.clone(b.getF32Type());
  Value small = b.create<arith::BitcastOp>(
      loc, wide, b.create<arith::OrIOp>(loc, sign, rest));
  Value factor =
      b.create<arith::ConstantOp>(loc, DenseElementsAttr::get(wide, 0x1p120f));
  return b.create<arith::MulFOp>(loc, small, factor);
}

Value tessera::widenUpperBytes(OpBuilder &b, Location loc,
                               const QuantizedLayout &layout, Value words) {
  if (layout.floats)
    return widenFloats(b, loc, words);
  auto type = cast<VectorType>(words.getType());
  Value bits = b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(type, llvm::APInt(32, 24)));
  return b.create<arith::SIToFPOp>(loc, type.clone(b.getF32Type()),
                                   b.create<arith::ShRSIOp>(loc, words, bits));
}
