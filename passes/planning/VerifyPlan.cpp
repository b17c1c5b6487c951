// Verifies a plan from its IR alone.
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/KernelBlocks.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/planning/Planning.h"
#include <map>

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

using Kernels = llvm::StringMap<tile::KernelOp>; ///< of any target

bool writesOnly(OpOperand &operand, const Kernels &kernels) {
  Operation *step = operand.getOwner();
  if (isa<plan::FillOp>(step))
    return true;
  if (isa<plan::CopyOp, plan::CollectiveOp>(step))
    return operand.getOperandNumber() == 1;
  auto launch = dyn_cast<plan::LaunchOp>(step);
  tile::KernelOp kernel =
      launch ? kernels.lookup(launch.getKernel()) : tile::KernelOp();
  return kernel && !kernel.getAccess().empty() &&
         kernel.getBufferAccess(operand.getOperandNumber() %
                                kernel.getAccess().size()) ==
             tile::Access::write;
}

/// Numbers steps as plan-buffers does and checks each against its buffers' live
/// ranges.
class Numbering {
public:
  explicit Numbering(const Kernels &kernels) : kernels(kernels) {}

  LogicalResult walk(Block &block) {
    for (Operation &op : block) {
      if (isa<plan::BufferOp, plan::ViewOp>(op))
        continue;
      if (failed(check(op, next++)))
        return failure();
      if (auto loop = dyn_cast<plan::LoopOp>(op)) {
        if (failed(walk(loop.getBody().front())))
          return failure();
        ends[loop] = next++;
      }
    }
    return success();
  }

private:
  struct Access {
    Operation *step = nullptr;
    size_t range = 0;
  };

  // All of the buffer, which no other operand of the step is in.
  bool overwrites(Operation &step, plan::BufferOp buffer) const {
    SmallVector<OpOperand *> inside;
    for (OpOperand &operand : step.getOpOperands())
      if (rootOf(operand.get()) == buffer)
        inside.push_back(&operand);
    return inside.size() == 1 &&
           plan::byteSize(cast<MemRefType>(inside[0]->get().getType())) ==
               bytesOf(buffer) &&
           writesOnly(*inside[0], kernels);
  }

  LogicalResult check(Operation &step, int64_t at) {
    // A wait accesses the buffers of its collective.
    auto wait = dyn_cast<plan::WaitOp>(step);
    for (Value operand :
         wait ? wait.getCollective()->getOperands() : step.getOperands()) {
      plan::BufferOp buffer = rootOf(operand);
      if (!buffer || buffer.getSpace() != plan::Space::arena)
        continue;
      std::optional<ArrayRef<int64_t>> lives = buffer.getLives();
      if (!lives)
        return buffer.emitOpError("in the arena lacks `lives`");
      size_t range = 0;
      while (range + 2 < lives->size() && at > (*lives)[range + 1])
        range += 2;
      if (at < (*lives)[range] || at > (*lives)[range + 1])
        return step.emitOpError("is step ")
               << at << " but accesses a buffer that is live from "
               << (*lives)[range] << " to " << (*lives)[range + 1];
      if (failed(checkRange(step, at, buffer, range)))
        return failure();
    }
    return success();
  }

  // A range after the first begins with a step that overwrites the buffer. The
  // access before is in the same block, or an iteration would find other bytes.
  LogicalResult checkRange(Operation &step, int64_t at, plan::BufferOp buffer,
                           size_t range) {
    Access &before = accesses[buffer];
    if (range > 0 && (!before.step || before.range != range)) {
      if (at != (*buffer.getLives())[range] || !overwrites(step, buffer))
        return step.emitOpError("is step ")
               << at << ", from which a buffer is live again, and does not "
               << "overwrite it";
      Operation *last =
          before.step ? step.getBlock()->findAncestorOpInBlock(*before.step)
                      : nullptr;
      if (!last || (*buffer.getLives())[range - 1] < ends.lookup(last))
        return step.emitOpError("is step ")
               << at << ", from which a buffer is live again whose live range "
               << "before ends inside of a loop";
    }
    before = {&step, range};
    return success();
  }

