// Rows of a table whose matrix is in micropanels (QuantizedLayout.h): a token's
// row is one lane of a micropanel. So a table that is also the head is held
// once. One launch, whose blocks have some of the rows each.
#include "dialects/graph/GraphQuantOps.h"
#include "dialects/tile/TileQuantOps.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/contraction/QuantWeights.h"
#include "runtime/support/Mxfp4.h"
#include "runtime/support/SuperBlocks.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace {

struct TableBuffers {
  Value ids, values, scales, result; ///< bf16 has no scales
};

/// One row: words, and scales, of a lane.
class TableRow : KernelOps {
public:
  TableRow(OpBuilder &b, Location loc, const QuantizedLayout &layout,
           const TableBuffers &buffers, Type element)
      : KernelOps(b, loc), layout(layout), buffers(buffers), element(element) {}
  /// Writes row `id` of the table as row `to` of the result.
  void copy(Value id, Value to);

private:
  Value spread(Value scalar, int64_t count) const;
  Value integers(ArrayRef<int32_t> values) const;
  Value integer(uint32_t value, int64_t count) const;
  Value word(Value i) const;
  Value scaleWord(Value i) const;
  Value halfOf(Value word, int64_t shift) const;
  Value scaleByte(Value super, Value at) const;
  void block(Value index, int64_t columns);
  Value numbers(Value index, int64_t i) const;
  Value superIntegers(Value index, int64_t i) const;
  Value scaled(Value q, Value index, int64_t i) const;
  Value scaledSuper(Value q, Value index, int64_t i) const;
  void put(Value numbers, Value column, int64_t count) const;
  void copyPairs(Value micropanel, Value lane);

  const QuantizedLayout &layout;
  const TableBuffers &buffers;
  Type element;
  Value firstWord, firstScale, firstResult;
};

} // namespace

//===--- memory -----------------------------------------------------------===//

Value TableRow::spread(Value scalar, int64_t count) const {
  return b.create<tile::BroadcastOp>(loc,
                                     VectorType::get({count}, scalar.getType()),
                                     scalar, ArrayRef<int64_t>{});
}

Value TableRow::integers(ArrayRef<int32_t> values) const {
  auto type =
      VectorType::get({static_cast<int64_t>(values.size())}, b.getI32Type());
  return b.create<arith::ConstantOp>(loc, DenseElementsAttr::get(type, values));
}

Value TableRow::integer(uint32_t value, int64_t count) const {
  return integers(SmallVector<int32_t>(count, static_cast<int32_t>(value)));
}

Value TableRow::word(Value i) const {
  Value at = add(firstWord, mul(i, kMicropanel));
  return b.create<memref::LoadOp>(loc, buffers.values, at);
}

// Index i of the row's scales.
Value TableRow::scaleWord(Value i) const {
  Value at = add(firstScale, mul(i, kMicropanel));
  return b.create<memref::LoadOp>(loc, buffers.scales, at);
}

// f32 of the f16 at a bit of a word.
Value TableRow::halfOf(Value word, int64_t shift) const {
  if (shift)
    word = b.create<arith::ShRUIOp>(
        loc, word, b.create<arith::ConstantIntOp>(loc, shift, b.getI32Type()));
  Value half = b.create<arith::TruncIOp>(loc, b.getI16Type(), word);
  half = b.create<arith::BitcastOp>(loc, b.getF16Type(), half);
  return b.create<arith::ExtFOp>(loc, b.getF32Type(), half);
}

// f32 of byte `at` of a super-block's 16; scales without minima are signed.
Value TableRow::scaleByte(Value super, Value at) const {
  Value first = add(mul(super, QuantizedLayout::kSuperScales), 1);
  Value shift = b.create<arith::IndexCastOp>(loc, b.getI32Type(),
                                             mul(rem(at, 4), 8)),
        byte = b.create<arith::ShRUIOp>(loc, scaleWord(add(first, div(at, 4))),
                                        shift);
  byte = b.create<arith::TruncIOp>(loc, b.getI8Type(), byte);
  if (layout.minima())
    return b.create<arith::UIToFPOp>(loc, b.getF32Type(), byte);
  return b.create<arith::SIToFPOp>(loc, b.getF32Type(), byte);
}

void TableRow::put(Value numbers, Value column, int64_t count) const {
  SmallVector<Value> bounds;
  if (count < cast<VectorType>(numbers.getType()).getDimSize(0))
    bounds.push_back(index(count));
  b.create<tile::StoreOp>(loc, toMemory(b, loc, numbers, element),
                          buffers.result, add(firstResult, column), bounds,
                          ArrayRef<int64_t>{0});
}

//===--- weights ----------------------------------------------------------===//

