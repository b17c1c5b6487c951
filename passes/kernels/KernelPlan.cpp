#include "passes/kernels/KernelPlan.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace tessera;
using graph::ClusterKind;

llvm::Error tessera::refusePlan(const llvm::Twine &what) {
  return llvm::createStringError("tile.plan: " + what);
}

std::string tessera::tileText(int64_t rows, int64_t columns) {
  return std::to_string(rows) + "x" + std::to_string(columns);
}

bool tessera::isPlanned(ClusterKind kind) {
  return kind == ClusterKind::contraction || kind == ClusterKind::grouped ||
         kind == ClusterKind::attention ||
         kind == ClusterKind::attention_grad ||
         kind == ClusterKind::paged_attention;
}

llvm::Error tessera::refuseStrayPlan(graph::ClusterOp cluster) {
  if (isPlanned(cluster.getKind()) ||
      !cluster->hasAttr(tile::TileDialect::kPlanAttr))
    return llvm::Error::success();
  return refusePlan("clusters of kind " +
                    stringifyClusterKind(cluster.getKind()) +
                    " have one kernel; remove the attribute");
}

llvm::Error tessera::refusePlanOfOther(graph::ClusterOp cluster,
                                       StringRef mnemonic) {
  std::string text;
  llvm::raw_string_ostream(text)
      << cluster->getAttr(tile::TileDialect::kPlanAttr);
  return refusePlan("expected #tile." + mnemonic + "<…>, got " + text);
}

std::string tessera::expectedText(ArrayRef<std::string> values) {
  llvm::SmallSetVector<StringRef, 8> distinct(values.begin(), values.end());
  std::string text = "; expected ";
  for (auto [i, value] : llvm::enumerate(distinct)) {
    if (i > 0)
      text += i + 1 == distinct.size() ? " or " : ", ";
    text += value;
  }
  return text;
}
