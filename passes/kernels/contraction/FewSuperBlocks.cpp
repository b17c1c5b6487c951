// Few rows × weights in super-blocks, in floats or as integers, as in
// FewFloatRows.cpp and FewIntegerRows.cpp. A super-block's products are
//
//   d × Σ scale × (row · q) - dmin × Σ minimum × Σ row
//
// over the parts that have one scale. Both sums are f32 and in the order of
// columns. Scales and minima are small integers: so each term of the integer
// products is exact before it is added.
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/FewRows.h"
#include "runtime/support/SuperBlocks.h"

using namespace mlir;
using namespace tessera;

namespace {

class FewSuperBlocks : public FewRows {
public:
  FewSuperBlocks(ContractionBlock &block, ContractionEpilogue &epilogue)
      : FewRows(block, epilogue), superBlocks(weights) {}

protected:
  /// The q of a block, i32 [1, 16], a byte each: word 2 i + odd has those of
  /// bytesOf(i, odd). Loaded and unpacked where they are multiplied, so that
  /// few are in registers.
  using Bytes = llvm::function_ref<Value(int64_t)>;
  /// Some of them, those with one scale.
  struct Part {
    Value block; ///< of the matrix
    int64_t first, count;
  };
  /// f32 [rows, 16]: products of the rows with the part's q.
  virtual Value multiply(const Rows &rows, Bytes bytes, const Part &part) = 0;
  /// f32 [rows, 16]: minus the rows' sums over scale number `at`.
  virtual Value loadSums(const Rows &rows, Value at) = 0;
  /// `sum` and `ofSuper`, which is not scaled by the rows yet.
  virtual Value addScaled(const Rows &rows, Value super, Value ofSuper,
                          Value sum) = 0;
  Value fma(Value x, Value y, Value sum) const {
    return b.create<math::FmaOp>(loc, x, y, sum);
  }
  int64_t partsOfBlock() const { return kQuantBlock / layout.scaleColumns(); }
  /// Of the matrix's parts.
  Value numberOf(const Part &part) const {
    return add(mul(part.block, partsOfBlock()), index(part.first / part.count));
  }

  const SuperBlockWeights superBlocks;

private:
  Value addGroup(Value micropanel, Value super, const Rows &rows, int64_t size,
                 Value sum) override;
  /// Of products times scales, and of minima times the rows' sums.
  struct Sums {
    Value products, minima;
  };
  void addBlock(Value micropanel, Value part, const Rows &rows,
                ArrayRef<Value> scales, Value minima, Sums &sums);
};

class FewSuperFloats : public FewSuperBlocks {
public:
  using FewSuperBlocks::FewSuperBlocks;

private:
  void allocateRows() override;
  void stageRows() override;
  Value multiply(const Rows &rows, Bytes bytes, const Part &part) override;
  Value loadSums(const Rows &rows, Value at) override;
  Value addScaled(const Rows &rows, Value super, Value ofSuper,
                  Value sum) override {
    return b.create<arith::AddFOp>(loc, sum, ofSuper);
  }

  Value scaled;      ///< f32 [rows, columns]: divided by the factors of bytes
  Value negatedSums; ///< f32 [rows, scales]
};

class FewSuperIntegers : public FewSuperBlocks {
public:
  FewSuperIntegers(ContractionBlock &block, ContractionEpilogue &epilogue)
      : FewSuperBlocks(block, epilogue), packed(integerRows(plan)) {}

private:
  void stageRows() override;
  Value multiply(const Rows &rows, Bytes bytes, const Part &part) override;
  Value loadSums(const Rows &rows, Value at) override;
  Value addScaled(const Rows &rows, Value super, Value ofSuper,
                  Value sum) override;
  Value loadRows(const Rows &rows, Value at) const;
  Value loadFloats(const Rows &rows, Value at) const;

  IntegerRows packed;
  Value memory, first; ///< as in FewIntegerRows
};

} // namespace

//===--- a super-block ----------------------------------------------------===//

// One block of 32 columns, number `part` of the matrix. `scales` and `minima`
// are f32 [16] for each of its parts; minima are null if there are none.
void FewSuperBlocks::addBlock(Value micropanel, Value part, const Rows &rows,
                              ArrayRef<Value> scales, Value minima,
                              Sums &sums) {
  SmallVector<Value> words(layout.bits);
  auto bytes = [&](int64_t at) {
    for (int64_t i : superBlocks.wordsOf(at / 2, at % 2))
      if (!words[i])
        words[i] =
            loadWords(micropanel, add(mul(part, layout.bits), index(i)), rows);
    return superBlocks.bytesOf(words, at / 2, at % 2);
  };
  const int64_t count = 2 * kLowWords / scales.size();
  for (auto [i, scale] : llvm::enumerate(scales))
    sums.products =
        fma(multiply(rows, bytes, {part, int64_t(i) * count, count}),
            spreadColumns(scale, rows), sums.products);
  if (minima)
    sums.minima =
        fma(loadSums(rows, part), spreadColumns(minima, rows), sums.minima);
}

