// Tells kernels which of their buffers none of their launches writes.
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/KernelBlocks.h"
#include "passes/kernels/Tiling.h"
#include "passes/planning/Planning.h"
#include "llvm/ADT/SmallBitVector.h"
#include <map>

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

// Removes from `unwritten` what the launch writes. A merged launch has
// thousands of buffers: of those that are written, in the order of memory, the
// last that begins before the end of one which is read has the largest end so
// far.
static void exclude(plan::LaunchOp launch, const llvm::SmallBitVector &written,
                    llvm::SmallBitVector &unwritten) {
  std::map<plan::Space, std::vector<std::pair<int64_t, int64_t>>> targets;
  for (auto [i, memory] : llvm::enumerate(launch.getBuffers()))
    if (written[i % written.size()]) {
      Extent extent = extentOf(memory);
      targets[extent.space].emplace_back(extent.begin, extent.end);
    }
  for (auto &[space, extents] : targets) {
    llvm::sort(extents);
    for (size_t i = 1; i < extents.size(); ++i)
      extents[i].second = std::max(extents[i].second, extents[i - 1].second);
  }
  for (auto [i, memory] : llvm::enumerate(launch.getBuffers())) {
    if (written[i % written.size()])
      continue;
    Extent extent = extentOf(memory);
    const auto &others = targets[extent.space];
    auto after = llvm::lower_bound(others, std::pair(extent.end, INT64_MIN));
    if (after != others.begin() && std::prev(after)->second > extent.begin)
      unwritten.reset(i % written.size());
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
