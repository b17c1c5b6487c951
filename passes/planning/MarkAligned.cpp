// Tells kernels which of their buffers begin at multiples of 16 bytes.
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/KernelBlocks.h"
#include "passes/planning/Planning.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_MARKALIGNED
#include "passes/planning/Passes.h.inc"
} // namespace tessera

// In every iteration of the loops around. Regions begin at such multiples.
static bool isAligned(Value memory) {
  auto fits = [](int64_t bytes) { return bytes % tile::kAlignedBytes == 0; };
  while (auto view = memory.getDefiningOp<plan::ViewOp>()) {
    if (!fits(view.getOffset()) || !fits(view.getStride().value_or(0)))
      return false;
    memory = view.getSource();
  }
  return fits(memory.getDefiningOp<plan::BufferOp>().getOffset());
}

namespace {

struct MarkAligned : tessera::impl::MarkAlignedBase<MarkAligned> {
  void runOnOperation() override {
    // By kernel: the buffers that every launch so far has aligned.
    llvm::StringMap<llvm::SmallBitVector> aligned;
    getOperation().walk([&](plan::LaunchOp launch) {
      size_t count = launch.getBuffers().size() / launch.getBlocks().size();
      llvm::SmallBitVector &all =
          aligned.try_emplace(launch.getKernel(), count, true).first->second;
      for (auto [i, memory] : llvm::enumerate(launch.getBuffers()))
        if (!isAligned(memory))
          all.reset(i % count);
    });
    getOperation().walk([&](tile::KernelOp kernel) {
      auto found = aligned.find(kernel.getSymName());
      if (found == aligned.end())
        return;
      for (unsigned i : found->second.set_bits())
        kernel.setArgAttr(1 + kernel.getDynamicSizes() + i, tile::kAlignedAttr,
                          UnitAttr::get(&getContext()));
    });
  }
};

} // namespace