Value FewSuperBlocks::addGroup(Value micropanel, Value super, const Rows &rows,
                               int64_t size, Value sum) {
  constexpr int64_t kBlocks = QuantizedLayout::kSuperBlock / kQuantBlock;
  const int64_t parts = partsOfBlock();
  if (rows.prefetches)
    prefetchScales(micropanel, super);
  Value none = zeros(cast<VectorType>(sum.getType()));
  SmallVector<Value> carried(layout.minima() ? 2 : 1, none);
  auto addBlocks = [&](Value half, ValueRange so) -> Values {
    Sums sums{so[0], layout.minima() ? so[1] : Value()};
    SmallVector<Value> scaleWords;
    for (int64_t i = 0; i < parts; ++i)
      scaleWords.push_back(superBlocks.loadBytes(
          micropanel, super, add(mul(half, parts), index(i))));
    Value leastWord =
        layout.minima()
            ? superBlocks.loadBytes(micropanel, super, add(half, index(2)))
            : Value();
    for (int64_t i = 0; i < kBlocksOfWord; ++i) {
      SmallVector<Value> scales;
      for (int64_t at = i * parts; at < (i + 1) * parts; ++at)
        scales.push_back(superBlocks.extendByte(scaleWords[at / 4], at % 4));
      Value least = leastWord ? superBlocks.extendByte(leastWord, i) : Value();
      Value part =
          add(add(mul(super, kBlocks), mul(half, kBlocksOfWord)), index(i));
      addBlock(micropanel, part, rows, scales, least, sums);
    }
    Values next{sums.products};
    if (sums.minima)
      next.push_back(sums.minima);
    return next;
  };
  ValueRange sums =
      forRange(index(0), index(kBlocks / kBlocksOfWord), 1, carried, addBlocks);
  Value ofSuper = b.create<arith::MulFOp>(
      loc, sums[0], spreadColumns(superBlocks.loadD(micropanel, super), rows));
  if (layout.minima())
    ofSuper = fma(sums[1],
                  spreadColumns(superBlocks.loadDmin(micropanel, super), rows),
                  ofSuper);
  return addScaled(rows, super, ofSuper, sum);
}

//===--- rows of floats ---------------------------------------------------===//

void FewSuperFloats::allocateRows() {
  scaled = block.allocate({plan.blockRows, layout.columns}, b.getF32Type());
  negatedSums = block.allocate(
      {plan.blockRows, layout.columns / layout.scaleColumns()}, b.getF32Type());
}

// A byte in place is 256^b times too large.
void FewSuperFloats::stageRows() {
  const int64_t size = layout.scaleColumns();
  auto type = VectorType::get({size}, b.getF32Type());
  SmallVector<float> factors;
  for (int64_t k = 0; k < size; ++k)
    factors.push_back(1 / float(1 << (8 * (k % 8 / 2))));
  Value divide = b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(type, ArrayRef<float>(factors)));
  forEachRow([&](Value row) {
    forEach(layout.columns / size, [&](Value part) {
      Value k = mul(part, size), x = loadElements(row, k, size);
      store(b.create<arith::MulFOp>(loc, x, divide), scaled, {row, k}, {1});
      Value sum =
          b.create<tile::ReduceOp>(loc, VectorType::get({}, b.getF32Type()), x,
                                   tile::ReduceKind::sum, 0);
      sum = b.create<vector::ExtractElementOp>(loc, sum);
      b.create<memref::StoreOp>(loc, b.create<arith::NegFOp>(loc, sum),
                                negatedSums, ValueRange{row, part});
    });
  });
}