  const Kernels &kernels;
  int64_t next = 0;
  llvm::DenseMap<Operation *, Access> accesses; ///< the last, by buffer
  llvm::DenseMap<Operation *, int64_t> ends;    ///< of loops
};

/// The bytes [begin, end) of a buffer or of the one that a view shows.
struct Extent {
  plan::Space space;
  int64_t begin = 0, end = 0; ///< equal: of no buffer

  bool meets(const Extent &other) const {
    return space == other.space && begin < other.end && other.begin < end;
  }
};

/// Looked up once: each collective asks about all steps until its wait.
class Extents {
public:
  const Extent &of(Value memory) {
    auto [entry, isNew] = known.try_emplace(memory);
    if (plan::BufferOp root = isNew ? rootOf(memory) : plan::BufferOp())
      entry->second = {root.getSpace(), int64_t(root.getOffset()), endOf(root)};
    return entry->second;
  }

private:
  llvm::DenseMap<Value, Extent> known;
};

/// Between the start of a collective and its wait.
class Underway {
public:
  Underway(plan::CollectiveOp collective, const Kernels &kernels,
           Extents &extents)
      : collective(collective), kernels(kernels), extents(extents),
        from(extents.of(collective.getFrom())),
        to(extents.of(collective.getTo())) {}

  LogicalResult verify() {
    Operation *wait = *collective.getTicket().user_begin();
    for (Operation *op = collective->getNextNode(); op != wait;
         op = op->getNextNode()) {
      WalkResult walk = op->walk([&](Operation *step) {
        for (OpOperand &operand : step->getOpOperands())
          if (interferes(operand)) {
            InFlightDiagnostic diagnostic =
                step->emitOpError("accesses bytes of a collective that was "
                                  "started and not yet waited for");
            diagnostic.attachNote(collective.getLoc()) << "the collective";
            return WalkResult::interrupt();
          }
        return WalkResult::advance();
      });
      if (walk.wasInterrupted())
        return failure();
    }
    return success();
  }

private:
  bool writes(OpOperand &operand) {
    Operation *step = operand.getOwner();
    if (isa<plan::CopyOp, plan::CollectiveOp>(step))
      return operand.getOperandNumber() == 1;
    auto launch = dyn_cast<plan::LaunchOp>(step);
    tile::KernelOp kernel =
        launch ? kernels.lookup(launch.getKernel()) : tile::KernelOp();
    if (!kernel || kernel.getAccess().empty())
      return true;
    return kernel.getBufferAccess(operand.getOperandNumber() %
                                  kernel.getAccess().size()) !=
           tile::Access::read;
  }

  bool interferes(OpOperand &operand) {
    if (!isa<MemRefType>(operand.get().getType()) ||
        isa<plan::ViewOp>(operand.getOwner()))
      return false;
    const Extent &own = extents.of(operand.get());
    return own.meets(to) || (own.meets(from) && writes(operand));
  }

  plan::CollectiveOp collective;
  const Kernels &kernels;
  Extents &extents;
  const Extent from, to;
};

