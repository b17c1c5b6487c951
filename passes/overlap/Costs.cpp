#include "passes/overlap/Costs.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "hardware/Roofline.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::overlap;

double tessera::overlap::computeSeconds(Operation *op) {
  // Further rounds of an exchange are not expected.
  if (op->hasAttr(graph::kCountedAttr))
    return 0;
  if (auto loop = dyn_cast<graph::LoopOp>(op)) {
    double turn = 0;
    for (Operation &inner : loop.getBody().front())
      turn += computeSeconds(&inner);
    return static_cast<double>(loop.getTrip()) * turn;
  }
  auto cluster = dyn_cast<graph::ClusterOp>(op);
  if (!cluster)
    return 0;
  auto costed = cast<graph::Costed>(op);
  return hardware::kDefaultDevice.seconds(
      static_cast<double>(costed.getFlops()),
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

Links Links::of(dist::CollectiveOpInterface collective) {
  Links links;
  auto mesh = SymbolTable::lookupNearestSymbolFrom<dist::MeshOp>(
      collective,
      StringAttr::get(collective->getContext(), collective.getMesh()));
  SmallVector<dist::AxisRefAttr> axes(
      collective.getAxes().getAsRange<dist::AxisRefAttr>());
  links.members = dist::deviceCount(mesh, axes);
  for (dist::AxisRefAttr axis : axes)
    links.tier = std::max(links.tier, mesh.getAxis(axis.getName()).getLink());
  return links;
}

double Links::seconds(dist::CollectiveOpInterface collective,
                      int64_t bytes) const {
  double messages = static_cast<double>(collective.getRounds() *
                                        collective.getMessages(members));
  double piece = static_cast<double>(bytes) /
                 static_cast<double>(collective.getPieces(members));
  return messages * hardware::defaultLink(tier).seconds(piece);
}

int64_t Links::bucketBytes(int64_t total) const {
  // The bytes that links carry in the latency of a ring: a collective of that
  // size is half latency, one of four times the size a fifth. A bucket of more
  // than a few dozen MB would only start late.
  const hardware::Link &link = hardware::defaultLink(tier);
  double carried = static_cast<double>(members) * link.latency * link.bytes;
  int64_t least = std::min<int64_t>(static_cast<int64_t>(carried), 6 << 20);
  return std::clamp<int64_t>(total / 8, least, 4 * least);
}