// A chain for each byte, for any number of rows.
Value FewSuperFloats::multiply(const Rows &rows, Bytes bytes,
                               const Part &part) {
  auto left = VectorType::get({rows.count, 1}, b.getF32Type());
  auto type = VectorType::get({rows.count, kMicropanel}, b.getF32Type());
  auto words = VectorType::get({1, kMicropanel}, b.getI32Type());
  SmallVector<Value> chains(4, zeros(type));
  for (int64_t at = part.first; at < part.first + part.count; ++at) {
    Value word = bytes(at);
    for (int64_t byte = 0; byte < 4; ++byte) {
      Value mask = b.create<arith::ConstantOp>(
          loc,
          DenseElementsAttr::get(words, llvm::APInt(32, 255u << (8 * byte))));
      Value q =
          b.create<arith::SIToFPOp>(loc, words.clone(b.getF32Type()),
                                    b.create<arith::AndIOp>(loc, word, mask));
      Value k = add(mul(part.block, kQuantBlock),
                    index(at / 2 * 8 + 2 * byte + at % 2));
      chains[byte] = b.create<tile::MmaOp>(
          loc, load(left, scaled, {rows.first, k}, {0, 1}), q, chains[byte]);
    }
  }
  auto plus = [&](Value x, Value y) -> Value {
    return b.create<arith::AddFOp>(loc, x, y);
  };
  Value sum = plus(plus(chains[0], chains[1]), plus(chains[2], chains[3]));
  if (!layout.offset())
    return sum;
  return fma(loadSums(rows, numberOf(part)),
             splat(double(layout.offset()), type.getShape()), sum);
}

Value FewSuperFloats::loadSums(const Rows &rows, Value at) {
  Value sums = load(VectorType::get({rows.count}, b.getF32Type()), negatedSums,
                    {rows.first, at}, {0});
  return b.create<tile::BroadcastOp>(
      loc, VectorType::get({rows.count, kMicropanel}, b.getF32Type()), sums,
      ArrayRef<int64_t>{0});
}

//===--- rows of integers -------------------------------------------------===//

// An earlier launch has converted them.
void FewSuperIntegers::stageRows() {
  memory = emitView(b, loc, block.kernel.getBuffers()[0], packed.view());
  first = block.firstIntegerRow();
}

// i32 [rows, 16], the same in each column.
Value FewSuperIntegers::loadRows(const Rows &rows, Value at) const {
  Value x = load(VectorType::get({rows.count}, b.getI32Type()), memory,
                 {add(first, rows.first), at}, {0});
  return b.create<tile::BroadcastOp>(
      loc, VectorType::get({rows.count, kMicropanel}, b.getI32Type()), x,
      ArrayRef<int64_t>{0});
}

Value FewSuperIntegers::loadFloats(const Rows &rows, Value at) const {
  Value bits = loadRows(rows, at);
  auto type = cast<VectorType>(bits.getType());
  return b.create<arith::BitcastOp>(loc, type.clone(b.getF32Type()), bits);
}

Value FewSuperIntegers::loadSums(const Rows &rows, Value at) {
  return loadFloats(rows, add(index(packed.sums()), at));
}

// Less than 2^24, so that it is exact as f32: 2^14 × 31 × 32, or × 32 × 16.
Value FewSuperIntegers::multiply(const Rows &rows, Bytes bytes,
                                 const Part &part) {
  constexpr int64_t kWords = IntegerRows::kWords;
  auto left = VectorType::get({rows.count, 1}, b.getI32Type());
  auto type = VectorType::get({rows.count, kMicropanel}, b.getI32Type());
  Value upper = zeros(type), lower = upper;
  if (layout.offset())
    lower = loadRows(rows, add(index(packed.sums()), numberOf(part)));
  for (int64_t i = part.first; i < part.first + part.count; ++i) {
    Value word = bytes(i);
    const int64_t at = i / 2 + i % 2 * kLowWords;
    for (auto [half, sum] : {std::pair(0, &upper), {1, &lower}}) {
      Value x = load(left, memory,
                     {add(first, rows.first), add(mul(part.block, 2 * kWords),
                                                  index(half * kWords + at))},
                     {0, 1});
      *sum = b.create<tile::MmaOp>(loc, x, word, *sum);
    }
  }
  Value eight = b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(type, int32_t(8)));
  Value whole = b.create<arith::AddIOp>(
      loc, b.create<arith::ShLIOp>(loc, upper, eight), lower);
  return b.create<arith::SIToFPOp>(loc, type.clone(b.getF32Type()), whole);
}

Value FewSuperIntegers::addScaled(const Rows &rows, Value super, Value ofSuper,
                                  Value sum) {
  return fma(ofSuper, loadFloats(rows, add(index(packed.scales()), super)),
             sum);
}

std::unique_ptr<ContractionEngine>
tessera::fewSuperFloats(ContractionBlock &block,
                        ContractionEpilogue &epilogue) {
  return std::make_unique<FewSuperFloats>(block, epilogue);
}

std::unique_ptr<ContractionEngine>
tessera::fewSuperIntegers(ContractionBlock &block,
                          ContractionEpilogue &epilogue) {
  return std::make_unique<FewSuperIntegers>(block, epilogue);
}
