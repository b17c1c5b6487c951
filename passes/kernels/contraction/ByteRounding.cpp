// Rows of bytes: a group's largest element is 127 times the scale.
#include "passes/kernels/contraction/RowRounding.h"
#include "runtime/support/SuperBlocks.h"

using namespace mlir;
using namespace tessera;

// Blocks of which two words have the sums, if there are minima.
static constexpr int64_t kBlocksOfSums = 4;

namespace {

class ByteRounding : public RowRounding {
public:
  using RowRounding::RowRounding;

private:
  void emitGroup(Value group, int64_t size) override;
  void emitSuper(Value group, Value inverse);
  /// The words of a block, whose integers stay in `integers`.
  void emitBlock(Value block, Value inverse);
  void storeBytes(Value block, int64_t part);
  Value sumOf(Value x) { return fold(x, tile::ReduceKind::sum); }
  Value negatedSum();
  void storeSumsOfHalves(Value block);
  Value pairOf(Value lower, Value upper);
};

} // namespace

// With 8 bits words of four columns, otherwise words of the even columns, then
// of the odd ones (SuperBlocks.h).
void ByteRounding::storeBytes(Value block, int64_t part) {
  const int64_t size = IntegerRows::bytePart(layout), sets = setsOfWords(),
                words = size / (4 * sets);
  Value columns = columnsOfWords(part * size, size);
  for (int64_t set = 0; set < sets; ++set) {
    Value word;
    for (int64_t byte = 0; byte < 4; ++byte) {
      Value x =
          loadIntegers(columns, {index(0), index(byte), index(set)}, words);
      x = b.create<arith::AndIOp>(loc, x, like(x, 255));
      if (byte)
        x = b.create<arith::ShLIOp>(loc, x, like(x, uint32_t(8 * byte)));
      word = word ? b.create<arith::OrIOp>(loc, word, x).getResult() : x;
    }
    b.create<tile::StoreOp>(
        loc, word, packed,
        ValueRange{row, add(mul(block, IntegerRows::kWords),
                            index(part * size / 4 + set * words))},
        ValueRange(), ArrayRef<int64_t>{1});
  }
}

void ByteRounding::emitBlock(Value block, Value inverse) {
  b.create<tile::StoreOp>(
      loc, roundBlock(mul(block, kQuantBlock), kQuantBlock, inverse), integers,
      ValueRange{index(0)}, ValueRange(), ArrayRef<int64_t>{0});
  for (int64_t part = 0; part < kQuantBlock / IntegerRows::bytePart(layout);
       ++part)
    storeBytes(block, part);
}

// Of the block in `integers`.
Value ByteRounding::negatedSum() {
  Value sum = sumOf(loadIntegers(integers, index(0), kQuantBlock));
  return b.create<arith::SubIOp>(loc, like(sum, 0), sum);
}

Value ByteRounding::pairOf(Value lower, Value upper) {
  return b.create<arith::OrIOp>(
      loc, b.create<arith::AndIOp>(loc, lower, like(lower, 0xffff)),
      b.create<arith::ShLIOp>(loc, upper, like(upper, 16)));
}

// Times the offset of q, of each part.
void ByteRounding::storeSumsOfHalves(Value block) {
  const int64_t size = IntegerRows::bytePart(layout),
                parts = kQuantBlock / size;
  for (int64_t part = 0; part < parts; ++part) {
    Value all = loadIntegers(integers, index(part * size), size);
    auto halfOf = [&](bool upper) -> Value {
      SmallVector<int32_t> factors;
      for (int64_t k = 0; k < size; ++k)
        factors.push_back(k % 8 / 4 == upper ? -layout.offset() : 0);
      Value factor = b.create<arith::ConstantOp>(
          loc, DenseElementsAttr::get(cast<VectorType>(all.getType()),
                                      ArrayRef<int32_t>(factors)));
      return sumOf(b.create<arith::MulIOp>(loc, all, factor));
    };
    storeInteger(pairOf(halfOf(false), halfOf(true)),
                 add(mul(block, parts), index(to.sums() + part)));
  }
}

void ByteRounding::emitSuper(Value group, Value inverse) {
  constexpr int64_t kBlocks = QuantizedLayout::kSuperBlock / kQuantBlock;
  forRange(index(0), index(kBlocks / kBlocksOfSums), 1, [&](Value i) {
    Value four = add(mul(group, kBlocks / kBlocksOfSums), i);
    SmallVector<Value> sums;
    for (int64_t at = 0; at < kBlocksOfSums; ++at) {
      Value block = add(mul(four, kBlocksOfSums), index(at));
      emitBlock(block, inverse);
      if (layout.minima())
        sums.push_back(negatedSum());
      else
        storeSumsOfHalves(block);
    }
    for (size_t half = 0; half < sums.size() / 2; ++half)
      storeInteger(pairOf(sums[half], sums[half + 2]),
                   add(mul(four, 2), index(to.sums() + int64_t(half))));
  });
}

// Where all are almost zero the scale stays a normal number. If an element is
// not finite, the scale is NaN, so that all products with the row are.
void ByteRounding::emitGroup(Value group, int64_t size) {
  constexpr uint32_t kLeast = (127 - 100) << 23, kInfinity = 0x7f800000;
  Value bits = largest(mul(group, size), size);
  auto isFinite = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ult, bits,
                                          like(bits, kInfinity));
  bits = b.create<arith::MaxSIOp>(loc, bits, like(bits, kLeast));
  Value most = b.create<arith::BitcastOp>(loc, b.getF32Type(), bits);
  auto number = [&](float value) -> Value {
    return b.create<arith::ConstantOp>(loc, b.getF32FloatAttr(value));
  };
  Value inverse = b.create<arith::DivFOp>(loc, number(127), most),
        scale = b.create<arith::DivFOp>(loc, most, number(127));
  scale = b.create<arith::SelectOp>(loc, isFinite, scale, number(NAN));
  storeInteger(b.create<arith::BitcastOp>(loc, b.getI32Type(), scale),
               add(index(to.scales()), group));
  if (layout.superBlocks)
    return emitSuper(group, inverse);
  const int64_t blocks = size / kQuantBlock;
  Value none = b.create<arith::ConstantOp>(loc, b.getI32IntegerAttr(0));
  Value sum = forRange(
      index(0), index(blocks), 1, none, [&](Value i, ValueRange so) -> Values {
        emitBlock(add(mul(group, blocks), i), inverse);
        return {b.create<arith::AddIOp>(loc, so[0], negatedSum())};
      })[0];
  storeInteger(b.create<arith::MulIOp>(
                   loc, sum, like(sum, uint32_t(IntegerRows::factor(layout)))),
               add(index(to.sums()), group));
}

std::unique_ptr<RowRounding> tessera::byteRounding(const ContractionPlan &plan,
                                                   tile::KernelOp kernel,
                                                   OpBuilder &b) {
  return std::make_unique<ByteRounding>(plan, kernel, b);
}
