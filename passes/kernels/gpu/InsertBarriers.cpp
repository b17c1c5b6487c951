// The pass: barriers of a GPU's kernels. What one thread wrote, another may
// read only after a barrier. A tile that is loaded and then stored within one
// iteration is the thread's own: skeletons store each element from the thread
// that loaded it, so no barrier is between the two.
#include "dialects/tile/TileOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernels/Passes.h"
#include "passes/kernels/gpu/SharedAccess.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

namespace tessera {
#define GEN_PASS_DEF_INSERTBARRIERS
#include "passes/kernels/Passes.h.inc"
} // namespace tessera

namespace {

/// Walks a kernel in the order of its execution.
class Placement {
public:
  void place(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(block))
      visit(&op);
  }

private:
  void visit(Operation *op);
  void visitLoop(scf::ForOp loop);
  void visitBranch(scf::IfOp branch);
  void insert(OpBuilder builder, Location loc) {
    builder.create<tile::BarrierOp>(loc);
    pass();
  }
  void pass() { now = {}; }
  /// A result may be in the place of an operand, whatever operand that is.
  bool wasReadByAll(Value memory) const {
    return now.readByAll.contains(memory) ||
           (isa<BlockArgument>(memory) &&
            llvm::any_of(now.readByAll, [](Value other) {
              return isa<BlockArgument>(other);
            }));
  }

  /// Since the last barrier.
  struct Accesses {
    DenseSet<Value> written;
    DenseSet<Value> readByAll; ///< single elements

    void add(const Accesses &other) {
      written.insert(other.written.begin(), other.written.end());
      readByAll.insert(other.readByAll.begin(), other.readByAll.end());
    }
  };
  Accesses now;
};

} // namespace

void Placement::visit(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return visitLoop(loop);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return visitBranch(branch);
  if (isBarrier(op))
    return pass();
  if (std::optional<SharedAccess> access = accessOf(op)) {
    Value memory = access->memory;
    if ((!access->writes && now.written.contains(memory)) ||
        (access->writes && access->isElement && wasReadByAll(memory)))
      insert(OpBuilder(op), op->getLoc());
    if (access->writes)
      now.written.insert(memory);
    else if (access->isElement)
      now.readByAll.insert(memory);
  }
  for (Region &region : op->getRegions())
    for (Block &block : region)
      place(block);
}

// A loop that writes and reads one memory does so across its iterations too.
void Placement::visitLoop(scf::ForOp loop) {
  DenseSet<Value> reads, writes;
  loop.getBody()->walk([&](Operation *op) {
    if (std::optional<SharedAccess> access = accessOf(op))
      (access->writes ? writes : reads).insert(access->memory);
  });
  Accesses before = now; // there may be no iterations
  if (llvm::any_of(writes, [&](Value each) { return reads.contains(each); }))
    insert(OpBuilder::atBlockBegin(loop.getBody()), loop.getLoc());
  place(*loop.getBody());
  now.add(before);
}

// A barrier in one branch does not count for threads that take the other.
void Placement::visitBranch(scf::IfOp branch) {
  Accesses before = now, after = now;
  for (Region &region : branch->getRegions()) {
    if (region.empty())
      continue;
    now = before;
    place(region.front());
    after.add(now);
  }
  now = std::move(after);
}

namespace {
class InsertBarriersPass
    : public tessera::impl::InsertBarriersBase<InsertBarriersPass> {
  void runOnOperation() override {
    for (auto kernels : getOperation().getOps<ModuleOp>())
      if (isOfGpu(kernels))
        for (auto kernel : kernels.getOps<tile::KernelOp>())
          Placement().place(kernel.getBody().front());
  }
};
} // namespace
