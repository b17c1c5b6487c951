// Tells kernels which of their buffers no launch writes.
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/KernelBlocks.h"
#include "passes/kernels/Tiling.h"
#include "passes/planning/Planning.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_MARKUNWRITTEN
#include "passes/planning/Passes.h.inc"
} // namespace tessera

namespace {

/// The bytes [begin, end) of a buffer, in all iterations of the loops around.
struct Extent {
  plan::Space space;
  int64_t begin, end;

  bool meets(const Extent &other) const {
    return space == other.space && begin < other.end && other.begin < end;
  }
};

struct MarkUnwritten : tessera::impl::MarkUnwrittenBase<MarkUnwritten> {
  void runOnOperation() override;
};

} // namespace

static Extent extentOf(Value memory) {
  int64_t begin = 0;
  int64_t bytes = plan::byteSize(cast<MemRefType>(memory.getType()));
  while (auto view = memory.getDefiningOp<plan::ViewOp>()) {
    begin += view.getOffset();
    if (Value induction = view.getInduction()) {
      auto loop = cast<plan::LoopOp>(induction.getParentBlock()->getParentOp());
      bytes += view.getStride().value_or(0) * (loop.getTrip() - 1);
    }
    memory = view.getSource();
  }
  auto buffer = memory.getDefiningOp<plan::BufferOp>();
  begin += buffer.getOffset();
  return {buffer.getSpace(), begin, begin + bytes};
}

// Of the launch's buffers, instance by instance, those that the kernel writes.
static llvm::SmallBitVector writtenBy(tile::KernelOp kernel) {
  llvm::SmallBitVector written(kernel.getAccess().size());
  for (unsigned i = 0; i < written.size(); ++i)
    written[i] = kernel.getBufferAccess(i) != tile::Access::read;
  return written;
}

// Removes from `unwritten` what the launch writes.
static void exclude(plan::LaunchOp launch, const llvm::SmallBitVector &written,
                    llvm::SmallBitVector &unwritten) {
  SmallVector<Extent> extents;
  for (Value memory : launch.getBuffers())
    extents.push_back(extentOf(memory));
  for (auto [i, target] : llvm::enumerate(extents)) {
    if (!written[i % written.size()])
      continue;
    for (auto [j, extent] : llvm::enumerate(extents))
      if (i != j && extent.meets(target))
        unwritten.reset(j % written.size());
  }
}

static void mark(tile::KernelOp kernel, const llvm::SmallBitVector &buffers) {
  for (unsigned i : buffers.set_bits())
    kernel.setArgAttr(1 + kernel.getDynamicSizes() + i, tile::kUnwrittenAttr,
                      UnitAttr::get(kernel.getContext()));
}

static SmallVector<StringRef> variantsOf(tile::KernelOp kernel) {
  SmallVector<StringRef> names;
  if (auto variants = kernel->getAttrOfType<ArrayAttr>(kKernelVariantsAttr))
    for (auto name : variants.getAsRange<FlatSymbolRefAttr>())
      names.push_back(name.getValue());
  return names;
}

void MarkUnwritten::runOnOperation() {
  // By name; the instances of a kernel for several targets have one access.
  llvm::StringMap<SmallVector<tile::KernelOp>> kernels;
  getOperation().walk([&](tile::KernelOp kernel) {
    kernels[kernel.getSymName()].push_back(kernel);
  });
  llvm::StringMap<llvm::SmallBitVector> unwritten;
  getOperation().walk([&](plan::LaunchOp launch) {
    auto found = kernels.find(launch.getKernel());
    if (found == kernels.end())
      return;
    llvm::SmallBitVector written = writtenBy(found->second.front());
    llvm::SmallBitVector &all =
        unwritten.try_emplace(launch.getKernel(), ~written).first->second;
    exclude(launch, written, all);
  });
  for (auto &[name, buffers] : unwritten)
    for (tile::KernelOp kernel : kernels[name]) {
      mark(kernel, buffers);
      for (StringRef variant : variantsOf(kernel))
        for (tile::KernelOp each : kernels[variant])
          if (each->getParentOp() == kernel->getParentOp())
            mark(each, buffers);
    }
}
