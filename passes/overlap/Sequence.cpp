#include "passes/overlap/Sequence.h"
#include "dialects/dist/DistOps.h"
#include "mlir/IR/BuiltinAttributes.h"
#include <map>

using namespace mlir;
using namespace tessera;
using namespace tessera::overlap;

FailureOr<SmallVector<unsigned>>
tessera::overlap::sequenceOf(const BlockGraph &graph) {
  std::map<int64_t, unsigned> byStart;
  for (unsigned op : graph.items) {
    auto start = graph.ops[op]->getAttrOfType<IntegerAttr>(dist::kStartAttr);
    if (!start)
      return graph.ops[op]->emitError("has no ")
             << dist::kStartAttr << "; run order-collectives before";
    if (!byStart.try_emplace(start.getInt(), op).second)
      return graph.ops[op]->emitError("has the same ")
             << dist::kStartAttr << ", " << start.getInt()
             << ", as another op of its block; run bucket-collectives before";
  }
  SmallVector<unsigned> sequence;
  for (auto [start, op] : byStart)
    sequence.push_back(op);
  return sequence;
}

SmallVector<unsigned> tessera::overlap::computing(const BlockGraph &graph) {
  SmallVector<unsigned> ops;
  for (unsigned op = 0; op < graph.ops.size(); ++op)
    if (graph.kinds[op] == BlockGraph::Kind::compute)
      ops.push_back(op);
  return ops;
}

LogicalResult tessera::overlap::contradiction(const BlockGraph &graph,
                                              ArrayRef<unsigned> sequence) {
  SmallVector<llvm::BitVector> before = graph.itemsBefore();
  SmallVector<int64_t> numbers(graph.ops.size(), -1);
  for (auto [i, op] : llvm::enumerate(sequence))
    numbers[op] = i;
  for (unsigned op : sequence)
    for (unsigned i : before[op].set_bits())
      if (numbers[graph.items[i]] > numbers[op])
        return graph.ops[op]->emitError("needs the result of a collective that "
                                        "starts after it, by ")
               << dist::kStartAttr;
  return graph.block.getParentOp()->emitError(
             "has collectives that cannot start in the order of ")
         << dist::kStartAttr;
}
