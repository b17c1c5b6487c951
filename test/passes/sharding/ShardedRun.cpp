#include "test/passes/sharding/ShardedRun.h"
#include "compiler/interpreter/MeshGrid.h"
#include "compiler/interpreter/MeshInterpreter.h"
#include "dialects/dist/CollectiveMatmulAttr.h"
#include "passes/sharding/OpSearch.h"
#include "passes/sharding/Sharding.h"
#include "passes/sharding/WriteShardings.h"

using namespace mlir;
using namespace tessera::interpreter;

namespace tessera::testing {

static bool runPipeline(ModuleOp module,
                        llvm::function_ref<void(OpPassManager &)> build) {
  PassManager pipeline(module->getName());
  build(pipeline);
  return succeeded(pipeline.run(module));
}

bool assignShardings(ModuleOp module, const std::string &mesh, int64_t zero,
                     bool parts, int64_t expertTensor, int64_t expertContext) {
  module.getContext()->loadDialect<dist::DistDialect>();
  AssignShardingsOptions options;
  options.mesh = mesh;
  options.zero = zero;
  options.parts = parts;
  options.expertTensor = expertTensor;
  options.expertContext = expertContext;
  return runPipeline(module, [&](OpPassManager &pipeline) {
    pipeline.addPass(createAssignShardings(options));
  });
}

// Colors of what programs take, in any order: most of them are wherever a
// model has a loop.
static sharding::Strategy drawStrategy(ModuleOp module,
                                       const sharding::Factors &factors,
                                       const sharding::Mesh &mesh,
                                       uint64_t seed) {
  llvm::SetVector<sharding::Color> colors;
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic())
      for (Value argument : function.getArguments())
        for (const auto &atoms : factors.of(argument))
          for (auto atom : atoms)
            if (atom.color != sharding::kNoColor)
              colors.insert(atom.color);
  std::mt19937_64 engine(seed);
  sharding::Strategy strategy;
  for (unsigned axis = 0; axis < mesh.rank(); ++axis) {
    auto some = colors.takeVector();
    colors.insert(some.begin(), some.end());
    std::shuffle(some.begin(), some.end(), engine);
    some.resize(std::min<size_t>(some.size(), engine() % 8));
    strategy.colors.emplace_back(some.begin(), some.end());
    if (engine() % 2)
      strategy.zeroAxes.push_back(axis);
  }
  return strategy;
}

static bool assignAtRandom(ModuleOp module, int64_t data, int64_t tensor,
                           int64_t zero, uint64_t seed, bool opByOp) {
  MLIRContext *context = module->getContext();
  context->loadDialect<dist::DistDialect>();
  sharding::Mesh mesh(StringAttr::get(context, "mesh"),
                      {dist::AxisAttr::get(context, "data", data),
                       dist::AxisAttr::get(context, "tensor", tensor)},
                      hardware::defaultRates());
  sharding::Factors factors(module);
  if (failed(factors.build()))
    return false;
  sharding::Strategy strategy = drawStrategy(module, factors, mesh, seed);
  strategy.zero = static_cast<sharding::ZeroStage>(zero);
  sharding::Congruence classes(module, factors);
  sharding::Shardings shardings(classes, mesh, strategy);
  if (failed(shardings.build(module)))
    return false;
  if (opByOp && tensor > 1) {
    sharding::OpSearch problem(module, classes, mesh, shardings, /*axis=*/1, {},
                               {}, /*mayUndo=*/true);
    std::mt19937_64 engine(seed + 1);
    std::vector<int> choice;
    for (const solver::Node &node : problem.problem().nodes)
      choice.push_back(static_cast<int>(engine() % node.costs.size()));
    strategy.exceptions = problem.exceptions(choice);
    shardings.restart(strategy);
    if (failed(shardings.build(module)))
      return false;
  }
  sharding::writeShardings(module, shardings, mesh);
  return true;
}

bool assignRandomShardings(ModuleOp module, int64_t data, int64_t tensor,
                           int64_t zero, uint64_t seed) {
  return assignAtRandom(module, data, tensor, zero, seed, false);
}

bool assignRandomCuts(ModuleOp module, int64_t data, int64_t tensor,
                      int64_t zero, uint64_t seed) {
  return assignAtRandom(module, data, tensor, zero, seed, true);
}

