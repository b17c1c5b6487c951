// Products with quantized weights (integers or e4m3 with scales) on CPUs.
//
// Few rows, as in decode, are bound by memory. Rows of bf16 with integer
// weights are multiplied as integers (ContractionIntegers.cpp). Others: a
// micropanel of 16 weights' rows has a lane for each; words are dequantized in
// registers and multiplied by elements of lhs, in f32, one splat after another.
// Integers of 8 bits are shifted into sign; 4 bits are masked in place, 16^i
// times too large, which lhs compensates: it is staged divided by the same
// factor, exactly. The offset that keeps them unsigned is subtracted from a
// group's sum at once, by the sum of lhs over the group, together with zero
// points. A sum has four chains for any number of rows, so that a row's bits do
// not depend on their number.
//
// Many rows are bound by multiplications: a block dequantizes its columns once
// (ContractionDequantize.cpp).
//
// Rows of groups (experts) are few or many by the average of a group, which is
// static, so that a token's bits do not depend on how many others chose its
// expert. Few: a block has the rows of one group, in register tiles that each
// read the block's columns again. Without rows no weight is read.
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"

using namespace mlir;
using namespace tessera;

// Up to so many rows the weights are streamed.
static constexpr int64_t kStreamedRows = 16;
// Rows of a block if a group may have more than others.
static constexpr int64_t kMostGroupRows = 64;
// Partial sums of one group.
static constexpr int64_t kChains = 4;
// Columns of a block: enough that staging lhs costs little, few enough that
// there are blocks for all threads.
static constexpr int64_t kLeastColumns = 64, kMostColumns = 256,
                         kWantedBlocks = 64;

//===--- the grid ---------------------------------------------------------===//

static llvm::Error fail(const llvm::Twine &what) {
  return llvm::createStringError("quantized weights: " + what);
}

// Columns of the results are columns of the matrix, whose micropanels are terms
// of the sum.
static llvm::Error chooseRowSumGrid(ContractionPlan &plan,
                                    const TileTarget &target) {
  const QuantizedLayout &layout = plan.quant->layout;
  if (plan.isMicropanels() || (plan.groups && !plan.groups->hasSlots()))
    return fail("the packed layout and padded groups are not summed over the "
                "matrix's rows");
  if (!plan.outerSums.empty() || plan.sum.size != plan.quantRows() ||
      plan.sum.size % kMicropanel || layout.columns % kMicropanel)
    return fail("a matmul that sums over the matrix's rows must sum over "
                "nothing else, and rows and columns must be multiples of 16");
  bool isAligned = true;
  for (unsigned dim : plan.outer)
    isAligned &= plan.dims[dim].rhs % kMicropanel == 0;
  if (!isAligned)
    return fail("the epilogue must divide columns at multiples of 16");
  if (!target.gpu) {
    chooseGrid(plan);
    return llvm::Error::success();
  }
  chooseGpuGrid(plan, target);
  // A block's columns are whole groups, or of one.
  int64_t unit =
      std::min({plan.blockColumns, plan.columnDim().size, layout.group});
  isAligned = layout.group % unit == 0;
  for (unsigned dim : plan.outer)
    isAligned &= plan.dims[dim].rhs % unit == 0;
  if (!isAligned)
    return fail("the epilogue must divide columns at multiples of groups");
  return llvm::Error::success();
}

llvm::Error tessera::chooseQuantGrid(ContractionPlan &plan,
                                     const TileTarget &target) {
  int64_t columns = plan.quant->layout.columns;
  plan.quant->sumsRows = plan.sum.rhs == columns && plan.columnDim().rhs == 1;
  if (plan.quant->sumsRows)
    return chooseRowSumGrid(plan, target);
  if (!plan.outerSums.empty() || plan.sum.rhs != 1 || plan.sum.size != columns)
    return fail("the matmul must sum over the matrix's columns only");
  if (plan.groups && !plan.groups->hasSlots())
    return fail("groups must be runs of rows");
  ContractionDim row = plan.rowDim(), column = plan.columnDim();
  if (plan.sum.lhs == 0 || (row.size > 1 && row.lhs == 0))
    return fail("the left operand must not repeat elements");
  bool isAligned = column.rhs == columns;
  for (unsigned dim : plan.outer)
    isAligned &= plan.dims[dim].rhs / columns % kMicropanel == 0;
  if (plan.groups)
    isAligned &= plan.groups->matrix / columns % kMicropanel == 0;
  if (!isAligned)
    return fail("the epilogue must divide columns at multiples of 16");
  if (target.gpu) {
    chooseGpuGrid(plan, target);
    return llvm::Error::success();
  }
  plan.quant->streams =
      plan.typicalRows() <= kStreamedRows && !plan.quant->layout.nf4();
  if (!plan.quant->streams || plan.isMicropanels()) {
    chooseGrid(plan);
    return llvm::Error::success();
  }
  plan.blockRows = row.size;
  plan.quant->integers = multipliesIntegers(plan);
  if (plan.groups) {
    int64_t most = plan.quant->integers ? kMostGroupRows : kStreamedRows,
            typical = llvm::alignTo(plan.typicalRows(), kStreamedRows);
    plan.blockRows = std::min({row.size, typical, most});
  }
  if (plan.quant->integers) {
    plan.blockColumns =
        std::min(column.size, integerColumns(plan.quant->layout));
    return llvm::Error::success();
  }
  int64_t wanted =
      llvm::alignTo(partsOf(column.size, kWantedBlocks), kLeastColumns);
  plan.blockColumns = std::min(column.size, std::min(wanted, kMostColumns));
  return llvm::Error::success();
}