// f32 of the integers, or floats, of word i of a block.
Value TableRow::numbers(Value index, int64_t i) const {
  const int64_t count = layout.perWord();
  Value q = spread(word(add(mul(index, layout.bits), i)), count);
  SmallVector<int32_t> shifts;
  if (layout.bits == 8) {
    for (int64_t k = 0; k < count; ++k)
      shifts.push_back(static_cast<int32_t>(24 - 8 * k));
    q = b.create<arith::ShLIOp>(loc, q, integers(shifts));
    return extendUpperBytes(b, loc, layout, q);
  }
  for (int64_t k = 0; k < count; ++k)
    shifts.push_back(static_cast<int32_t>(4 * k));
  q = b.create<arith::ShRUIOp>(loc, q, integers(shifts));
  if (layout.mxfp4())
    return b.create<tile::LookupOp>(
        loc, VectorType::get({count}, b.getF32Type()), q, kMxfp4Numbers);
  q = b.create<arith::AndIOp>(loc, q, integer(15, count));
  q = b.create<arith::SubIOp>(
      loc, q, integer(static_cast<uint32_t>(layout.offset()), count));
  return b.create<arith::SIToFPOp>(loc,
                                   VectorType::get({count}, b.getF32Type()), q);
}

// The same of a super-block: its lowest four bits, and those above.
Value TableRow::superIntegers(Value index, int64_t i) const {
  const int64_t count = layout.perWord(), width = layout.bits - 4;
  Value first = mul(index, layout.bits);
  SmallVector<int32_t> low, high;
  for (int64_t k = 0; k < count; ++k) {
    low.push_back(static_cast<int32_t>(4 * k));
    if (width)
      high.push_back(
          static_cast<int32_t>(upperBitsAt(layout.bits, count * i + k).bit));
  }
  Value q = b.create<arith::ShRUIOp>(loc, spread(word(add(first, i)), count),
                                     integers(low));
  q = b.create<arith::AndIOp>(loc, q, integer(15, count));
  if (width) { // those of a word are in one word
    const int64_t from = upperBitsAt(layout.bits, count * i).word;
    Value upper = b.create<arith::ShRUIOp>(
        loc, spread(word(add(first, from)), count), integers(high));
    upper =
        b.create<arith::AndIOp>(loc, upper, integer((1u << width) - 1, count));
    upper = b.create<arith::ShLIOp>(loc, upper, integer(4, count));
    q = b.create<arith::OrIOp>(loc, q, upper);
  }
  if (layout.offset())
    q = b.create<arith::SubIOp>(
        loc, q, integer(static_cast<uint32_t>(layout.offset()), count));
  return b.create<arith::SIToFPOp>(loc,
                                   VectorType::get({count}, b.getF32Type()), q);
}

// Of word i of block `index`. Products are rounded as superBlockWeight rounds
// them.
Value TableRow::scaledSuper(Value q, Value index, int64_t i) const {
  constexpr int64_t blocks = QuantizedLayout::kSuperBlock / kQuantBlock;
  const int64_t count = layout.perWord(),
                scales = kQuantBlock / layout.scaleColumns();
  Value super = div(index, blocks),
        part = add(mul(rem(index, blocks), scales),
                   count * i / layout.scaleColumns());
  Value factors = scaleWord(mul(super, QuantizedLayout::kSuperScales));
  Value step =
      b.create<arith::MulFOp>(loc, halfOf(factors, 0), scaleByte(super, part));
  Value result = b.create<arith::MulFOp>(loc, spread(step, count), q);
  if (!layout.minima())
    return result;
  Value least = b.create<arith::MulFOp>(loc, halfOf(factors, 16),
                                        scaleByte(super, add(part, 8)));
  return b.create<arith::SubFOp>(loc, result, spread(least, count));
}

Value TableRow::scaled(Value q, Value index, int64_t i) const {
  if (layout.superBlocks)
    return scaledSuper(q, index, i);
  const int64_t count = layout.perWord();
  Value group = div(index, layout.group / kQuantBlock);
  if (layout.mxfp4()) {
    Value shift = b.create<arith::IndexCastOp>(loc, b.getI32Type(),
                                               mul(rem(group, 4), 8)),
          scale = extendExponent(b, loc, scaleWord(div(group, 4)), shift);
    return b.create<arith::MulFOp>(loc, spread(scale, count), q);
  }
  auto at = [&](int64_t part) {
    Value scale = scaleWord(add(mul(group, layout.scalesAt(1)), part));
    return spread(b.create<arith::ExtFOp>(loc, b.getF32Type(), scale), count);
  };
  if (layout.zeros)
    q = b.create<arith::SubFOp>(loc, q, at(1));
  return b.create<arith::MulFOp>(loc, at(0), q);
}

// The first `columns` of block `index`.
void TableRow::block(Value index, int64_t columns) {
  const int64_t count = layout.perWord();
  for (int64_t i = 0; i * count < columns; ++i) {
    Value q = layout.superBlocks ? superIntegers(index, i) : numbers(index, i);
    put(scaled(q, index, i), add(mul(index, kQuantBlock), i * count),
        std::min(count, columns - i * count));
  }
}

