// The pass pipelines, and which devices share a program.
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/sharding/Placement.h"
#include "passes/sharding/Sharding.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

void tessera::buildShardingPipeline(OpPassManager &pipeline,
                                    const MeshRequest &request) {
  AssignShardingsOptions options;
  options.mesh = request.axes;
  options.zero = request.zero;
  options.expertTensor = request.expertTensor;
  options.expertContext = request.expertContext;
  if (request.zero > 0)
    pipeline.addPass(createNarrowEmbeddings());
  options.parts = request.collectiveMatmul == CollectiveMatmulMode::On;
  pipeline.addPass(createAssignShardings(options));
  if (request.collectiveMatmul != CollectiveMatmulMode::Off)
    pipeline.addPass(createCollectiveMatmul(
        {request.collectiveMatmul == CollectiveMatmulMode::On ? "on" : "auto",
         false}));
}

void tessera::buildPartitionPipeline(OpPassManager &pipeline, int64_t device,
                                     bool padsExchanges) {
  PartitionToLocalOptions options;
  options.device = device;
  options.padsExchanges = padsExchanges;
  pipeline.addPass(createPartitionToLocal(options));
  // Removes views between collectives that undo one another.
  pipeline.addPass(createCanonicalizerPass());
  pipeline.addPass(createCSEPass());
}

// Every sharded factor of the module, once.
static llvm::SetVector<dist::FactorAttr> cutFactors(ModuleOp module) {
  llvm::SetVector<dist::FactorAttr> factors;
  auto add = [&](dist::ShardingAttr sharding, Type type) {
    for (auto [dim, size] :
         llvm::zip(sharding.getDims(), cast<RankedTensorType>(type).getShape()))
      for (dist::FactorAttr factor : dim.getFactors())
        if (!factor.getAxes().empty())
          factors.insert(dist::FactorAttr::get(
              module.getContext(), factor.getSize() ? factor.getSize() : size,
              factor.getAxes()));
  };
  module.walk([&](Operation *op) {
    if (auto reshard = dyn_cast<dist::ReshardOp>(op))
      add(reshard.getTo(), reshard.getResult().getType());
    if (auto all = op->getAttrOfType<ArrayAttr>(dist::kShardingsAttr))
      for (auto [attr, result] : llvm::zip(all, op->getResultTypes()))
        add(cast<dist::ShardingAttr>(attr), result);
  });
  for (auto function : module.getOps<func::FuncOp>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (auto attr = function.getArgAttrOfType<dist::ShardingAttr>(
              i, dist::kShardingAttr))
        add(attr, function.getArgumentTypes()[i]);
  return factors;
}

std::vector<std::vector<int64_t>> tessera::devicesByProgram(ModuleOp module) {
  auto meshes = module.getOps<dist::MeshOp>();
  if (meshes.empty())
    return {{0}};
  Mesh mesh(*meshes.begin());
  SmallVector<Factor> factors;
  for (dist::FactorAttr attr : cutFactors(module)) {
    Factor &factor = factors.emplace_back(Factor{attr.getSize(), {}});
    for (dist::AxisRefAttr axis : attr.getAxes())
      factor.axes.push_back(*mesh.find(axis.getName()));
  }
  // Ranks of a pipeline have different programs, whatever their shapes.
  std::optional<unsigned> pipe = mesh.find(dist::kPipeAxis);
  std::vector<std::vector<int64_t>> groups;
  std::map<std::vector<int64_t>, size_t> known;
  for (int64_t device = 0; device < mesh.deviceCount(); ++device) {
    Coordinates at = mesh.coordinatesOf(device);
    std::vector<int64_t> sizes;
    if (pipe)
      sizes.push_back(at[*pipe]);
    for (const Factor &factor : factors)
      sizes.push_back(factor.rangeAt(mesh, at).size);
    auto [group, isNew] = known.try_emplace(sizes, groups.size());
    if (isNew)
      groups.emplace_back();
    groups[group->second].push_back(device);
  }
  return groups;
}
