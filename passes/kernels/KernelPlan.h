// What plan-kernels writes on clusters as `tile.plan`, and prints: shared by
// the kinds of clusters that have a choice of kernels.
#pragma once
#include "passes/kernels/Tiling.h"

namespace tessera {

/// The plan of a cluster, and the launches that it makes of it.
struct ClusterPlan {
  /// A row of the table that plan-kernels prints; "" where nothing applies.
  struct Launch {
    std::string name, engine, lhs, rhs, tile;
    int64_t blocks;
  };
  mlir::Attribute attribute;
  llvm::SmallVector<Launch> launches;
};

/// "tile.plan: …".
llvm::Error refusePlan(const llvm::Twine &what);
/// "64x128".
std::string tileText(int64_t rows, int64_t columns);
/// Whether clusters of this kind have a choice of kernels, and so a tile.plan.
bool isPlanned(graph::ClusterKind kind);
/// An error if a cluster of another kind has one.
llvm::Error refuseStrayPlan(graph::ClusterOp cluster);
/// An error that names what the cluster's tile.plan is, instead of `mnemonic`.
llvm::Error refusePlanOfOther(graph::ClusterOp cluster,
                              llvm::StringRef mnemonic);

/// The cluster's tile.plan; null if it has none.
template <typename Plan>
llvm::Expected<Plan> wantedPlan(graph::ClusterOp cluster) {
  mlir::Attribute attribute = cluster->getAttr(tile::TileDialect::kPlanAttr);
  if (attribute && !mlir::isa<Plan>(attribute))
    return refusePlanOfOther(cluster, Plan::getMnemonic());
  return mlir::cast_or_null<Plan>(attribute);
}

/// One number or word of a plan, and how an error describes it: "a tile of ",
/// its value, " queries".
template <typename Plan> struct PlanField {
  llvm::StringRef before, after;
  std::string (*value)(Plan);
};

/// "…; expected 16, 32 or 64", of distinct values in their order.
std::string expectedText(llvm::ArrayRef<std::string> values);

/// `wanted` if it is one of `kernels`, else an error about the first field that
/// excludes all of them.
template <typename Plan>
llvm::Expected<Plan> findKernel(llvm::ArrayRef<Plan> kernels, Plan wanted,
                                llvm::ArrayRef<PlanField<Plan>> fields) {
  llvm::SmallVector<Plan> left(kernels);
  for (const PlanField<Plan> &field : fields) {
    llvm::SmallVector<std::string> values;
    for (Plan kernel : left)
      values.push_back(field.value(kernel));
    std::string value = field.value(wanted);
    llvm::erase_if(left, [&](Plan k) { return field.value(k) != value; });
    if (left.empty())
      return refusePlan(field.before + value + field.after +
                        expectedText(values));
  }
  return left.front();
}

} // namespace tessera
