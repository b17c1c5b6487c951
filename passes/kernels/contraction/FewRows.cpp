#include "passes/kernels/contraction/FewRows.h"
#include "passes/kernels/ClusterLaunch.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace tessera;

static constexpr int64_t kLine = 4 * kMicropanel;
// Prefetch distance of words into L1, in bytes.
static constexpr int64_t kNear = 4096;

FewRows::FewRows(ContractionBlock &block, ContractionEpilogue &epilogue)
    : ContractionEngine(block, epilogue),
      lhs(plan.quant->readsIntegers()
              ? std::nullopt
              : std::make_optional<StridedOperand>(block, /*isLeft=*/true)),
      weights(block), layout(weights.layout) {}

void FewRows::allocate() {
  sums = block.allocate(
      {plan.blockRows, int64_t(llvm::alignTo(plan.blockColumns, kMicropanel))},
      b.getF32Type());
  allocateRows();
}

void FewRows::emit() {
  stageRows();
  int64_t last =
      plan.columnDim().size - (plan.columnBlocks() - 1) * plan.blockColumns;
  forEach(select(block.isLastColumns, partsOf(last, kMicropanel),
                 partsOf(plan.blockColumns, kMicropanel)),
          [&](Value slot) { emitMicropanel(slot); });
  block.groupStart = index(0);
  block.sumStart = index(0);
  forEachTile(block, [&](const TilePlace &place) {
    auto type = VectorType::get({place.rows, place.columns}, tiles.accumulate);
    epilogue.emit(place,
                  load(type, sums,
                       {block.rowOf(place), mul(place.panel, tiles.width)},
                       {0, 1}));
  });
}

// In tiles of rows small enough to leave registers for a sum's chains.
void FewRows::emitMicropanel(Value slot) {
  Value micropanel = block.micropanelOf(mul(slot, kMicropanel));
  int64_t rows = plan.blockRows, tall = target.lanes == kMicropanel ? 4 : 1;
  if (!block.ownedRows) {
    for (int64_t row = 0; row < rows; row += tall)
      emitSums(micropanel, slot,
               {index(row), std::min(tall, rows - row),
                /*prefetches=*/row == 0});
    return;
  }
  // As many rows as the group has; usually only one tile of them.
  tall = std::min(tall, rows);
  SmallVector<int64_t> sizes;
  if (!llvm::isPowerOf2_64(tall))
    sizes.push_back(tall);
  for (int64_t size = llvm::bit_floor(uint64_t(tall)); size; size /= 2)
    sizes.push_back(size);
  forEachPartOf(block.ownedRows, sizes, [&](Value row, int64_t count) {
    emitSums(micropanel, slot, {row, count, /*prefetches=*/true});
  });
}

// Sums of some rows with the weights of a micropanel, stored to slot `slot`.
void FewRows::emitSums(Value micropanel, Value slot, const Rows &rows) {
  auto type = VectorType::get({rows.count, kMicropanel}, b.getF32Type());
  Value sum = zeros(type);
  int64_t whole = layout.columns / layout.group,
          rest = layout.columns % layout.group;
  if (whole) {
    auto addOne = [&](Value group, ValueRange so) -> Values {
      return {addGroup(micropanel, group, rows, layout.group, so[0])};
    };
    sum = forRange(index(0), index(whole), 1, sum, addOne)[0];
  }
  if (rest)
    sum = addGroup(micropanel, index(whole), rows, rest, sum);
  store(sum, sums, {rows.first, mul(slot, kMicropanel)}, {0, 1});
}

void FewRows::forEachRow(llvm::function_ref<void(Value)> body) const {
  if (block.ownedRows)
    forEach(block.ownedRows, body);
  else
    forEach(plan.blockRows, body);
}

Value FewRows::loadElements(Value row, Value k, int64_t count) const {
  auto memory = cast<MemRefType>(lhs->memory.getType()).getElementType();
  auto type = VectorType::get({count}, b.getF32Type());
  Value at = plan.rowDim().size > 1 ? add(block.rowStart, row) : index(0);
  SmallVector<Value> from = lhs->indicesOf(at, k);
  Value x = load(type.clone(memory), lhs->memory, from,
                 {static_cast<int64_t>(from.size()) - 1});
  if (memory != type.getElementType())
    x = b.create<arith::ExtFOp>(loc, type, x);
  return x;
}

// Only the first tile of rows of a micropanel prefetches; the others find it in
// cache.
Value FewRows::loadWords(Value micropanel, Value at, const Rows &rows) const {
  if (rows.prefetches)
    prefetchAfter(weights.words, micropanel, at, 1);
  return load(VectorType::get({1, kMicropanel}, b.getI32Type()), weights.words,
              {micropanel, at, index(0)}, {1, 2});
}

// Lines of zero points are among those of scales.
void FewRows::prefetchScales(Value micropanel, Value group) const {
  if (layout.mxfp4()) // four groups have a line
    return prefetchAfter(weights.scales, micropanel, div(group, 4),
                         4 * layout.bits);
  int64_t each = layout.scalesAt(1);
  for (int64_t line = 0; line < each; ++line)
    prefetchAfter(weights.scales, micropanel,
                  add(mul(group, each), index(line)),
                  layout.group / kQuantBlock * layout.bits / each);
}

void FewRows::prefetchAfter(Value memory, Value micropanel, Value at,
                            int64_t lines) const {
  for (auto [bytes, locality] : prefetchDistances(target, kNear)) {
    int64_t ahead = std::max<int64_t>(bytes / (lines * kLine), 1);
    prefetch(memory, {micropanel, add(at, index(ahead)), index(0)}, locality);
  }
}