// The factor by which a weight of 4 bits is too large, exactly.
static float weightFactor(int64_t place) {
  return place == 7 ? 1.0f : float(1 << (4 * place));
}

//===--- few rows ---------------------------------------------------------===//

void ContractionEmitter::allocateStreamed() {
  const QuantizedLayout &layout = plan.quant->layout;
  Type f32 = b.getF32Type();
  auto allocate = [&](ArrayRef<int64_t> shape) -> Value {
    return b.create<tile::AllocOp>(
        loc, MemRefType::get(
                 shape, f32, AffineMap(),
                 tile::SharedAttr::get(b.getContext(), tile::Layout::rows)));
  };
  int64_t rows = plan.blockRows;
  micropanelSums =
      allocate({rows, partsOf(plan.blockColumns, kMicropanel) * kMicropanel});
  if (plan.quant->integers)
    return;
  streamed = allocate({rows, layout.blocks() * kQuantBlock});
  if (layout.offset() || layout.zeros)
    negatedSums = allocate({rows, layout.groups()});
}

void ContractionEmitter::emitStreamed() {
  int64_t rows = plan.blockRows;
  auto stage = [&](Value row) { stageStreamedRow(row); };
  if (plan.quant->integers) {
    packedRows =
        emitView(b, loc, kernel.getBuffers()[0], integerRows(plan).view());
    firstPacked = packedRow();
  } else if (ownedRows) {
    forEach(ownedRows, stage);
  } else {
    forEach(rows, stage);
  }
  int64_t last =
      plan.columnDim().size - (plan.columnBlocks() - 1) * plan.blockColumns;
  forEach(select(isLastColumns, partsOf(last, kMicropanel),
                 partsOf(plan.blockColumns, kMicropanel)),
          [&](Value slot) {
            Value micropanel = micropanelOf(mul(slot, kMicropanel));
            // Tiles of rows small enough to leave registers for a sum's chains.
            int64_t tall = target.lanes == kMicropanel ? 4 : 1;
            if (ownedRows)
              return emitOwnedMicropanel(micropanel, slot,
                                         std::min(tall, rows));
            for (int64_t row = 0; row < rows; row += tall)
              emitMicropanel(micropanel, slot,
                             {index(row), std::min(tall, rows - row),
                              /*prefetches=*/row == 0});
          });
  groupStart = index(0);
  sumStart = index(0);
  ownedRows ? emitOwnedRows() : emitRowTiles();
}

// As many rows as the group has; usually only one tile of them.
void ContractionEmitter::emitOwnedMicropanel(Value micropanel, Value slot,
                                             int64_t tall) {
  SmallVector<int64_t> sizes;
  if (!llvm::isPowerOf2_64(tall))
    sizes.push_back(tall);
  for (int64_t size = llvm::bit_floor(uint64_t(tall)); size; size /= 2)
    sizes.push_back(size);
  forEachPartOf(ownedRows, sizes, [&](Value row, int64_t rows) {
    emitMicropanel(micropanel, slot, {row, rows, /*prefetches=*/true});
  });
}

void ContractionEmitter::stageStreamedRow(Value row) {
  const QuantizedLayout &layout = plan.quant->layout;
  int64_t whole = layout.columns / layout.group,
          rest = layout.columns % layout.group;
  forEach(whole,
          [&](Value group) { stageStreamedGroup(row, group, layout.group); });
  if (rest)
    stageStreamedGroup(row, index(whole), rest);
}

// The factors by which elements of lhs are divided, to compensate those of the
// weights.
static SmallVector<float> streamFactors(const QuantizedLayout &layout,
                                        int64_t count) {
  SmallVector<float> factors;
  for (int64_t k = 0; k < count; ++k)
    factors.push_back(layout.bits == 4 ? 1 / weightFactor(k % layout.perWord())
                                       : 1);
  return factors;
}

