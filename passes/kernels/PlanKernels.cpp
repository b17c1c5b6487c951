// The pass: which kernel a contraction or an attention takes, written on its
// cluster.
#include "dialects/graph/Origin.h"
#include "dialects/tile/TileOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/folding/Units.h"
#include "passes/fusion/SameCluster.h"
#include "passes/kernels/Passes.h"
#include "passes/kernels/attention/AttentionPlan.h"
#include "passes/kernels/contraction/KernelChoice.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_PLANKERNELS
#include "passes/kernels/Passes.h.inc"
} // namespace tessera

// "bf16 memory", "int4 streamed".
static std::string operandText(Type element, const ContractionQuant *quant,
                               tile::OperandSource source) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (!quant)
    out << element;
  else if (quant->isMicropanels())
    out << "bf16 micropanels";
  else if (quant->layout.floats)
    out << (quant->layout.nf4()     ? "nf4"
            : quant->layout.mxfp4() ? "mxfp4"
                                    : "fp8");
  else if (quant->layout.superBlocks)
    out << 'q' << quant->layout.bits << "_K";
  else
    out << "int" << quant->layout.bits;
  out << ' ' << tile::stringifyOperandSource(source);
  return text;
}

static llvm::Expected<ClusterPlan>
planOfContraction(ClusterOp cluster, const TilingContext &context, bool bytes) {
  llvm::Expected<KernelChoice> choice =
      chooseContraction(cluster, context, bytes);
  if (!choice)
    return choice.takeError();
  const ContractionPlan &plan = choice->plan;
  tile::ContractionPlanAttr attr =
      choicesOf(plan, context, cluster.getContext());
  return ClusterPlan{
      attr,
      {{cluster.getName().str(), stringifyEngine(attr.getEngine()).str(),
        operandText(plan.lhs.memory, nullptr, attr.getLhs()),
        operandText(plan.rhs.memory, plan.quant ? &*plan.quant : nullptr,
                    attr.getRhs()),
        tileText(plan.blockRows, plan.blockColumns), plan.blocks()}}};
}

static llvm::Expected<ClusterPlan>
planCluster(ClusterOp cluster, const TilingContext &context, bool bytes) {
  if (llvm::Error error = refuseStrayPlan(cluster))
    return std::move(error);
  if (!isPlanned(cluster.getKind()))
    return ClusterPlan{};
  bool isContraction = cluster.getKind() == ClusterKind::contraction ||
                       cluster.getKind() == ClusterKind::grouped;
  return isContraction ? planOfContraction(cluster, context, bytes)
                       : planAnyAttention(cluster, context);
}

namespace {
class PlanKernelsPass : public tessera::impl::PlanKernelsBase<PlanKernelsPass> {
  using PlanKernelsBase::PlanKernelsBase;

  LogicalResult initialize(MLIRContext *context) override {
    return lookupTargets(targets,
                         NameLoc::get(StringAttr::get(context, "plan-kernels")),
                         chosen);
  }

  void runOnOperation() override {
    TilingContext context(getOperation(), chosen);
    if (byteRows && context.isGpu()) {
      getOperation().emitError()
          << "byte-rows: no kernel of GPUs multiplies rows as bytes";
      return signalPassFailure();
    }
    plans.clear();
    planned.clear();
    FailureOr<std::optional<folding::Repetition>> folded =
        folding::Repetition::of(getOperation());
    if (failed(folded))
      return signalPassFailure();
    repetition = *folded;
    if (print)
      row({"cluster", "module", "kind", "engine", "lhs", "rhs", "tile",
           "blocks", "layer"});
    bool ok = true;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (print)
        llvm::errs() << '@' << function.getName() << '\n';
      function.walk(
          [&](ClusterOp cluster) { ok &= succeeded(plan(cluster, context)); });
    }
    if (!ok)
      return signalPassFailure();
    for (auto [cluster, plan] : planned)
      cluster->setAttr(tile::TileDialect::kPlanAttr, plan);
    SmallVector<StringRef> names;
    for (const TileTarget &target : chosen)
      names.push_back(target.name);
    getOperation()->setAttr(kTargetsAttr,
                            Builder(&getContext()).getStrArrayAttr(names));
  }

  LogicalResult plan(ClusterOp cluster, const TilingContext &context) {
    auto [known, isNew] = plans.try_emplace(cluster);
    ClusterPlan *plan = &known->second;
    if (isNew) {
      llvm::Expected<ClusterPlan> made =
          planCluster(cluster, context, byteRows);
      if (!made)
        return cluster.emitError()
               << "cluster '" << cluster.getName()
               << "' has no kernel: " << llvm::toString(made.takeError());
      *plan = std::move(*made);
    }
    if (plan->attribute)
      planned.emplace_back(cluster, plan->attribute);
    if (!print)
      return success();
    StringRef kind = stringifyClusterKind(cluster.getKind());
    auto text = [](StringRef cell) { return cell.empty() ? "-" : cell; };
    std::string layers = layersOf(cluster), origin = originOf(cluster.getLoc());
    for (const ClusterPlan::Launch &launch : plan->launches)
      row({launch.name, text(origin), kind, text(launch.engine),
           text(launch.lhs), text(launch.rhs), text(launch.tile),
           std::to_string(launch.blocks), layers});
    if (plan->launches.empty())
      row({cluster.getName(), text(origin), kind, "-", "-", "-", "-", "-",
           layers});
    return success();
  }

  // "3", or "3-30" if that layer represents others.
  std::string layersOf(ClusterOp cluster) const {
    auto layer = cluster->getAttrOfType<LayerAttr>(kLayerAttr);
    if (!layer)
      return "-";
    std::string text = std::to_string(layer.getIndex());
    if (repetition && repetition->isRepeated(layer.getIndex()))
      text += "-" + std::to_string(layer.getIndex() +
                                   (repetition->repeatCount() - 1) *
                                       repetition->period);
    return text;
  }

  static void row(const std::array<StringRef, 9> &cells) {
    llvm::errs() << llvm::formatv(
        "{0,-36} {1,-25} {2,-15} {3,-16} {4,-16} {5,-24} {6,9} {7,7} {8,6}\n",
        cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6],
        cells[7], cells[8]);
  }

  SmallVector<TileTarget> chosen;
  llvm::DenseMap<Operation *, ClusterPlan, SameCluster> plans;
  /// To be written when no more plan is looked up by its cluster's attributes.
  std::vector<std::pair<ClusterOp, Attribute>> planned;
  std::optional<folding::Repetition> repetition; ///< if layers are folded
};
} // namespace