// bf16 [columns / 2, 16, 2] of a micropanel.
void TableRow::copyPairs(Value micropanel, Value lane) {
  constexpr int64_t together = 2 * kMicropanel;
  Value first = add(mul(micropanel, layout.words() * together), mul(lane, 2));
  auto copyPair = [&](Value pair, int64_t columns) {
    auto type = VectorType::get({2}, b.getBF16Type());
    Value loaded = b.create<tile::LoadOp>(loc, type, buffers.values,
                                          add(first, mul(pair, together)),
                                          ValueRange(), ArrayRef<int64_t>{0});
    put(toHeld(b, loc, loaded, type.getElementType()), mul(pair, 2), columns);
  };
  const int64_t whole = layout.columns / 2;
  forRange(index(0), index(whole), 1, [&](Value i) { copyPair(i, 2); });
  if (layout.columns % 2)
    copyPair(index(whole), 1);
}

void TableRow::copy(Value id, Value to) {
  Value micropanel = div(id, kMicropanel), lane = rem(id, kMicropanel);
  firstResult = mul(to, layout.columns);
  if (!layout.hasScales())
    return copyPairs(micropanel, lane);
  firstWord = add(mul(micropanel, layout.words() * kMicropanel), lane);
  firstScale = add(mul(micropanel, layout.scaleRows() * kMicropanel), lane);
  const int64_t whole = layout.columns / kQuantBlock,
                rest = layout.columns % kQuantBlock;
  forRange(index(0), index(whole), 1, [&](Value i) { block(i, kQuantBlock); });
  if (rest)
    block(index(whole), rest);
}

//===--- entry ------------------------------------------------------------===//

static llvm::Expected<DequantizeOp> tableOf(EmbeddingOp rows,
                                            const TilingContext &context) {
  auto table = rows.getTable().getDefiningOp<DequantizeOp>();
  if (context.isGpu())
    return llvm::createStringError(
        "GPUs do not gather rows of quantized tables; compile for cpu");
  if (table.getLayout().nf4() || table.getTransposed())
    return llvm::createStringError(
        "no kernel gathers rows of tables that are nf4 or transposed");
  return table;
}

llvm::Expected<SmallVector<Value>>
tessera::tileQuantizedTable(ClusterOp cluster, TilingContext &context) {
  auto rows = *cluster.getBody().front().getOps<EmbeddingOp>().begin();
  llvm::Expected<DequantizeOp> table = tableOf(rows, context);
  if (!table)
    return table.takeError();
  SmallVector<Value> from{rows.getIds(), table->getValues()};
  if (Value scales = table->getScales())
    from.push_back(scales);
  const QuantizedLayout layout = table->getLayout();
  const int64_t count = tensorType(rows.getIds()).getNumElements();
  const RankedTensorType result = tensorType(rows.getResult());
  const Type element = result.getElementType();
  LaunchSpec spec;
  spec.name = cluster.getName().str();
  spec.skeleton = tile::Skeleton::gather;
  spec.summary = summarize(cluster);
  SmallVector<Value> inputs;
  for (Value each : from) {
    inputs.push_back(
        cluster.getInputs()[cast<BlockArgument>(each).getArgNumber()]);
    spec.buffers.push_back(bufferType(each.getType()));
    spec.access.push_back(tile::Access::read);
  }
  spec.buffers.push_back(bufferType(result));
  spec.access.push_back(tile::Access::write);
  spec.key = bodyKey(cluster);
  const int64_t perBlock =
      std::max<int64_t>(blockElements(context.target()) / layout.columns, 1);
  spec.blocks = partsOf(count, perBlock);
  spec.gatheredBytes = count * layout.words() * 4;
  if (layout.hasScales())
    spec.gatheredBytes += count * layout.scaleRows() * layout.scaleBytes();
  spec.build = [=](tile::KernelOp kernel, const TileTarget &,
                   OpBuilder &b) -> llvm::Error {
    Location loc = kernel.getLoc();
    KernelOps e{b, loc};
    auto memory = kernel.getBuffers();
    const TableBuffers buffers{memory[0], memory[1],
                               layout.hasScales() ? memory[2] : Value(),
                               memory.back()};
    TableRow row(b, loc, layout, buffers, element);
    Value begin = e.mul(kernel.getBlockNumber(), perBlock),
          end = e.min(e.add(begin, perBlock), e.index(count));
    e.forRange(begin, end, 1, [&](Value i) {
      Value id = b.create<memref::LoadOp>(loc, buffers.ids, i);
      row.copy(b.create<arith::IndexCastOp>(loc, b.getIndexType(), id), i);
    });
    return llvm::Error::success();
  };
  return context.launch(cluster, spec, inputs, TypeRange(Type(result)));
}
