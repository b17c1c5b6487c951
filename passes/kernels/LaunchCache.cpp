#include "passes/kernels/LaunchCache.h"
#include "dialects/graph/GraphQuantOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

LaunchCache::~LaunchCache() {
  for (auto &[cluster, launches] : known)
    cluster->destroy();
}

std::optional<SmallVector<Value>> LaunchCache::repeat(ClusterOp cluster) const {
  auto found = known.find(cluster);
  if (found == known.end())
    return std::nullopt;
  const Launches &launches = found->second;
  SmallVector<Value> values(cluster.getInputs());
  OpBuilder builder(cluster);
  size_t next = 0;
  for (Operation *op : launches.ops) {
    IRMapping map;
    for (Value operand : op->getOperands())
      map.map(operand, values[launches.operands[next++]]);
    Operation *copy = builder.clone(*op, map);
    copy->setLoc(cluster.getLoc());
    copy->removeAttr(kLayerAttr);
    llvm::append_range(values, copy->getResults());
  }
  return llvm::map_to_vector(launches.results,
                             [&](unsigned number) { return values[number]; });
}

std::optional<LaunchCache::Launches>
LaunchCache::describe(ClusterOp cluster, Operation *before,
                      ArrayRef<Value> results) {
  // Products of quantized operands share the launch that packs their input.
  bool isQuantized = llvm::any_of(cluster.getBody().front(), [](Operation &op) {
    return isa<DequantizeOp>(op);
  });
  llvm::DenseMap<Value, unsigned> numbers;
  for (Value input : cluster.getInputs())
    if (!numbers.try_emplace(input, numbers.size()).second)
      return std::nullopt;
  if (isQuantized)
    return std::nullopt;
  Launches launches;
  auto number = [&](Value value, SmallVector<unsigned> &list) {
    auto known = numbers.find(value);
    if (known == numbers.end())
      return false;
    list.push_back(known->second);
    return true;
  };
  Operation *first =
      before ? before->getNextNode() : &cluster->getBlock()->front();
  for (Operation *op = first; op != cluster; op = op->getNextNode()) {
    if (op->getNumRegions() || op->getLoc() != cluster.getLoc())
      return std::nullopt;
    for (Value operand : op->getOperands())
      if (!number(operand, launches.operands))
        return std::nullopt;
    for (Value result : op->getResults())
      numbers.try_emplace(result, numbers.size());
    launches.ops.push_back(op);
  }
  for (Value result : results)
    if (!number(result, launches.results))
      return std::nullopt;
  return launches;
}

void LaunchCache::take(ClusterOp cluster, Operation *before,
                       ArrayRef<Value> results) {
  std::optional<Launches> launches = describe(cluster, before, results);
  if (!launches) {
    cluster.erase();
    return;
  }
  cluster->remove();
  cluster->setOperands({});
  known.try_emplace(cluster, std::move(*launches));
}
