// Packs many rows for products in matrix registers with weights in micropanels,
// of bf16 or quantized.
//
// A chunk of a row's terms is one run, and consecutive rows have a line between
// them, so that neither the rows of a register nor a chunk's map to few sets of
// a cache. A separate launch copies them, once for all products that read the
// same rows. Without matrix registers it does nothing, and products read the
// rows themselves.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/contraction/Contraction.h"

using namespace mlir;
using namespace tessera;

// Terms of a chunk: a panel of 32 columns stays in L1 while rows are streamed.
// A little more is one chunk.
static constexpr int64_t kDepth = 512, kMostDepth = 640;
// Rows that a block of the launch copies. Fewer than these are multiplied by
// weights that are streamed from memory, and copying them again costs little.
static constexpr int64_t kRowsAtOnce = 64, kLeastRows = 64;
static constexpr int64_t kTerms = PackedRows::kTerms;
// Elements of a line.
static constexpr int64_t kLine = 32;
// Elements that are copied at once.
static constexpr int64_t kRun = 128;

std::optional<PackedRows> tessera::packedRows(const ContractionPlan &plan) {
  bool hasOuterRows = llvm::any_of(
      plan.outer, [&](unsigned dim) { return plan.dims[dim].lhs != 0; });
  if (!plan.quant || plan.quant->streams || !plan.fitsMatrices() ||
      hasOuterRows || plan.sum.lhs != 1 || plan.sum.size % kTerms ||
      plan.rowDim().size < kLeastRows)
    return std::nullopt;
  int64_t terms = plan.sum.size;
  int64_t depth =
      terms <= kMostDepth
          ? terms
          : llvm::alignTo(partsOf(terms, partsOf(terms, kDepth)), kTerms);
  return PackedRows{plan.rowDim().size, terms, depth, plan.groups.has_value()};
}

View PackedRows::view() const {
  int64_t padded = llvm::alignTo(rows, kTile) + (ofGroups ? kTile : 0),
          pitch = depth + kLine;
  return {{}, 0, {chunks(), padded, pitch}, {padded * pitch, pitch, 1}};
}

namespace {
/// Copies of runs of a row.
class PackedRowsEmitter : KernelOps {
public:
  PackedRowsEmitter(const ContractionPlan &plan, tile::KernelOp kernel,
                    OpBuilder &b)
      : KernelOps(b, kernel.getLoc()), rows(*plan.packed), kernel(kernel) {
    from = emitView(b, loc, kernel.getBuffers()[0],
                    {{},
                     plan.lhs.offset,
                     {rows.rows, rows.terms},
                     {plan.row ? plan.rowDim().lhs : 1, 1}});
    to = emitView(b, loc, kernel.getBuffers()[1], rows.view());
  }

  // Blocks: rows fastest, then chunks.
  void emit() {
    int64_t rowBlocks = partsOf(rows.rows, kRowsAtOnce);
    Value block = kernel.getBlockNumber();
    Value chunk = div(block, rowBlocks);
    Value first = mul(rem(block, rowBlocks), kRowsAtOnce);
    Value end = b.create<arith::MinUIOp>(loc, add(first, index(kRowsAtOnce)),
                                         index(rows.rows));
    forRange(first, end, 1, [&](Value row) { emitRow(row, chunk); });
  }

private:
  // The last chunk may have fewer runs, and at its end half a run.
  void emitRow(Value row, Value chunk) {
    Value start = mul(chunk, rows.depth);
    Value left = b.create<arith::SubIOp>(loc, index(rows.terms), start);
    Value terms = b.create<arith::MinUIOp>(loc, left, index(rows.depth));
    Value runs = b.create<arith::DivUIOp>(loc, terms, index(kRun));
    auto copy = [&](Value k, int64_t count) {
      auto type = VectorType::get({count}, b.getBF16Type());
      Value run = b.create<tile::LoadOp>(loc, type, from,
                                         ValueRange{row, add(start, k)},
                                         ValueRange(), ArrayRef<int64_t>{1});
      b.create<tile::StoreOp>(loc, run, to, ValueRange{chunk, row, k},
                              ValueRange(), ArrayRef<int64_t>{2});
    };
    if (rows.depth >= kRun)
      forRange(index(0), runs, 1,
               [&](Value run) { copy(mul(run, kRun), kRun); });
    if (rows.depth % kRun || rows.terms % rows.depth % kRun)
      forRange(mul(runs, kRun / kTerms),
               b.create<arith::DivUIOp>(loc, terms, index(kTerms)), 1,
               [&](Value part) { copy(mul(part, kTerms), kTerms); });
  }

  const PackedRows &rows;
  tile::KernelOp kernel;
  Value from, to; ///< [rows, terms]; [chunks, rows, depth]
};
} // namespace

llvm::Expected<Value> tessera::launchPackedRows(const ContractionPlan &plan,
                                                graph::ClusterOp cluster,
                                                TilingContext &context) {
  const PackedRows &rows = *plan.packed;
  Value input = cluster.getInputs()[plan.lhs.argument];
  auto type = RankedTensorType::get(rows.view().shape, plan.lhs.memory);
  LaunchSpec spec;
  spec.name = "packed_rows";
  spec.skeleton = tile::Skeleton::row;
  spec.summary = "rows packed in chunks for matrix registers";
  spec.buffers = {bufferType(input.getType()), bufferType(type)};
  spec.access = {tile::Access::read, tile::Access::write};
  spec.blocks = rows.chunks() * partsOf(rows.rows, kRowsAtOnce);
  llvm::raw_string_ostream(spec.key)
      << plan.lhs.offset << ' ' << plan.rowDim().lhs << ' ' << rows.rows << ' '
      << rows.terms << ' ' << rows.depth << ' ' << rows.ofGroups;
  spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                   OpBuilder &b) -> llvm::Error {
    if (target.matrixTiles)
      PackedRowsEmitter(plan, kernel, b).emit();
    return llvm::Error::success();
  };
  return launchOnce(context, cluster, spec, input, type);
}