int64_t decomposeCollectives(ModuleOp module) {
  int64_t marks = 0;
  if (runPipeline(module, [](OpPassManager &pipeline) {
        pipeline.addPass(createCollectiveMatmul({"on", false}));
      }))
    module.walk([&](dist::ReshardOp op) {
      marks += op->hasAttr(dist::kCollectiveMatmulAttr);
    });
  return marks;
}

bool isUsed(ModuleOp module, StringRef axis) {
  bool used = false;
  module.walk([&](Operation *op) {
    AttrTypeWalker walker;
    walker.addWalk([&](dist::ShardingAttr sharding) {
      for (dist::DimShardingAttr dim : sharding.getDims())
        for (dist::AxisRefAttr ref : dim.getAxes())
          used |= ref.getName() == axis;
      return WalkResult::skip();
    });
    walker.walk(op->getAttrDictionary());
  });
  return used;
}

ShardedProgram::ShardedProgram(ModuleOp module, bool padsExchanges) {
  if (!runPipeline(module, [](OpPassManager &pipeline) {
        pipeline.addPass(createVerifyShardings());
      })) {
    ADD_FAILURE() << "verify-shardings";
    return;
  }
  ofDevice.resize(meshOf(module).getDeviceCount());
  for (const std::vector<int64_t> &group : devicesByProgram(module)) {
    local.emplace_back(module.clone());
    if (!runPipeline(*local.back(), [&](OpPassManager &pipeline) {
          buildPartitionPipeline(pipeline, group.front(), padsExchanges);
        })) {
      ADD_FAILURE() << "partition-to-local for device " << group.front();
      return;
    }
    for (int64_t device : group)
      ofDevice[device] = *local.back();
  }
  built = true;
}

// The shape of all shares together: that of a share where nothing is cut.
static ArrayRef<int64_t> globalShape(Attribute attr, Type type) {
  if (auto shape = dyn_cast_if_present<DenseI64ArrayAttr>(attr))
    return shape;
  return cast<RankedTensorType>(type).getShape();
}

Named ShardedProgram::run(StringRef name, const Named &inputs) const {
  MeshGrid grid(meshOf(ofDevice.front()));
  std::vector<Tensors> shares(ofDevice.size());
  for (size_t device = 0; device < ofDevice.size(); ++device) {
    ModuleOp module = ofDevice[device];
    auto function = module.lookupSymbol<func::FuncOp>(name);
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      std::string port = portName(function.getArgAttrDict(i));
      auto sharding =
          function.getArgAttrOfType<dist::ShardingAttr>(i, dist::kShardingAttr);
      if (port == dist::kOffsetsInput)
        shares[device].push_back(offsetsOf(module, device));
      else if (inputs.count(port))
        shares[device].push_back(
            grid.shareOf(inputs.at(port), sharding, device));
      else
        ADD_FAILURE() << "no input for " << port;
    }
  }
  auto results = interpretOnMesh(ofDevice, name, shares);
  if (!results) {
    ADD_FAILURE() << name.str() << ": " << llvm::toString(results.takeError());
    return {};
  }
  Named named;
  ModuleOp first = ofDevice.front();
  auto function = first.lookupSymbol<func::FuncOp>(name);
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    std::string port = portName(function.getResultAttrDict(i));
    std::vector<const Tensor *> parts;
    for (const Tensors &own : *results)
      parts.push_back(&own[i]);
    auto whole =
        grid.join(parts,
                  function.getResultAttrOfType<dist::ShardingAttr>(
                      i, dist::kShardingAttr),
                  globalShape(function.getResultAttr(i, dist::kGlobalShapeAttr),
                              function.getResultTypes()[i]));
    if (whole)
      named[port.empty() ? "#" + std::to_string(i) : port] = std::move(*whole);
    else
      ADD_FAILURE() << name.str() << ", result " << i << " '" << port
                    << "': " << llvm::toString(whole.takeError());
  }
  return named;
}

double distance(const Tensor &a, const Tensor &b) {
  EXPECT_EQ(a.shape, b.shape);
  double largest = 1e-300, worst = 0;
  for (double value : b.data)
    largest = std::max(largest, std::abs(value));
  for (auto [x, y] : llvm::zip(a.data, b.data)) {
    double difference = x == y ? 0 : std::abs(x - y);
    // A not-a-number is as far away as can be.
    worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
  }
  return worst / largest;
}

} // namespace tessera::testing
