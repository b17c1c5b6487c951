// Many small launches of one kernel become one with many instances.
#include "dialects/tile/TileOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/fusion/TopologicalOrder.h"
#include "passes/kernels/Passes.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_GROUPLAUNCHES
#include "passes/kernels/Passes.h.inc"
} // namespace tessera

// A launch of a flat kernel. Others have one size, and merging the launches of
// all layers would only delay them until the last layer.
static bool isGroupable(Operation *op) {
  auto launch = dyn_cast<tile::LaunchOp>(op);
  return launch && launch.getNumInstances() == 1 && !launch.getSizes().empty();
}

// Ops that a group may span: not the bulk of a step's work, or tensors of all
// layers would be live at once.
static bool endsStretch(Operation *op) {
  if (op->getNumRegions())
    return true;
  auto launch = dyn_cast<tile::LaunchOp>(op);
  return launch && launch.getSizes().empty();
}

namespace {

using Launches = SmallVector<tile::LaunchOp>;

// The launches of one kernel between two ops that end a stretch, by depth: the
// number of them on a path to each. Those of one depth do not depend on each
// other.
class Stretch {
public:
  explicit Stretch(ArrayRef<Operation *> ops);
  llvm::MapVector<unsigned, Launches> atDepths(StringRef kernel) const;
  SmallVector<StringRef> kernels() const;

private:
  static bool isLaunchOf(Operation *op, StringRef kernel) {
    return isGroupable(op) && cast<tile::LaunchOp>(op).getKernel() == kernel;
  }
  unsigned depthBelow(Operation *op, StringRef kernel,
                      DenseMap<Operation *, unsigned> &known) const;

  ArrayRef<Operation *> ops;
  llvm::DenseSet<Operation *> members;
  DenseMap<Operation *, Operation *> collectiveBefore;
};

} // namespace

Stretch::Stretch(ArrayRef<Operation *> ops)
    : ops(ops), members(ops.begin(), ops.end()) {
  Operation *last = nullptr;
  for (Operation *op : ops)
    if (isCollective(op)) {
      if (last)
        collectiveBefore[op] = last;
      last = op;
    }
}

SmallVector<StringRef> Stretch::kernels() const {
  llvm::SmallSetVector<StringRef, 8> names;
  for (Operation *op : ops)
    if (isGroupable(op))
      names.insert(cast<tile::LaunchOp>(op).getKernel());
  return names.takeVector();
}

// Merged launches may be after their users, so depths follow operands and not
// the order of ops.
unsigned Stretch::depthBelow(Operation *op, StringRef kernel,
                             DenseMap<Operation *, unsigned> &known) const {
  if (auto it = known.find(op); it != known.end())
    return it->second;
  unsigned depth = 0;
  // Collectives keep their order, so each depends on the one before.
  if (Operation *before = collectiveBefore.lookup(op))
    depth = depthBelow(before, kernel, known);
  for (Value operand : op->getOperands())
    if (Operation *producer = operand.getDefiningOp();
        producer && members.contains(producer))
      depth = std::max(depth, depthBelow(producer, kernel, known) +
                                  isLaunchOf(producer, kernel));
  return known[op] = depth;
}

llvm::MapVector<unsigned, Launches> Stretch::atDepths(StringRef kernel) const {
  llvm::MapVector<unsigned, Launches> groups;
  DenseMap<Operation *, unsigned> known;
  for (Operation *op : ops)
    if (isLaunchOf(op, kernel))
      groups[depthBelow(op, kernel, known)].push_back(cast<tile::LaunchOp>(op));
  return groups;
}

// One launch in place of `launches`.
static tile::LaunchOp merge(ArrayRef<tile::LaunchOp> launches,
                            OpPositions &slots) {
  SmallVector<Value> inputs;
  SmallVector<Type> types;
  SmallVector<int64_t> blocks, sizes;
  SmallVector<Location> locations;
  for (tile::LaunchOp launch : launches) {
    llvm::append_range(inputs, launch.getInputs());
    llvm::append_range(types, launch.getOutputs().getTypes());
    llvm::append_range(blocks, launch.getBlocks());
    llvm::append_range(sizes, launch.getSizes());
    locations.push_back(launch.getLoc());
  }
  tile::LaunchOp last = launches.back();
  OpBuilder builder(last);
  auto merged = builder.create<tile::LaunchOp>(
      builder.getFusedLoc(locations), types, last.getKernelAttr(), inputs,
      builder.getDenseI64ArrayAttr(blocks), builder.getDenseI64ArrayAttr(sizes),
      last.getReuseAttr());
  // As soon as the last operand is there.
  slots[merged] = slots.lookup(launches.front());
  unsigned next = 0;
  for (tile::LaunchOp launch : launches) {
    for (Value result : launch.getOutputs())
      result.replaceAllUsesWith(merged.getOutputs()[next++]);
    launch.erase();
  }
  return merged;
}

// Groups one kernel after another: each merge changes the dependences.
static bool groupStretch(SmallVector<Operation *> &ops, OpPositions &slots) {
  bool changed = false;
  for (StringRef kernel : Stretch(ops).kernels())
    for (auto &[depth, launches] : Stretch(ops).atDepths(kernel)) {
      // Instances of one launch must not share a buffer that one writes.
      if (launches.size() < 2)
        continue;
      llvm::DenseSet<Operation *> gone(launches.begin(), launches.end());
      Operation *last = launches.back();
      tile::LaunchOp merged = merge(launches, slots);
      for (Operation *&op : ops)
        if (op == last)
          op = merged;
      llvm::erase_if(ops, [&](Operation *op) { return gone.contains(op); });
      changed = true;
    }
  return changed;
}

static void groupBlock(Block &block) {
  SmallVector<SmallVector<Operation *>> regions(1);
  for (Operation &op : block.without_terminator()) {
    if (endsStretch(&op))
      regions.emplace_back();
    else
      regions.back().push_back(&op);
  }
  OpPositions slots = positionsOf(block);
  bool changed = false;
  for (SmallVector<Operation *> &ops : regions)
    changed |= groupStretch(ops, slots);
  if (changed)
    orderByPosition(block, slots);
}

namespace {

class GroupLaunchesPass
    : public tessera::impl::GroupLaunchesBase<GroupLaunchesPass> {
  void runOnOperation() override {
    getOperation()->walk([](Operation *op) {
      for (Region &region : op->getRegions())
        for (Block &block : region)
          groupBlock(block);
    });
  }
};

} // namespace
