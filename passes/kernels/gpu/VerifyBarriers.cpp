// Verifies that barriers order what threads of a block write and read. Loops
// are followed twice, so that an iteration meets what the one before left. Not
// verified: a tile that is loaded and then stored within one iteration, which
// is the thread's own (InsertBarriers.cpp).
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernels/gpu/SharedAccess.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

namespace {

// Each level of loops doubles the time. Skeletons have five at most.
constexpr unsigned kDeepest = 12;

/// Accesses since the last barrier.
struct Accesses {
  DenseSet<Value> written, read, readByAll;
  DenseSet<Value> readBefore; ///< in an earlier iteration

  void clear() { *this = {}; }
  void add(const Accesses &other) {
    written.insert(other.written.begin(), other.written.end());
    read.insert(other.read.begin(), other.read.end());
    readByAll.insert(other.readByAll.begin(), other.readByAll.end());
    readBefore.insert(other.readBefore.begin(), other.readBefore.end());
  }
};

class Verifier {
public:
  LogicalResult verify(Block &block) {
    for (Operation &op : block)
      if (failed(verify(&op)))
        return failure();
    return success();
  }

private:
  LogicalResult verify(Operation *op);
  LogicalResult verifyLoop(scf::ForOp loop);
  LogicalResult verifyBranch(scf::IfOp branch);
  LogicalResult verifyAccess(Operation *op, const SharedAccess &access);

  Accesses now;
  unsigned depth = 0; ///< of loops
};

} // namespace

LogicalResult Verifier::verifyAccess(Operation *op,
                                     const SharedAccess &access) {
  Value memory = access.memory;
  if (!access.writes && now.written.contains(memory))
    return op->emitError("reads memory that other threads may have written "
                         "since the last barrier; insert tile.barrier");
  if (access.writes && (now.readBefore.contains(memory) ||
                        (access.isElement && now.readByAll.contains(memory))))
    return op->emitError("writes memory that other threads may have read since "
                         "the last barrier; insert tile.barrier");
  (access.writes ? now.written : now.read).insert(memory);
  if (!access.writes && access.isElement)
    now.readByAll.insert(memory);
  return success();
}

LogicalResult Verifier::verifyLoop(scf::ForOp loop) {
  if (depth == kDeepest)
    return loop.emitError("is nested in ")
           << depth << " loops, and barriers are verified in at most that many";
  llvm::SaveAndRestore deeper(depth, depth + 1);
  Accesses before = now;
  if (failed(verify(*loop.getBody())))
    return failure();
  now.readBefore.insert(now.read.begin(), now.read.end());
  if (failed(verify(*loop.getBody())))
    return failure();
  now.add(before); // there may be no iterations
  now.readBefore = before.readBefore;
  return success();
}

LogicalResult Verifier::verifyBranch(scf::IfOp branch) {
  Accesses before = now, after = now;
  for (Region &region : branch->getRegions()) {
    if (region.empty())
      continue;
    now = before;
    if (failed(verify(region.front())))
      return failure();
    after.add(now);
  }
  now = std::move(after);
  return success();
}

LogicalResult Verifier::verify(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return verifyLoop(loop);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return verifyBranch(branch);
  if (isBarrier(op))
    now.clear();
  if (std::optional<SharedAccess> access = accessOf(op))
    if (failed(verifyAccess(op, *access)))
      return failure();
  for (Region &region : op->getRegions())
    for (Block &block : region)
      if (failed(verify(block)))
        return failure();
  return success();
}

LogicalResult gpu::verifyBarriers(Block &kernel) {
  return Verifier().verify(kernel);
}