LogicalResult verifyCollectives(ModuleOp module, const Kernels &kernels) {
  auto meshes = module.getOps<dist::MeshOp>();
  Extents extents;
  WalkResult walk = module.walk([&](plan::CollectiveOp collective) {
    for (auto axis : collective.getAxes().getAsRange<StringAttr>())
      if (meshes.empty() || !(*meshes.begin()).getAxis(axis.getValue())) {
        collective.emitOpError("runs over ")
            << axis << ", which is not an axis of the module's mesh";
        return WalkResult::interrupt();
      }
    if (collective.getTicket())
      return WalkResult(Underway(collective, kernels, extents).verify());
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

// The runtime refuses anything else.
LogicalResult verifyAlignment(plan::LaunchOp launch) {
  for (auto [i, buffer] : llvm::enumerate(launch.getBuffers())) {
    uint64_t offset = 0; // in a buffer, which begins at a multiple
    for (auto view = buffer.getDefiningOp<plan::ViewOp>(); view;
         view = view.getSource().getDefiningOp<plan::ViewOp>())
      offset += view.getOffset();
    if (offset % plan::kAlignment)
      return launch.emitOpError("argument ")
             << i << " begins at byte " << offset
             << " of its buffer, which is not a multiple of "
             << plan::kAlignment;
  }
  return success();
}

/// A buffer of the arena: its bytes [begin, end), and a range of its steps,
/// both included.
struct Piece {
  plan::BufferOp buffer;
  int64_t begin, end, first, last;
};

LogicalResult emitSharedError(const Piece &a, const Piece &b) {
  bool ordered = a.buffer->isBeforeInBlock(b.buffer);
  plan::BufferOp one = ordered ? a.buffer : b.buffer,
                 other = ordered ? b.buffer : a.buffer;
  InFlightDiagnostic diagnostic = one.emitOpError(
      "shares bytes with a buffer that is live at the same time");
  diagnostic.attachNote(other.getLoc()) << "the other buffer";
  return diagnostic;
}

LogicalResult verifyArena(plan::ProgramOp program) {
  std::vector<Piece> arena;
  for (auto buffer : program.getOps<plan::BufferOp>()) {
    int64_t limit = buffer.getSpace() == plan::Space::arena ? program.getArena()
                                                            : program.getIo();
    if (buffer.getSpace() != plan::Space::state && endOf(buffer) > limit)
      return buffer.emitOpError("ends at byte ")
             << endOf(buffer) << " of a region of " << limit;
    if (buffer.getSpace() != plan::Space::arena || !buffer.getLives())
      continue;
    ArrayRef<int64_t> lives = *buffer.getLives();
    for (size_t i = 0; i < lives.size(); i += 2)
      arena.push_back({buffer, int64_t(buffer.getOffset()), endOf(buffer),
                       lives[i], lives[i + 1]});
  }
  // Step by step, against the buffers that are live then: these share no bytes,
  // so that one which meets a new one is next to where it begins.
  llvm::sort(arena, [](const Piece &a, const Piece &b) {
    return std::pair(a.first, a.begin) < std::pair(b.first, b.begin);
  });
  // An empty buffer shares bytes if it is within another.
  std::multimap<std::pair<int64_t, int64_t>, const Piece *> living; // by bytes
  std::multimap<int64_t, decltype(living)::iterator> ends; // by last step
  for (const Piece &piece : arena) {
    while (!ends.empty() && ends.begin()->first < piece.first) {
      living.erase(ends.begin()->second);
      ends.erase(ends.begin());
    }
    auto after = living.lower_bound({piece.begin, piece.begin + 1});
    if (after != living.end() && after->second->begin < piece.end)
      return emitSharedError(*after->second, piece);
    if (after != living.begin() && std::prev(after)->second->end > piece.begin)
      return emitSharedError(*std::prev(after)->second, piece);
    ends.emplace(piece.last,
                 living.emplace(std::pair(piece.begin, piece.end), &piece));
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
    tile::KernelModules kernels(module);
    Kernels byName;
    module.walk<WalkOrder::PreOrder>([&](tile::KernelOp kernel) {
      byName.try_emplace(kernel.getSymName(), kernel);
      return WalkResult::skip();
    });
    WalkResult launches = module.walk([&](plan::LaunchOp launch) {
      return WalkResult(
          failure(failed(kernels.verifyBlocks(launch, launch.getKernel(),
                                              launch.getBlocks())) ||
                  failed(verifyAlignment(launch))));
    });
    if (launches.wasInterrupted() || failed(verifyCollectives(module, byName)))
      return signalPassFailure();
    for (auto function : module.getOps<func::FuncOp>()) {
      function.emitOpError("still has tensors after planning");
      return signalPassFailure();
    }
    llvm::StringMap<plan::StateOp> state;
    for (auto entry : module.getOps<plan::StateOp>())
      state[entry.getName()] = entry;
    for (auto program : module.getOps<plan::ProgramOp>())
      if (failed(verifyState(program, state)) || failed(verifyArena(program)) ||
          failed(Numbering(byName).walk(program.getBody().front())))
        return signalPassFailure();
  }
};

} // namespace
