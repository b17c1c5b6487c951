// Contractions on a GPU with quantized weights (integers, or floats of 8 bits,
// with scales). All threads copy and multiply, as in GpuContraction.cpp, and so
// is its ring of stages: rows unchanged, and for columns the words and scales
// as stored in memory, by asynchronous copies. They are dequantized in
// registers only. With few rows, dequantizing needs more warps than the tile
// has columns for: rows of warps take parts of each chunk's terms (split-K
// within a block). Sums over the matrix's rows, of gradients, stage micropanels
// as terms and a part of each as columns.
#include "dialects/tile/TileQuantOps.h"
#include "passes/kernels/gpu/GpuContraction.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;
using namespace tessera::gpu;

// Rows of the smallest tiles: they read mostly weights, so more stages are in
// flight.
static constexpr int64_t kFewRows = 16, kMaxStages = 4, kMaxStagesOfFew = 8;
// Terms of a chunk for each warp then, and the most warps that share a chunk.
static constexpr int64_t kTermsOfSplit = 2 * kQuantBlock, kMostSplits = 4;

namespace {

class GpuQuantized : GpuProduct {
public:
  using GpuProduct::GpuProduct;
  void emit(const TileTarget &target);

private:
  const QuantizedLayout &layout() const { return plan.quant->layout; }
  int64_t chooseTerms() const;
  int64_t chooseStages(const TileTarget &target) const;
  void makeColumns();
  void locateMicropanels();
  Source partOf(Value memory, Value first, int64_t part, int64_t whole);
  void stageRows(Value step, Value stage);
  void stageStep(Value step);
  Value multiply();
  Value addSplits(Value sums);

  int64_t stages;
  int64_t splits; ///< of a chunk's terms, among rows of warps
  Value parts;    ///< f32 [splits × rows, columns]: their sums
  const bool sumsRows = plan.quant->sumsRows;
  int64_t micropanels;       ///< of the block's columns, or of a chunk's terms
  int64_t ofWords, ofScales; ///< elements of a micropanel in a stage
  Value words, scales;       ///< [micropanels, elements of a micropanel]
  Staged stagedWords, stagedScales;
  Value firstMicropanel, micropanelLimit; ///< the limit may be null
  Value matrixColumn;                     ///< the block's first, of sumsRows
};

} // namespace

//===--- stages -----------------------------------------------------------===//

// Terms of a chunk: whole groups, or in one group. With few rows, copies of
// small chunks would not saturate memory.
int64_t GpuQuantized::chooseTerms() const {
  if (plan.blockRows > kFewRows || !plan.lhs.memory.isBF16() || sumsRows)
    return kQuantBlock;
  for (int64_t terms = kMostSplits * kTermsOfSplit; terms > kQuantBlock;
       terms /= 2)
    if (terms <= layout().blocks() * kQuantBlock &&
        (terms % layout().group == 0 || layout().group % terms == 0))
      return terms;
  return kQuantBlock;
}

int64_t GpuQuantized::chooseStages(const TileTarget &target) const {
  int64_t bytes = plan.blockRows * chunk * element.getIntOrFloatBitWidth() / 8 +
                  micropanels * (ofWords * 4 + ofScales * 2);
  int64_t ofParts = splits > 1 ? tileRows * plan.blockColumns * 4 : 0;
  int64_t most = plan.blockRows > kFewRows ? kMaxStages : kMaxStagesOfFew;
  return std::clamp<int64_t>(
      std::min((target.sharedBytes - ofParts) / bytes, steps + 1), 2, most);
}

void GpuQuantized::makeColumns() {
  auto view = [&](unsigned argument, int64_t elements) {
    return emitView(b, e.loc, epilogue.arguments[argument],
                    {{}, 0, {layout().micropanels(), elements}, {elements, 1}});
  };
  words = view(plan.rhs.argument, layout().words() * kMicropanel);
  scales = view(*plan.quant->scales, layout().scaleRows() * kMicropanel);
  stagedWords = Staged::make(e, stages, micropanels, ofWords, b.getI32Type());
  stagedScales = Staged::make(e, stages, micropanels, ofScales, b.getF16Type());
}

// Where the columns' micropanels begin, or the columns in all micropanels.
void GpuQuantized::locateMicropanels() {
  if (sumsRows) {
    matrixColumn = columnStart;
    for (unsigned dim : plan.outer)
      if (int64_t stride = plan.dims[dim].rhs)
        matrixColumn = e.add(matrixColumn, e.mul(outerIndices[dim], stride));
    return;
  }
  firstMicropanel = e.div(columnStart, kMicropanel);
  auto micropanelsOf = [&](int64_t stride) {
    return stride / layout().columns / kMicropanel;
  };
  if (matrix)
    firstMicropanel = e.add(firstMicropanel,
                            e.mul(matrix, micropanelsOf(plan.groups->matrix)));
  for (unsigned dim : plan.outer)
    if (int64_t each = micropanelsOf(plan.dims[dim].rhs))
      firstMicropanel = e.add(firstMicropanel, e.mul(outerIndices[dim], each));
  if (columnLimit)
    micropanelLimit = e.div(e.add(columnLimit, kMicropanel - 1), kMicropanel);
}

// `part` elements of each micropanel from `first` on, of its `whole` elements.
Source GpuQuantized::partOf(Value memory, Value first, int64_t part,
                            int64_t whole) {
  Value limit = whole % part ? e.sub(e.index(whole), first) : Value();
  return {memory, {firstMicropanel, first}, 0, 1, micropanelLimit, limit};
}

