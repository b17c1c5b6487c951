// Few rows as integers, for products with quantized weights.
//
// Rows of bf16 become integers of 15 bits, with a power of two as the scale of
// each of the weights' groups. Elements of at least 1/64 of their group's
// largest are exact then; smaller ones are rounded to 2^-14 of it, a 32nd of
// the rounding of the largest in bf16. An integer is 256 × its upper byte + its
// lower one, both signed, so that products are sums of four products of bytes
// (tile.mma of words), which are exact in any order. A group's sum becomes f32
// and is scaled at its end. The numbers of a row are the same in every batch
// and on every target.
//
// Rows may become bytes instead, from -127 to 127: a group's largest
// element is 127 times the scale, as in llama.cpp's q8_K and q8_0.
//
// A separate launch makes the integers, once for all products that read the
// same rows.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/RowRounding.h"

using namespace mlir;
using namespace tessera;

//===--- the plan ---------------------------------------------------------===//

bool tessera::multipliesIntegers(const ContractionPlan &plan) {
  // A group's sum has to fit 32 bits: 2^14 × 2^7 × columns, and with zero
  // points twice as much.
  const QuantizedLayout &layout = plan.quant->layout;
  const int64_t mostColumns = layout.zeros ? 511 : 1023;
  return plan.quant->streams && plan.lhs.element.isBF16() &&
         layout.group <= mostColumns && !layout.floats;
}

bool tessera::canMultiplyBytes(const ContractionPlan &plan) {
  if (!plan.quant || plan.quant->sumsRows || !plan.lhs.element.isBF16())
    return false;
  const QuantizedLayout &layout = plan.quant->layout;
  return layout.superBlocks || (layout.hasScales() && !layout.floats &&
                                layout.columns % layout.group == 0 &&
                                IntegerRows::kByteChunk % layout.group == 0);
}

IntegerRows tessera::integerRows(const ContractionPlan &plan) {
  const QuantizedLayout &layout = plan.quant->layout;
  int64_t ofSums = layout.groups();
  if (layout.superBlocks)
    ofSums = layout.columns / layout.scaleColumns();
  if (plan.quant->bytes && layout.minima())
    ofSums /= 2;
  IntegerRows rows{plan.rowDim().size, layout.blocks(), layout.groups(), ofSums,
                   plan.quant->bytes};
  for (unsigned dim : plan.outer)
    if (plan.dims[dim].lhs)
      rows.rows *= plan.dims[dim].size;
  return rows;
}

View IntegerRows::view() const {
  return {{}, 0, {rows, width()}, {width(), 1}};
}

//===--- rows to integers -------------------------------------------------===//

namespace {

class WideRounding : public RowRounding {
public:
  using RowRounding::RowRounding;

private:
  void emitGroup(Value group, int64_t size) override;
  Value emitBlock(Value k, int64_t count, Value inverse);
  void storeWords(Value block);
  void storeSums(Value block);
};

} // namespace

// Columns [k, k + count) of one block: its words, and the integers' sum.
Value WideRounding::emitBlock(Value k, int64_t count, Value inverse) {
  auto wholeType = VectorType::get({kQuantBlock}, b.getI32Type());
  auto store = [&](Value value) {
    b.create<tile::StoreOp>(loc, value, integers, ValueRange{index(0)},
                            ValueRange(), ArrayRef<int64_t>{0});
  };
  if (count < kQuantBlock)
    store(b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(wholeType, int32_t(128))));
  Value integer = roundBlock(k, count, inverse);
  store(b.create<arith::AddIOp>(loc, integer, like(integer, 128)));
  storeWords(b.createOrFold<arith::DivUIOp>(loc, k, index(kQuantBlock)));
  return fold(integer, tile::ReduceKind::sum);
}

// Of a block of a super-block, for each scale of the weights.
void WideRounding::storeSums(Value block) {
  const int64_t size = layout.scaleColumns(), parts = kQuantBlock / size;
  for (int64_t part = 0; part < parts; ++part) {
    Value x = loadIntegers(integers, index(part * size), size);
    Value sum = fold(x, tile::ReduceKind::sum);
    sum = b.create<arith::SubIOp>(loc, like(sum, uint32_t(128 * size)), sum);
    if (layout.minima())
      sum = b.create<arith::BitcastOp>(
          loc, b.getI32Type(),
          b.create<arith::SIToFPOp>(loc, b.getF32Type(), sum));
    else
      sum = b.create<arith::MulIOp>(loc, sum,
                                    like(sum, uint32_t(layout.offset())));
    storeInteger(sum, add(mul(block, parts), index(to.sums() + part)));
  }
}

