#include "dialects/dist/Cluster.h"
#include <cmath>

using namespace mlir;
using namespace tessera;
using namespace tessera::dist;

static constexpr double kNanosecond = 1e-9;

// Attributes have whole numbers.
static int64_t whole(double number) {
  return std::llround(std::min(number, 1e18));
}

static int64_t nanoseconds(double seconds) {
  return whole(seconds / kNanosecond);
}

ClusterAttr tessera::dist::toAttr(MLIRContext *context,
                                  const hardware::ClusterRates &rates) {
  SmallVector<LinkAttr> links;
  for (const hardware::Tier &tier : rates.links)
    links.push_back(LinkAttr::get(context, tier.span, whole(tier.link.bytes),
                                  nanoseconds(tier.link.latency)));
  return ClusterAttr::get(context, rates.name, whole(rates.device.flops),
                          whole(rates.device.bytes), nanoseconds(rates.launch),
                          links);
}

hardware::ClusterRates tessera::dist::ratesOf(Operation *op) {
  auto module = dyn_cast<ModuleOp>(op);
  if (!module)
    module = op->getParentOfType<ModuleOp>();
  auto attr =
      module ? module->getAttrOfType<ClusterAttr>(kClusterAttr) : ClusterAttr();
  if (!attr)
    return hardware::defaultRates();
  hardware::ClusterRates rates{attr.getName().str(),
                               {static_cast<double>(attr.getFlops()),
                                static_cast<double>(attr.getMemory())},
                               static_cast<double>(attr.getLaunch()) *
                                   kNanosecond,
                               {}};
  for (LinkAttr link : attr.getLinks())
    rates.links.push_back(
        {{static_cast<double>(link.getBandwidth()),
          static_cast<double>(link.getLatency()) * kNanosecond},
         link.getSpan()});
  return rates;
}

planner::RankGroup tessera::dist::groupOf(MeshOp mesh,
                                          ArrayRef<AxisRefAttr> axes) {
  planner::RankGroup group{deviceCount(mesh, axes), mesh.getDeviceCount()};
  for (AxisRefAttr axis : axes) {
    int64_t stride = 1;
    for (Attribute other : llvm::reverse(mesh.getAxes())) {
      auto each = cast<AxisAttr>(other);
      if (each.getName() == axis.getName()) {
        // A sub-axis is followed by what varies faster.
        if (!axis.isWhole())
          stride *= each.getSize() / (axis.getPre() * axis.getSize());
        break;
      }
      stride *= each.getSize();
    }
    group.stride = std::min(group.stride, stride);
  }
  return group;
}