// Micropanels of a chunk of the matrix's rows; of each, words and scales of the
// block's columns.
void GpuQuantized::stageRows(Value step, Value stage) {
  int64_t each = chunk / kMicropanel;
  int64_t all = plan.quantRows() / kMicropanel;
  Value first = e.mul(step, each);
  Value limit = all % each ? e.sub(e.index(all), first) : Value();
  if (matrix)
    first = e.add(first, e.mul(matrix, all));
  auto copy = [&](Staged &to, Value memory, Value from, int64_t whole) {
    to.copy(e, stage,
            {memory, {first, from}, 0, 1, limit, e.sub(e.index(whole), from)});
  };
  copy(stagedWords, words,
       e.mul(e.div(matrixColumn, layout().perWord()), kMicropanel),
       layout().words() * kMicropanel);
  copy(stagedScales, scales,
       e.mul(e.div(matrixColumn, layout().group),
             layout().scalesAt(1) * kMicropanel),
       layout().scaleRows() * kMicropanel);
}

void GpuQuantized::stageStep(Value step) {
  Value stage = e.rem(step, stages);
  Source rows = chunkOf(lhs, step);
  if (splits > 1 && !plan.groups) { // sums of the other rows are not used
    rows.rows = Value();
    lhs.staged.copyRows(e, stage, 0, plan.rowDim().size, rows);
  } else {
    lhs.staged.copy(e, stage, rows);
  }
  if (sumsRows)
    return stageRows(step, stage);
  stagedWords.copy(e, stage,
                   partOf(words, e.mul(step, ofWords), ofWords,
                          layout().words() * kMicropanel));
  Value group = e.mul(step, chunk / layout().group);
  if (chunk < layout().group)
    group = e.div(step, layout().group / chunk);
  stagedScales.copy(e, stage,
                    partOf(scales,
                           e.mul(group, layout().scalesAt(1) * kMicropanel),
                           ofScales, layout().scaleRows() * kMicropanel));
}

//===--- the loop ---------------------------------------------------------===//

Value GpuQuantized::multiply() {
  auto type = VectorType::get({tileRows, plan.blockColumns}, b.getF32Type());
  Value sums = sumOverSteps(
      e,
      {stages, steps, ownSteps(), /*fillsInLoop=*/true,
       [&](Value step) { stageStep(step); },
       [&](Value stage, Value sum) -> Value {
         return b.create<tile::MmaQuantizedOp>(
             e.loc, type, operand(lhs, stage), stagedWords.load(e, stage),
             stagedScales.load(e, stage), sum, layout().bits, layout().group,
             layout().zeros, layout().floats, sumsRows, splits);
       }},
      type);
  return splits > 1 ? addSplits(sums) : sums;
}

// Sums over all terms, in the first rows of the tile; zeros in rows that the
// product lacks.
Value GpuQuantized::addSplits(Value sums) {
  int64_t columns = plan.blockColumns;
  auto type = cast<VectorType>(sums.getType());
  const std::array<int64_t, 2> along{0, 1};
  Value zero = e.index(0);
  b.create<tile::StoreOp>(e.loc, sums, parts, ValueRange{zero, zero},
                          ValueRange(), along);
  Value total;
  for (int64_t split = 0; split < splits; ++split) {
    Value part = b.create<tile::LoadOp>(
        e.loc, type, parts, ValueRange{e.index(split * plan.blockRows), zero},
        ValueRange{rowLimit, e.index(columns)}, along);
    total = total ? b.create<arith::AddFOp>(e.loc, total, part) : part;
  }
  return total;
}

void GpuQuantized::emit(const TileTarget &target) {
  element = plan.lhs.memory;
  chooseChunks(chooseTerms());
  splits = std::max<int64_t>(chunk / kTermsOfSplit, 1);
  if (splits > 1) {
    kernel.setWarps(ArrayRef<int64_t>{splits, (*kernel.getWarps())[1]});
    tileRows = splits * plan.blockRows;
    parts = b.create<tile::AllocOp>(
        e.loc, MemRefType::get(
                   {tileRows, plan.blockColumns}, b.getF32Type(), AffineMap(),
                   tile::SharedAttr::get(b.getContext(), tile::Layout::rows)));
  }
  int64_t along = sumsRows ? plan.blockColumns : chunk;
  micropanels = (sumsRows ? chunk : plan.blockColumns) / kMicropanel;
  ofWords = along / layout().perWord() * kMicropanel;
  ofScales = std::max<int64_t>(along / layout().group, 1) *
             layout().scalesAt(1) * kMicropanel;
  stages = chooseStages(target);
  locate(kernel.getBlockNumber());
  if (splits > 1 && !rowLimit)
    rowLimit = e.index(plan.blockRows);
  locateMicropanels();
  lhs = makeSide(plan.lhs, epilogue.arguments[plan.lhs.argument], stages, true);
  makeColumns();
  // Loop-invariant values of the epilogue are emitted before the loop.
  Operation *mark = e.index(0).getDefiningOp();
  EmitScope top(epilogue, b);
  top.builder.setInsertionPoint(mark);
  emitTile([&] { return multiply(); }, top);
}

void gpu::emitQuantizedProduct(const ContractionPlan &plan, ClusterOp cluster,
                               tile::KernelOp kernel, ArrayRef<Value> arguments,
                               ArrayRef<Value> results,
                               const TileTarget &target, OpBuilder &builder) {
  GpuQuantized(plan, cluster, kernel, arguments, results, builder).emit(target);
}
