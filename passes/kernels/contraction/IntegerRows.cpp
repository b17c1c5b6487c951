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
// Many rows may become bytes instead, from -127 to 127: a group's largest
// element is 127 times the scale, as in llama.cpp's q8_K and q8_0.
//
// A separate launch makes the integers, once for all products that read the
// same rows.
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/contraction/Contraction.h"

using namespace mlir;
using namespace tessera;

// Columns that a block of that launch converts.
static constexpr int64_t kColumnsAtOnce = 2048;
// 1.5 × 2^23: a number added to it is rounded to an integer in the lowest bits
// of the sum.
static constexpr float kRounder = 12582912.0f;
static constexpr uint32_t kRounderBits = 0x4B400000u;

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
  if (!plan.quant || plan.quant->streams || plan.quant->sumsRows ||
      !plan.lhs.element.isBF16())
    return false;
  const QuantizedLayout &layout = plan.quant->layout;
  return layout.superBlocks || (layout.hasScales() && !layout.floats &&
                                layout.columns % layout.group == 0 &&
                                IntegerRows::kByteChunk % layout.group == 0);
}

IntegerRows tessera::integerRows(const ContractionPlan &plan) {
  const QuantizedLayout &layout = plan.quant->layout;
  int64_t parts = layout.groups();
  if (plan.quant->bytes)
    parts = layout.columns / IntegerRows::bytePart(layout);
  else if (layout.superBlocks)
    parts = layout.columns / layout.scaleColumns();
  IntegerRows rows{plan.rowDim().size, layout.blocks(), layout.groups(), parts,
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

class IntegerRowsEmitter : KernelOps {
public:
  IntegerRowsEmitter(const ContractionPlan &plan, tile::KernelOp kernel,
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
  void emit();
  static int64_t groupsAtOnce(const QuantizedLayout &layout) {
    return std::max<int64_t>(kColumnsAtOnce / layout.group, 1);
  }

private:
  /// A constant of x's type.
  Value like(Value x, uint32_t value);
  Value spread(Value x, int64_t count) {
    return b.create<tile::BroadcastOp>(
        loc, VectorType::get({count}, x.getType()), x, ArrayRef<int64_t>());
  }
  Value fold(Value x, tile::ReduceKind kind);
  Value load(Value k, int64_t count);
  void emitGroup(Value group, int64_t size);
  void emitByteGroup(Value group);
  void emitByteBlock(Value block, Value inverse, Value negated);
  void storeBytes(Value first, int64_t part);
  Value largest(Value k, int64_t size);
  /// body(first column, columns, value so far) over a group's blocks.
  Value overBlocks(Value k, int64_t size, Value init,
                   llvm::function_ref<Value(Value, int64_t, Value)> body);
  Value roundBlock(Value k, int64_t count, Value inverse);
  Value emitBlock(Value k, int64_t count, Value inverse);
  void storeWords(Value block);
  void storeSums(Value block);

  const QuantizedLayout &layout;
  IntegerRows to;
  tile::KernelOp kernel;
  Value from, packed; ///< [..., row, column]; [rows, width]
  Value integers;     ///< a block's, with 128 added
  SmallVector<int64_t> rowSizes;
  SmallVector<Value> at; ///< the row in `from`
  Value row;
};

} // namespace

Value IntegerRowsEmitter::like(Value x, uint32_t value) {
  Type type = x.getType();
  Attribute number = b.getI32IntegerAttr(static_cast<int32_t>(value));
  if (auto vector = dyn_cast<VectorType>(type))
    number = DenseElementsAttr::get(vector, number);
  return b.create<arith::ConstantOp>(loc, cast<TypedAttr>(number));
}

Value IntegerRowsEmitter::fold(Value x, tile::ReduceKind kind) {
  auto type = cast<VectorType>(x.getType());
  Value folded = b.create<tile::ReduceOp>(
      loc, VectorType::get({}, type.getElementType()), x, kind, 0);
  return b.create<vector::ExtractElementOp>(loc, folded);
}

// f32 [count].
Value IntegerRowsEmitter::load(Value k, int64_t count) {
  auto type = VectorType::get({count}, b.getBF16Type());
  SmallVector<Value> indices(at);
  indices.push_back(k);
  Value loaded = b.create<tile::LoadOp>(
      loc, type, from, indices, ValueRange(),
      ArrayRef<int64_t>{static_cast<int64_t>(at.size())});
  return b.create<arith::ExtFOp>(loc, type.clone(b.getF32Type()), loaded);
}

Value IntegerRowsEmitter::overBlocks(
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

// The bits of the largest magnitude; NaNs are the largest.
Value IntegerRowsEmitter::largest(Value k, int64_t size) {
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

// i32 [count]: x times the inverse of the scale, to the nearest integer.
Value IntegerRowsEmitter::roundBlock(Value k, int64_t count, Value inverse) {
  Value x = load(k, count);
  x = b.create<arith::MulFOp>(loc, x, spread(inverse, count));
  auto type = cast<VectorType>(x.getType());
  x = b.create<arith::AddFOp>(
      loc, x,
      b.create<arith::ConstantOp>(loc, DenseElementsAttr::get(type, kRounder)));
  Value bits = b.create<arith::BitcastOp>(loc, type.clone(b.getI32Type()), x);
  return b.create<arith::SubIOp>(loc, bits, like(bits, kRounderBits));
}

// Columns [k, k + count) of one block: its words, and the integers' sum.
Value IntegerRowsEmitter::emitBlock(Value k, int64_t count, Value inverse) {
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
void IntegerRowsEmitter::storeSums(Value block) {
  const int64_t size = layout.scaleColumns(), parts = kQuantBlock / size;
  auto type = VectorType::get({size}, b.getI32Type());
  for (int64_t part = 0; part < parts; ++part) {
    Value x = b.create<tile::LoadOp>(loc, type, integers,
                                     ValueRange{index(part * size)},
                                     ValueRange(), ArrayRef<int64_t>{0});
    Value sum = fold(x, tile::ReduceKind::sum);
    sum = b.create<arith::SubIOp>(loc, like(sum, uint32_t(128 * size)), sum);
    if (layout.minima())
      sum = b.create<arith::BitcastOp>(
          loc, b.getI32Type(),
          b.create<arith::SIToFPOp>(loc, b.getF32Type(), sum));
    else
      sum = b.create<arith::MulIOp>(loc, sum,
                                    like(sum, uint32_t(layout.offset())));
    b.create<memref::StoreOp>(
        loc, sum, packed,
        ValueRange{row, add(mul(block, parts), index(to.sums() + part))});
  }
}

// Byte i of a word is multiplied by byte i of the weights' words: with 8 bits
// four consecutive columns; otherwise the lower (upper) halves of eight
// columns' bytes, every other column.
void IntegerRowsEmitter::storeWords(Value block) {
  int64_t sets = layout.perWord() == 8 ? 2 : 1,
          words = IntegerRows::kWords / sets;
  SmallVector<int64_t> shape{words, 4, sets}, strides{4 * sets, sets, 1};
  auto flat = cast<MemRefType>(integers.getType());
  Value columns = b.create<memref::ReinterpretCastOp>(
      loc,
      MemRefType::get(shape, flat.getElementType(),
                      StridedLayoutAttr::get(b.getContext(), 0, strides),
                      flat.getMemorySpace()),
      integers, 0, shape, strides);
  auto type = VectorType::get({words}, b.getI32Type());
  for (int64_t set = 0; set < sets; ++set) {
    Value upper, lower;
    for (int64_t byte = 0; byte < 4; ++byte) {
      Value x = b.create<tile::LoadOp>(
          loc, type, columns, ValueRange{index(0), index(byte), index(set)},
          ValueRange(), ArrayRef<int64_t>{0});
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
void IntegerRowsEmitter::emitGroup(Value group, int64_t size) {
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
    b.create<memref::StoreOp>(loc, scale, packed,
                              ValueRange{row, add(index(to.scales()), group)});
  };
  if (layout.superBlocks)
    return storeScale();
  sum = b.create<arith::MulIOp>(
      loc, sum, like(sum, static_cast<uint32_t>(-IntegerRows::factor(layout))));
  b.create<memref::StoreOp>(loc, sum, packed,
                            ValueRange{row, add(index(to.sums()), group)});
  storeScale();
}

// The bytes of a part of a block: with 8 bits words of four columns, otherwise
// words of the even columns, then of the odd ones (SuperBlocks.h).
void IntegerRowsEmitter::storeBytes(Value first, int64_t part) {
  const int64_t size = IntegerRows::bytePart(layout),
                sets = layout.perWord() == 8 ? 2 : 1, words = size / (4 * sets);
  SmallVector<int64_t> shape{words, 4, sets}, strides{4 * sets, sets, 1};
  auto flat = cast<MemRefType>(integers.getType());
  Value columns = b.create<memref::ReinterpretCastOp>(
      loc,
      MemRefType::get(
          shape, flat.getElementType(),
          StridedLayoutAttr::get(b.getContext(), part * size, strides),
          flat.getMemorySpace()),
      integers, part * size, shape, strides);
  auto type = VectorType::get({words}, b.getI32Type());
  for (int64_t odd = 0; odd < sets; ++odd) {
    Value word;
    for (int64_t byte = 0; byte < 4; ++byte) {
      Value x = b.create<tile::LoadOp>(
          loc, type, columns, ValueRange{index(0), index(byte), index(odd)},
          ValueRange(), ArrayRef<int64_t>{0});
      x = b.create<arith::AndIOp>(loc, x, like(x, 255));
      if (byte)
        x = b.create<arith::ShLIOp>(loc, x, like(x, uint32_t(8 * byte)));
      word = word ? b.create<arith::OrIOp>(loc, word, x).getResult() : x;
    }
    b.create<tile::StoreOp>(
        loc, word, packed,
        ValueRange{row, add(first, index(part * size / 4 + odd * words))},
        ValueRange(), ArrayRef<int64_t>{1});
  }
}

// One block: its words, and minus the sum of each part, times the scale.
void IntegerRowsEmitter::emitByteBlock(Value block, Value inverse,
                                       Value negated) {
  const int64_t size = IntegerRows::bytePart(layout),
                parts = kQuantBlock / size;
  b.create<tile::StoreOp>(
      loc, roundBlock(mul(block, kQuantBlock), kQuantBlock, inverse), integers,
      ValueRange{index(0)}, ValueRange(), ArrayRef<int64_t>{0});
  for (int64_t part = 0; part < parts; ++part) {
    storeBytes(mul(block, IntegerRows::kWords), part);
    Value of = b.create<tile::LoadOp>(
        loc, VectorType::get({size}, b.getI32Type()), integers,
        ValueRange{index(part * size)}, ValueRange(), ArrayRef<int64_t>{0});
    Value sum = b.create<arith::SIToFPOp>(loc, b.getF32Type(),
                                          fold(of, tile::ReduceKind::sum));
    sum = b.create<arith::MulFOp>(loc, sum, negated);
    b.create<memref::StoreOp>(
        loc, b.create<arith::BitcastOp>(loc, b.getI32Type(), sum), packed,
        ValueRange{row, add(mul(block, parts), index(to.sums() + part))});
  }
}

// Where all are almost zero the scale stays a normal number. If an element is
// not finite, the scale is NaN, so that all products with the row are.
void IntegerRowsEmitter::emitByteGroup(Value group) {
  constexpr uint32_t kLeast = (127 - 100) << 23, kInfinity = 0x7f800000;
  Value bits = largest(mul(group, layout.group), layout.group);
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
  Value negated = b.create<arith::NegFOp>(loc, scale);
  forRange(index(0), index(layout.group / kQuantBlock), 1, [&](Value i) {
    emitByteBlock(add(mul(group, layout.group / kQuantBlock), i), inverse,
                  negated);
  });
  b.create<memref::StoreOp>(
      loc, b.create<arith::BitcastOp>(loc, b.getI32Type(), scale), packed,
      ValueRange{row, add(index(to.scales()), group)});
}

void IntegerRowsEmitter::emit() {
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
    to.bytes ? emitByteGroup(loop.getInductionVar())
             : emitGroup(loop.getInductionVar(), layout.group);
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
  spec.blocks = rows.rows *
                partsOf(rows.groups, IntegerRowsEmitter::groupsAtOnce(layout));
  llvm::raw_string_ostream key(spec.key);
  key << plan.lhs.offset << ' ';
  if (layout.superBlocks) // 4 and 5 bits take the same
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
    IntegerRowsEmitter(plan, kernel, b).emit();
    return llvm::Error::success();
  };
  return launchOnce(context, cluster, spec, input, type);
}
