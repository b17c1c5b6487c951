// The pass: barriers of a GPU's kernels. What one thread wrote, another may
// read only after a barrier. A tile that is loaded and then stored within one
// iteration is the thread's own: skeletons store each element from the thread
// that loaded it, so no barrier is between the two. Slices of a tile and single
// elements are loaded by several threads and stored by one: where a launch may
// put a result in the place of such an operand, a barrier is between them.
#include "dialects/tile/TileOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernels/Passes.h"
#include "passes/kernels/gpu/SharedAccess.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

namespace tessera {
#define GEN_PASS_DEF_INSERTBARRIERS
#include "passes/kernels/Passes.h.inc"
} // namespace tessera

namespace {

/// Buffers of a kernel that some launch puts in one place: pairs of an operand
/// and a result.
using Reuse = DenseSet<std::pair<Value, Value>>;

/// Walks a kernel in the order of its execution.
class Placement {
public:
  Placement(tile::KernelOp kernel, const Reuse &reuse)
      : hasSlices(kernel.getWarps().has_value()), reuse(reuse) {}
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
  /// Several threads load the same element.
  bool isShared(Operation *op, const SharedAccess &access) const {
    auto load = dyn_cast<tile::LoadOp>(op);
    return access.isElement ||
           (hasSlices && load && load.getType().getRank() == 1);
  }
  bool overwritesOperand(Value memory) const {
    return llvm::any_of(now.readBySeveral, [&](Value operand) {
      return reuse.contains({operand, memory});
    });
  }

  /// Since the last barrier.
  struct Accesses {
    DenseSet<Value> written;
    DenseSet<Value> readByAll;     ///< single elements
    DenseSet<Value> readBySeveral; ///< these and slices

    void add(const Accesses &other) {
      written.insert(other.written.begin(), other.written.end());
      readByAll.insert(other.readByAll.begin(), other.readByAll.end());
      readBySeveral.insert(other.readBySeveral.begin(),
                           other.readBySeveral.end());
    }
  };
  Accesses now;
  bool hasSlices; ///< of tiles of two dimensions
  const Reuse &reuse;
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
        (access->writes && access->isElement &&
         now.readByAll.contains(memory)) ||
        (access->writes && overwritesOperand(memory)))
      insert(OpBuilder(op), op->getLoc());
    if (access->writes)
      now.written.insert(memory);
    else if (access->isElement)
      now.readByAll.insert(memory);
    if (!access->writes && isShared(op, *access))
      now.readBySeveral.insert(memory);
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

// Pairs of buffers that share memory in some launch of the kernel. A read_write
// buffer is an operand and a result.
static Reuse reuseOf(tile::KernelOp kernel, ArrayRef<tile::LaunchOp> launches) {
  SmallVector<Value> operands, results;
  for (auto [i, access] :
       llvm::enumerate(kernel.getAccess().getAsRange<tile::AccessAttr>())) {
    Value buffer = kernel.getBody().getArgument(i + 1);
    if (access.getValue() != tile::Access::write)
      operands.push_back(buffer);
    if (access.getValue() != tile::Access::read)
      results.push_back(buffer);
  }
  Reuse reuse;
  for (Value buffer : operands)
    if (llvm::is_contained(results, buffer))
      reuse.insert({buffer, buffer});
  for (tile::LaunchOp launch : launches) {
    ArrayRef<int64_t> pairs = launch.getReuse().value_or(ArrayRef<int64_t>());
    for (size_t p = 0; p < pairs.size(); p += 2)
      reuse.insert({operands[pairs[p]], results[pairs[p + 1]]});
  }
  return reuse;
}

namespace {
class InsertBarriersPass
    : public tessera::impl::InsertBarriersBase<InsertBarriersPass> {
  void runOnOperation() override {
    llvm::StringMap<SmallVector<tile::LaunchOp>> launches;
    getOperation().walk([&](tile::LaunchOp launch) {
      launches[launch.getKernel()].push_back(launch);
    });
    for (auto kernels : getOperation().getOps<ModuleOp>())
      if (isOfGpu(kernels))
        for (auto kernel : kernels.getOps<tile::KernelOp>()) {
          Reuse reuse = reuseOf(kernel, launches.lookup(kernel.getSymName()));
          Placement(kernel, reuse).place(kernel.getBody().front());
        }
  }
};
} // namespace