static Value emitSum(OpBuilder &b, Location loc, Value x) {
  Type element = cast<VectorType>(x.getType()).getElementType();
  Value sum = b.create<tile::ReduceOp>(loc, VectorType::get({}, element), x,
                                       tile::ReduceKind::sum, 0);
  return b.create<vector::ExtractElementOp>(loc, sum);
}

// Elements [k, k + count) of a row of lhs, in f32; they are also staged.
Value ContractionEmitter::stageStreamed(Value row, Value k, int64_t count) {
  const QuantizedLayout &layout = plan.quant->layout;
  auto memory = cast<MemRefType>(lhs->memory.getType()).getElementType();
  auto type = VectorType::get({count}, b.getF32Type());
  Value at = plan.rowDim().size > 1 ? add(rowStart, row) : index(0);
  SmallVector<Value> from = lhs->indicesOf(at, k);
  Value x = b.create<tile::LoadOp>(
      loc, type.clone(memory), lhs->memory, from, ValueRange(),
      ArrayRef<int64_t>{static_cast<int64_t>(from.size()) - 1});
  if (memory != type.getElementType())
    x = b.create<arith::ExtFOp>(loc, type, x);
  Value scaled = x;
  if (layout.bits == 4) {
    Value factors = b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(
                 type, ArrayRef<float>(streamFactors(layout, count))));
    scaled = b.create<arith::MulFOp>(loc, x, factors);
  }
  b.create<tile::StoreOp>(loc, scaled, streamed, ValueRange{row, k},
                          ValueRange(), ArrayRef<int64_t>{1});
  return x;
}

// Elements of lhs over one group of `size` columns, zeros up to a block's end,
// and their sum.
void ContractionEmitter::stageStreamedGroup(Value row, Value group,
                                            int64_t size) {
  auto blockType = VectorType::get({kQuantBlock}, b.getF32Type());
  Value zeros = b.create<arith::ConstantOp>(loc, b.getZeroAttr(blockType));
  Value start = mul(group, plan.quant->layout.group), whole = zeros;
  if (int64_t blocks = size / kQuantBlock) {
    auto loop = b.create<scf::ForOp>(loc, index(0), index(blocks), index(1),
                                     ValueRange{zeros});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value x = stageStreamed(
        row, add(start, mul(loop.getInductionVar(), kQuantBlock)), kQuantBlock);
    Value next = b.create<arith::AddFOp>(loc, loop.getRegionIterArgs()[0], x);
    b.create<scf::YieldOp>(loc, next);
    whole = loop.getResult(0);
  }
  Value sum = negatedSums ? emitSum(b, loc, whole) : Value();
  if (int64_t rest = size % kQuantBlock) {
    Value k = add(start, index(size / kQuantBlock * kQuantBlock));
    b.create<tile::StoreOp>(loc, zeros, streamed, ValueRange{row, k},
                            ValueRange(), ArrayRef<int64_t>{1});
    Value x = stageStreamed(row, k, rest);
    if (sum)
      sum = b.create<arith::AddFOp>(loc, sum, emitSum(b, loc, x));
  }
  if (sum)
    b.create<memref::StoreOp>(loc, b.create<arith::NegFOp>(loc, sum),
                              negatedSums, ValueRange{row, group});
}

// Sums of some rows with the weights of a micropanel, stored to slot `slot`.
void ContractionEmitter::emitMicropanel(Value micropanel, Value slot,
                                        const StreamedRows &rows) {
  const QuantizedLayout &layout = plan.quant->layout;
  auto type = VectorType::get({rows.count, kMicropanel}, b.getF32Type());
  Value sum = b.create<arith::ConstantOp>(loc, b.getZeroAttr(type));
  auto addGroup = [&](Value group, int64_t size, Value so) {
    return plan.quant->integers
               ? emitIntegerGroup(micropanel, group, rows, size, so)
               : emitMicropanelGroup(micropanel, group, rows, size, so);
  };
  int64_t whole = layout.columns / layout.group,
          rest = layout.columns % layout.group;
  if (whole) {
    auto loop = b.create<scf::ForOp>(loc, index(0), index(whole), index(1),
                                     ValueRange{sum});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value next = addGroup(loop.getInductionVar(), layout.group,
                          loop.getRegionIterArgs()[0]);
    b.create<scf::YieldOp>(loc, next);
    sum = loop.getResult(0);
  }
  if (rest)
    sum = addGroup(index(whole), rest, sum);
  b.create<tile::StoreOp>(loc, sum, micropanelSums,
                          ValueRange{rows.first, mul(slot, kMicropanel)},
                          ValueRange(), ArrayRef<int64_t>{0, 1});
}

