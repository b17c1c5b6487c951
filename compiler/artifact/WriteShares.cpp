// What an artifact says of tensors and collectives of several ranks.
#include "compiler/artifact/WriteDevice.h"

using namespace mlir;
using namespace tessera;
namespace fb = tessera::artifact;

uint32_t tessera::axisNumber(dist::MeshOp mesh, StringRef name) {
  auto axes = mesh.getAxes().getAsRange<dist::AxisAttr>();
  return std::distance(axes.begin(),
                       llvm::find_if(axes, [&](dist::AxisAttr axis) {
                         return axis.getName() == name;
                       }));
}

std::unique_ptr<fb::CutT> tessera::makeCut(dist::FactorAttr factor,
                                           dist::MeshOp mesh, int64_t size) {
  auto cut = std::make_unique<fb::CutT>();
  cut->size = size;
  for (dist::AxisRefAttr axis : factor.getAxes())
    cut->axes.push_back(axisNumber(mesh, axis.getName()));
  return cut;
}

// One for each dimension; none where the op has no share of anything.
static std::vector<std::unique_ptr<fb::DimCutT>>
makeCuts(Operation *op, dist::ShardingAttr sharding, ArrayRef<int64_t> shape) {
  std::vector<std::unique_ptr<fb::DimCutT>> cuts;
  auto mesh = op->getParentOfType<ModuleOp>().lookupSymbol<dist::MeshOp>(
      sharding.getMesh().getAttr());
  for (auto [dim, size] : llvm::zip(sharding.getDims(), shape)) {
    auto cut = std::make_unique<fb::DimCutT>();
    if (dim.getFactors().empty())
      cut->factors.push_back(makeCut(
          dist::FactorAttr::get(op->getContext(), size, {}), mesh, size));
    for (dist::FactorAttr factor : dim.getFactors())
      cut->factors.push_back(
          makeCut(factor, mesh, factor.getSize() ? factor.getSize() : size));
    cuts.push_back(std::move(cut));
  }
  return cuts;
}

std::unique_ptr<fb::TensorT> tessera::makeTensor(Operation *op, StringRef name,
                                                 MemRefType type, fb::Role role,
                                                 fb::Space space,
                                                 int64_t offset) {
  auto result = std::make_unique<fb::TensorT>();
  auto sharding = op->getAttrOfType<dist::ShardingAttr>("sharding");
  if (sharding && !sharding.getDims().empty())
    result->cuts =
        makeCuts(op, sharding, op->getAttrOfType<DenseI64ArrayAttr>("global"));
  result->name = name.str();
  result->type = *elementType(type.getElementType());
  result->shape.assign(type.getShape().begin(), type.getShape().end());
  result->role = role;
  result->space = space;
  result->offset = offset;
  result->bytes = plan::byteSize(type);
  return result;
}

fb::CollectiveT tessera::makeCollective(plan::CollectiveOp op) {
  auto mesh = *op->getParentOfType<ModuleOp>().getOps<dist::MeshOp>().begin();
  fb::CollectiveT result;
  result.kind = static_cast<fb::CollectiveKind>(op.getKind());
  if (op.getReduction())
    result.reduction = static_cast<fb::Reduction>(*op.getReduction());
  result.type =
      *elementType(cast<MemRefType>(op.getFrom().getType()).getElementType());
  for (auto axis : op.getAxes().getAsRange<StringAttr>())
    result.axes.push_back(axisNumber(mesh, axis.getValue()));
  if (std::optional<ArrayRef<int64_t>> counts = op.getCounts())
    result.counts.assign(counts->begin(), counts->end());
  if (std::optional<ArrayRef<int64_t>> targets = op.getTargets())
    result.targets.assign(targets->begin(), targets->end());
  return result;
}
