#include "passes/overlap/Costs.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::overlap;

Costs::Costs(Operation *inModule) : Costs(dist::ratesOf(inModule)) {}

double Costs::ofComputing(Operation *op) const {
  // Further rounds of an exchange are not expected.
  if (graph::isCountedLoop(op))
    return 0;
  if (auto loop = dyn_cast<graph::LoopOp>(op)) {
    double iteration = 0;
    for (Operation &inner : loop.getBody().front())
      iteration += ofComputing(&inner);
    return static_cast<double>(loop.getTrip()) * iteration;
  }
  auto cluster = dyn_cast<graph::ClusterOp>(op);
  if (!cluster)
    return 0;
  auto costed = cast<graph::Costed>(op);
  return device.seconds(static_cast<double>(costed.getFlops()),
                        static_cast<double>(costed.getBytes()));
}

static RankedTensorType typeOf(Value value) {
  if (auto pending = dyn_cast<dist::PendingType>(value.getType()))
    return pending.getTensor();
  return cast<RankedTensorType>(value.getType());
}

int64_t tessera::overlap::bytesOf(Value tensor) {
  RankedTensorType type = typeOf(tensor);
  return type.getNumElements() *
         llvm::divideCeil(type.getElementTypeBitWidth(), 8);
}

int64_t tessera::overlap::bytesOf(Operation *collective) {
  int64_t input = bytesOf(collective->getOperand(0)),
          result = bytesOf(Value(collective->getResult(0)));
  // The other buffer has room for the rows of all devices.
  return isa<dist::ExchangeRowsOp>(collective) ? std::min(input, result)
                                               : std::max(input, result);
}

static planner::RankGroup groupOf(dist::CollectiveOpInterface collective) {
  auto mesh = SymbolTable::lookupNearestSymbolFrom<dist::MeshOp>(
      collective,
      StringAttr::get(collective->getContext(), collective.getMesh()));
  return dist::groupOf(
      mesh,
      llvm::to_vector(collective.getAxes().getAsRange<dist::AxisRefAttr>()));
}

int64_t tessera::overlap::membersOf(dist::CollectiveOpInterface collective) {
  return groupOf(collective).size;
}

double Costs::ofCollective(dist::CollectiveOpInterface collective) const {
  const planner::RankGroup group = groupOf(collective);
  const auto bytes = static_cast<double>(bytesOf(collective));
  return llvm::TypeSwitch<Operation *, double>(collective)
      .Case<dist::PermuteOp>([&](Operation *) {
        return collectives.slowest(group).seconds(bytes);
      })
      .Case<dist::AllReduceOp>([&](Operation *) {
        return collectives.seconds(planner::Collective::AllReduce, bytes,
                                   group);
      })
      .Case<dist::AllToAllOp, dist::ExchangeRowsOp>([&](Operation *) {
        return collectives.seconds(planner::Collective::AllToAll, bytes, group);
      })
      .Default([&](Operation *) { // gathers and reduce-scatters
        return collectives.seconds(planner::Collective::AllGather, bytes,
                                   group);
      });
}

int64_t Costs::bucketBytes(dist::CollectiveOpInterface collective,
                           int64_t total) const {
  // The bytes that links carry in the latency of a ring: a collective of that
  // size is half latency, one of four times the size a fifth. A bucket of more
  // than a few dozen MB would only start late.
  const planner::RankGroup group = groupOf(collective);
  const hardware::Link link = collectives.slowest(group);
  double carried = static_cast<double>(group.size) * link.latency * link.bytes;
  int64_t least = std::min<int64_t>(static_cast<int64_t>(carried), 6 << 20);
  return std::clamp<int64_t>(total / 8, least, 4 * least);
}