// Byte i of a word is multiplied by byte i of the weights' words: with 8 bits
// four consecutive columns; otherwise the lower (upper) halves of eight
// columns' bytes, every other column.
void WideRounding::storeWords(Value block) {
  const int64_t sets = setsOfWords(), words = IntegerRows::kWords / sets;
  Value columns = columnsOfWords(0, kQuantBlock);
  for (int64_t set = 0; set < sets; ++set) {
    Value upper, lower;
    for (int64_t byte = 0; byte < 4; ++byte) {
      Value x =
          loadIntegers(columns, {index(0), index(byte), index(set)}, words);
      auto place = [&](Value value, Value &word) {
        value = b.create<arith::AndIOp>(loc, value, like(value, 255));
        if (byte)
          value = b.create<arith::ShLIOp>(loc, value,
                                          like(value, uint32_t(8 * byte)));
        word =
            word ? b.create<arith::OrIOp>(loc, word, value).getResult() : value;
      };
      place(x, lower);
      place(b.create<arith::ShRUIOp>(loc, x, like(x, 8)), upper);
    }
    // 128 was added, which flips the lower byte's sign.
    lower = b.create<arith::XOrIOp>(loc, lower, like(lower, 0x80808080u));
    for (auto [part, word] : {std::pair(0, upper), {1, lower}}) {
      int64_t first = part * IntegerRows::kWords + set * words;
      b.create<tile::StoreOp>(
          loc, word, packed,
          ValueRange{row,
                     add(mul(block, 2 * IntegerRows::kWords), index(first))},
          ValueRange(), ArrayRef<int64_t>{1});
    }
  }
}

// The scale is 2^(e - 13), where 2^e is at most the largest: it becomes less
// than 2^14. Scales stay within normal numbers. If an element is not finite,
// the scale is NaN, so that all products with the row are.
void WideRounding::emitGroup(Value group, int64_t size) {
  Value k = mul(group, layout.group);
  Value exponent = largest(k, size);
  exponent = b.create<arith::ShRUIOp>(loc, exponent, like(exponent, 23));
  exponent = b.create<arith::MaxSIOp>(loc, exponent, like(exponent, 14));
  auto power = [&](Value biased) -> Value {
    return b.create<arith::ShLIOp>(loc, biased, like(biased, 23));
  };
  Value inverse = b.create<arith::BitcastOp>(
      loc, b.getF32Type(),
      power(b.create<arith::SubIOp>(loc, like(exponent, 2 * 127 + 13),
                                    exponent)));
  Value scale =
      power(b.create<arith::SubIOp>(loc, exponent, like(exponent, 13)));
  Value isNone = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::eq,
                                         exponent, like(exponent, 255));
  scale =
      b.create<arith::SelectOp>(loc, isNone, like(scale, 0x7fc00000u), scale);
  Value sum = overBlocks(k, size, like(exponent, 0),
                         [&](Value first, int64_t count, Value so) -> Value {
                           Value ofBlock = emitBlock(first, count, inverse);
                           if (layout.superBlocks) {
                             storeSums(div(first, kQuantBlock));
                             return so;
                           }
                           return b.create<arith::AddIOp>(loc, so, ofBlock);
                         });
  auto storeScale = [&] {
    storeInteger(scale, add(index(to.scales()), group));
  };
  if (layout.superBlocks)
    return storeScale();
  sum = b.create<arith::MulIOp>(
      loc, sum, like(sum, static_cast<uint32_t>(-IntegerRows::factor(layout))));
  storeInteger(sum, add(index(to.sums()), group));
  storeScale();
}

llvm::Expected<Value> tessera::launchIntegerRows(const ContractionPlan &plan,
                                                 graph::ClusterOp cluster,
                                                 TilingContext &context) {
  const QuantizedLayout &layout = plan.quant->layout;
  IntegerRows rows = integerRows(plan);
  Value input = cluster.getInputs()[plan.lhs.argument];
  auto type = RankedTensorType::get({rows.rows, rows.width()},
                                    IntegerType::get(input.getContext(), 32));
  LaunchSpec spec;
  spec.name = rows.bytes ? "byte_rows" : "integer_rows";
  spec.skeleton = tile::Skeleton::row;
  spec.summary = rows.bytes
                     ? "rows as bytes, a scale for each group of columns"
                     : "rows as integers, a scale for each group of columns";
  spec.buffers = {bufferType(input.getType()), bufferType(type)};
  spec.access = {tile::Access::read, tile::Access::write};
  spec.blocks =
      rows.rows * partsOf(rows.groups, RowRounding::groupsAtOnce(layout));
  llvm::raw_string_ostream key(spec.key);
  key << plan.lhs.offset << ' ';
  if (layout.superBlocks) // 4 and 5 bits take the same rows
    key << "super-blocks " << layout.scaleColumns();
  else
    key << layout.bits << ' ' << layout.group << ' ' << layout.zeros;
  auto addDim = [&](const ContractionDim &dim) {
    key << ' ' << dim.size << ':' << dim.lhs;
  };
  for (unsigned dim : plan.outer)
    if (plan.dims[dim].lhs)
      addDim(plan.dims[dim]);
  addDim(plan.rowDim());
  addDim(plan.sum);
  spec.build = [&](tile::KernelOp kernel, const TileTarget &,
                   OpBuilder &b) -> llvm::Error {
    if (plan.quant->bytes)
      byteRounding(plan, kernel, b)->emit();
    else
      WideRounding(plan, kernel, b).emit();
    return llvm::Error::success();
  };
  return launchOnce(context, cluster, spec, input, type);
}
