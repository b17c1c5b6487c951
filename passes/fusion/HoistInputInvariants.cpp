#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/fusion/Fusion.h"
#include "passes/fusion/FusionGraph.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_HOISTINPUTINVARIANTS
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

// A mask of indices takes fewer instructions than loading it.
static bool isMask(Operation *op) {
  return llvm::all_of(op->getResults(), [](Value result) {
    return tensorType(result).getElementType().isInteger(1);
  });
}

namespace {

// Equal ops on equal operands, attributes included.
struct SameTable : llvm::DenseMapInfo<Operation *> {
  static unsigned getHashValue(const Operation *op) {
    return OperationEquivalence::computeHash(
        const_cast<Operation *>(op), OperationEquivalence::directHashValue,
        OperationEquivalence::ignoreHashValue,
        OperationEquivalence::IgnoreLocations);
  }
  static bool isEqual(const Operation *a, const Operation *b) {
    if (a == b || a == getEmptyKey() || a == getTombstoneKey() ||
        b == getEmptyKey() || b == getTombstoneKey())
      return a == b;
    return OperationEquivalence::isEquivalentTo(
        const_cast<Operation *>(a), const_cast<Operation *>(b),
        OperationEquivalence::IgnoreLocations);
  }
};

class HoistInputInvariantsPass
    : public tessera::impl::HoistInputInvariantsBase<HoistInputInvariantsPass> {
  // Frozen state: written once, before the first step.
  bool isPlace(Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner()->getParentOp() != getOperation())
      return false;
    auto name = getOperation().getArgAttrOfType<StringAttr>(
        argument.getArgNumber(), kInputAttr);
    return name && name.getValue() == dist::kOffsetsInput;
  }

  void runOnOperation() override {
    Block &entry = getOperation().getBody().front();
    // Loop-invariant ops that depend on no input but the device's coordinates
    // in the mesh, in program order: operands come first.
    SmallVector<Operation *> tables;
    llvm::DenseSet<Operation *> known;
    getOperation()->walk([&](Operation *op) {
      if (!isa<Fusable>(op) || op->getNumRegions() || isa<RandomOp>(op) ||
          isMask(op))
        return;
      if (llvm::all_of(op->getOperands(), [&](Value operand) {
            return known.contains(operand.getDefiningOp()) || isPlace(operand);
          })) {
        known.insert(op);
        tables.push_back(op);
      }
    });
    llvm::DenseMap<Operation *, Operation *, SameTable> first;
    Operation *last = nullptr;
    for (Operation *op : tables) {
      op->removeAttr(kLayerAttr); // all layers read it
      auto [it, isNew] = first.try_emplace(op, op);
      if (isNew) {
        if (last)
          op->moveAfter(last);
        else
          op->moveBefore(&entry, entry.begin());
        last = op;
        continue;
      }
      op->replaceAllUsesWith(it->second);
      op->erase();
    }
  }
};

} // namespace