// `sum` plus scale × the products of the group's blocks.
Value ContractionEmitter::emitMicropanelGroup(Value micropanel, Value group,
                                              const StreamedRows &rows,
                                              int64_t size, Value sum) {
  const QuantizedLayout &layout = plan.quant->layout;
  auto type = cast<VectorType>(sum.getType());
  Value zeros = b.create<arith::ConstantOp>(loc, b.getZeroAttr(type));
  SmallVector<Value> chains(kChains, zeros);
  if (rows.prefetches)
    prefetchScales(micropanel, group);
  Value first = mul(group, layout.group / kQuantBlock);
  int64_t blocks = partsOf(size, kQuantBlock);
  if (blocks == 1) {
    emitMicropanelBlock(micropanel, first, rows, chains);
  } else {
    auto loop =
        b.create<scf::ForOp>(loc, index(0), index(blocks), index(1), chains);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> inner(loop.getRegionIterArgs());
    emitMicropanelBlock(micropanel, add(first, loop.getInductionVar()), rows,
                        inner);
    b.create<scf::YieldOp>(loc, inner);
    chains.assign(loop.getResults().begin(), loop.getResults().end());
  }
  auto plus = [&](Value x, Value y) -> Value {
    return b.create<arith::AddFOp>(loc, x, y);
  };
  Value ofGroup = plus(plus(chains[0], chains[1]), plus(chains[2], chains[3]));
  if (negatedSums) {
    auto left = VectorType::get({rows.count, 1}, b.getF32Type());
    auto right = VectorType::get({1, kMicropanel}, b.getF32Type());
    Value sums = b.create<tile::LoadOp>(loc, left, negatedSums,
                                        ValueRange{rows.first, group},
                                        ValueRange(), ArrayRef<int64_t>{0, 1});
    Value offset = b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(right, float(layout.offset())));
    if (layout.zeros)
      offset = b.create<arith::AddFOp>(
          loc, offset,
          b.create<tile::BroadcastOp>(loc, right,
                                      weights->loadZero(micropanel, group),
                                      ArrayRef<int64_t>{1}));
    ofGroup = b.create<tile::MmaOp>(loc, sums, offset, ofGroup);
  }
  Value scale = b.create<tile::BroadcastOp>(
      loc, type, weights->loadScale(micropanel, group), ArrayRef<int64_t>{1});
  return b.create<math::FmaOp>(loc, ofGroup, scale, sum);
}

// Multiplies a block's weights by the elements of lhs, alternating between the
// chains.
void ContractionEmitter::emitMicropanelBlock(Value micropanel, Value block,
                                             const StreamedRows &rows,
                                             MutableArrayRef<Value> chains) {
  const QuantizedLayout &layout = plan.quant->layout;
  int64_t perWord = layout.perWord(), count = kQuantBlock / perWord;
  auto left = VectorType::get({rows.count, 1}, b.getF32Type());
  for (int64_t i = 0; i < count; ++i) {
    Value word = loadWords(micropanel, add(mul(block, count), index(i)),
                           rows.prefetches);
    for (int64_t place = 0; place < perWord; ++place) {
      Value k = add(mul(block, kQuantBlock), index(i * perWord + place));
      Value x =
          b.create<tile::LoadOp>(loc, left, streamed, ValueRange{rows.first, k},
                                 ValueRange(), ArrayRef<int64_t>{0, 1});
      Value &chain = chains[place % kChains];
      chain = b.create<tile::MmaOp>(loc, x, dequantizeWord(word, place), chain);
    }
  }
}

// The weights at `place` of the words, in f32: q for 8 bits, (q + offset) ×
// weightFactor(place) for 4.
Value ContractionEmitter::dequantizeWord(Value word, int64_t place) {
  auto type = cast<VectorType>(word.getType());
  auto number = [&](uint32_t value) -> Value {
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(type, llvm::APInt(32, value)));
  };
  VectorType wide = type.clone(b.getF32Type());
  if (plan.quant->layout.bits == 4) {
    // The uppermost would be a sign in place.
    Value masked =
        place == 7
            ? b.create<arith::ShRUIOp>(loc, word, number(28)).getResult()
            : b.create<arith::AndIOp>(loc, word, number(15u << (4 * place)))
                  .getResult();
    return b.create<arith::SIToFPOp>(loc, wide, masked);
  }
  Value high = place == 3
                   ? word
                   : b.create<arith::ShLIOp>(loc, word, number(24 - 8 * place))
                         .getResult();
  return extendUpperBytes(b, loc, plan.quant->layout, high);
}
