// Proves a plan from its text alone.
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/KernelBlocks.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/planning/Planning.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_VERIFYPLAN
#include "passes/planning/Passes.h.inc"
} // namespace tessera

namespace {

int64_t bytesOf(plan::BufferOp buffer) {
  return plan::byteSize(cast<MemRefType>(buffer.getMemory().getType()));
}

int64_t endOf(plan::BufferOp buffer) {
  return buffer.getOffset() + bytesOf(buffer);
}

plan::BufferOp rootOf(Value memory) {
  while (auto view = memory.getDefiningOp<plan::ViewOp>())
    memory = view.getSource();
  return memory.getDefiningOp<plan::BufferOp>();
}

/// Numbers steps as plan-buffers does and checks each against its buffers'
/// lives.
struct Numbering {
  int64_t next = 0;

  LogicalResult check(Operation &step, int64_t at) {
    for (Value operand : step.getOperands()) {
      plan::BufferOp buffer = rootOf(operand);
      if (!buffer || buffer.getSpace() != plan::Space::arena)
        continue;
      std::optional<ArrayRef<int64_t>> lives = buffer.getLives();
      if (!lives)
        return buffer.emitOpError("in the arena has no `lives`");
      if (at < (*lives)[0] || at > (*lives)[1])
        return step.emitOpError("is step ")
               << at << " but touches a buffer that lives from " << (*lives)[0]
               << " to " << (*lives)[1];
    }
    return success();
  }

  LogicalResult walk(Block &block) {
    for (Operation &op : block) {
      if (isa<plan::BufferOp, plan::ViewOp>(op))
        continue;
      if (failed(check(op, next++)))
        return failure();
      if (auto loop = dyn_cast<plan::LoopOp>(op)) {
        if (failed(walk(loop.getBody().front())))
          return failure();
        ++next;
      }
    }
    return success();
  }
};

LogicalResult verifyArena(plan::ProgramOp program) {
  SmallVector<plan::BufferOp> arena;
  for (auto buffer : program.getOps<plan::BufferOp>()) {
    int64_t limit = buffer.getSpace() == plan::Space::arena ? program.getArena()
                                                            : program.getIo();
    if (buffer.getSpace() != plan::Space::state && endOf(buffer) > limit)
      return buffer.emitOpError("ends at byte ")
             << endOf(buffer) << " of a region of " << limit;
    if (buffer.getSpace() == plan::Space::arena && buffer.getLives())
      arena.push_back(buffer);
  }
  for (auto [i, a] : llvm::enumerate(arena))
    for (plan::BufferOp b : ArrayRef(arena).drop_front(i + 1)) {
      bool bytes = int64_t(a.getOffset()) < endOf(b) &&
                   int64_t(b.getOffset()) < endOf(a);
      bool lives = (*a.getLives())[0] <= (*b.getLives())[1] &&
                   (*b.getLives())[0] <= (*a.getLives())[1];
      if (bytes && lives) {
        InFlightDiagnostic diagnostic = a.emitOpError(
            "shares bytes with a buffer that lives at the same time");
        diagnostic.attachNote(b.getLoc()) << "the other buffer";
        return diagnostic;
      }
    }
  return success();
}

struct VerifyPlan : tessera::impl::VerifyPlanBase<VerifyPlan> {
  using VerifyPlanBase::VerifyPlanBase;

  LogicalResult verifyState(plan::ProgramOp program,
                            const llvm::StringMap<plan::StateOp> &state) {
    for (auto buffer : program.getOps<plan::BufferOp>()) {
      if (buffer.getSpace() != plan::Space::state)
        continue;
      plan::StateOp known = state.lookup(*buffer.getName());
      if (!known || known.getOffset() != buffer.getOffset() ||
          known.getType() != buffer.getMemory().getType())
        return buffer.emitOpError("does not agree with the plan.state \"")
               << *buffer.getName() << "\"";
    }
    return success();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    WalkResult launches = module.walk([&](plan::LaunchOp launch) {
      return WalkResult(tile::verifyBlocks(launch, module, launch.getKernel(),
                                           launch.getBlocks()));
    });
    if (launches.wasInterrupted())
      return signalPassFailure();
    for (auto function : module.getOps<func::FuncOp>()) {
      function.emitOpError("is still on tensors after planning");
      return signalPassFailure();
    }
    llvm::StringMap<plan::StateOp> state;
    for (auto entry : module.getOps<plan::StateOp>())
      state[entry.getName()] = entry;
    for (auto program : module.getOps<plan::ProgramOp>())
      if (failed(verifyState(program, state)) || failed(verifyArena(program)) ||
          failed(Numbering().walk(program.getBody().front())))
        return signalPassFailure();
  }
};

} // namespace
