#include "passes/kernels/attention/AttentionPlan.h"
#include "passes/kernels/attention/AttentionMatrices.h"
#include "passes/kernels/attention/PagedBlock.h"

using namespace mlir;
using namespace tessera;
using tile::AttentionPlanAttr;
using tile::Engine;

//===--- kernels of CPUs --------------------------------------------------===//

// Tiles of a CPU's kernels. A tile of queries is a row of vectors, and whole
// squares of lanes when it is transposed.
static constexpr int64_t kQueryTiles[] = {64, 32, 16},
                         kKeyTiles[] = {64, 32, 128, 256};

// Of so many queries, the likeliest to be fast first. Few queries, as in
// decode, would mostly multiply padding in a large tile.
static SmallVector<int64_t> queryTilesFor(int64_t queries) {
  SmallVector<int64_t> tiles;
  tiles.push_back(queries <= 16
                      ? llvm::alignTo(queries, 8)
                      : std::min<int64_t>(64, llvm::alignTo(queries, 32)));
  for (int64_t tile : kQueryTiles)
    if (tile != tiles.front())
      tiles.push_back(tile);
  return tiles;
}

SmallVector<AttentionPlanAttr>
tessera::cpuAttentionKernels(const AttentionShape &shape, MLIRContext *mlir) {
  SmallVector<AttentionPlanAttr> kernels;
  for (int64_t queries : queryTilesFor(shape.tokens))
    for (int64_t keys : kKeyTiles)
      kernels.push_back(AttentionPlanAttr::get(mlir, Engine::vector, queries,
                                               keys, /*split=*/0,
                                               /*ping_pong=*/false));
  return kernels;
}

// A tile of keys is a page, in whole register tiles.
llvm::Expected<AttentionPlanAttr>
tessera::chooseCpuPaged(graph::ClusterOp cluster, const PagedOperands &operands,
                        const PagedShape &shape, const TilingContext &context) {
  auto keys = static_cast<int64_t>(llvm::alignTo(shape.page, 8));
  SmallVector<Engine> engines{Engine::vector};
  if (context.hasMatrixTiles() && !shape.f32 && keys == shape.page &&
      AttentionMatrices::fit(shape.headDim, keys,
                             elementOf(cluster, operands.query),
                             elementOf(cluster, operands.keys)))
    engines.insert(engines.begin(), Engine::matrix);
  SmallVector<AttentionPlanAttr> kernels;
  for (Engine engine : engines) {
    SmallVector<int64_t> tiles = queryTilesFor(shape.rows());
    if (engine == Engine::vector && canPutKeysInLanes(shape))
      tiles.insert(tiles.begin(), shape.rows());
    for (int64_t queries : tiles)
      kernels.push_back(AttentionPlanAttr::get(cluster.getContext(), engine,
                                               queries, keys, /*split=*/0,
                                               /*ping_pong=*/false));
  }
  llvm::Expected<AttentionChoice> choice = takeAttention(cluster, kernels);
  if (!choice)
    return choice.takeError();
  return choice->kernel;
}

//===--- plans of clusters ------------------------------------------------===//

static const PlanField<AttentionPlanAttr> kFields[] = {
    {"the engine ", " cannot multiply these operands",
     [](AttentionPlanAttr plan) {
       return stringifyEngine(plan.getEngine()).str();
     }},
    {"a tile of ", " queries",
     [](AttentionPlanAttr plan) { return std::to_string(plan.getQueries()); }},
    {"a tile of ", " keys",
     [](AttentionPlanAttr plan) { return std::to_string(plan.getKeys()); }},
    {"ping_pong = ", " with this tile", [](AttentionPlanAttr plan) {
       return std::string(plan.getPingPong() ? "true" : "false");
     }}};

llvm::Expected<AttentionChoice>
tessera::takeAttention(graph::ClusterOp cluster,
                       ArrayRef<AttentionPlanAttr> kernels, bool splitsKeys) {
  llvm::Expected<AttentionPlanAttr> wanted =
      wantedPlan<AttentionPlanAttr>(cluster);
  if (!wanted)
    return wanted.takeError();
  if (!*wanted || *wanted == kernels.front())
    return AttentionChoice{kernels.front(), false, {}};
  auto found = findKernel<AttentionPlanAttr>(kernels, *wanted, kFields);
  if (!found)
    return found.takeError();
  if (wanted->getSplit() && !splitsKeys)
    return refusePlan("split = " + std::to_string(wanted->getSplit()) +
                      "; only decode on a GPU splits keys, expected none");
  return AttentionChoice{*wanted, true, {}};
}

std::string tessera::planKey(Attribute plan, bool byHand) {
  std::string text;
  llvm::raw_string_ostream(text) << plan << (byHand ? " by hand" : "");
  return text;
}

Type tessera::elementOf(graph::ClusterOp cluster,
                        const AttentionOperand &operand) {
  return graph::tensorType(cluster.getInputs()[operand.argument])
      .getElementType();
}

//===--- the table --------------------------------------------------------===//

// "bf16 memory", "int8 pages".
static std::string operandText(graph::ClusterOp cluster,
                               const AttentionOperand &operand,
                               StringRef place) {
  Type element = elementOf(cluster, operand);
  std::string text;
  llvm::raw_string_ostream out(text);
  if (element.isInteger(8))
    out << "int8";
  else
    out << element;
  out << ' ' << place;
  return text;
}

static ClusterPlan::Launch launchOf(graph::ClusterOp cluster,
                                    AttentionPlanAttr kernel, int64_t blocks) {
  return {cluster.getName().str(),
          stringifyEngine(kernel.getEngine()).str(),
          "",
          "",
          tileText(kernel.getQueries(), kernel.getKeys()),
          blocks};
}

static ClusterPlan tableOf(graph::ClusterOp cluster, const BackwardPlan &plan) {
  std::string lhs = operandText(cluster, plan.operands.query, "memory"),
              rhs = operandText(cluster, plan.operands.key, "memory");
  ClusterPlan result;
  if (plan.kernel) {
    result.attribute = plan.kernel;
    result.launches = {launchOf(cluster, plan.kernel, plan.blocks())};
  } else {
    result.attribute = plan.kernels;
    result.launches = gpuGradLaunches(cluster, plan);
  }
  for (ClusterPlan::Launch &launch : result.launches)
    std::tie(launch.lhs, launch.rhs) = std::tie(lhs, rhs);
  return result;
}

// The splits of the keys have blocks of their own, and a launch combines them.
static ClusterPlan tableOf(graph::ClusterOp cluster, const PagedPlan &plan) {
  ClusterPlan result{plan.kernel,
                     {launchOf(cluster, plan.kernel, plan.blocks())}};
  ClusterPlan::Launch &launch = result.launches.front();
  launch.lhs = operandText(cluster, plan.operands.query, "memory");
  launch.rhs = operandText(cluster, plan.operands.keys, "pages");
  if (plan.splits() > 1) {
    launch.name += "_splits";
    result.launches.push_back({(cluster.getName() + "_combine").str(), "", "",
                               "", "", plan.shape.batch * plan.shape.heads});
  }
  return result;
}

llvm::Expected<ClusterPlan>
tessera::planAnyAttention(graph::ClusterOp cluster,
                          const TilingContext &context) {
  if (cluster.getKind() == graph::ClusterKind::attention_grad) {
    llvm::Expected<BackwardPlan> plan = planAttentionGrad(cluster, context);
    if (!plan)
      return plan.takeError();
    return tableOf(cluster, *plan);
  }
  if (cluster.getKind() == graph::ClusterKind::paged_attention) {
    llvm::Expected<PagedPlan> plan = planPagedAttention(cluster, context);
    if (!plan)
      return plan.takeError();
    return tableOf(cluster, *plan);
  }
  llvm::Expected<ForwardPlan> plan = planAttention(cluster, context);
  if (!plan)
    return plan.takeError();
  AttentionPlanAttr kernel = plan->choice.kernel;
  ClusterPlan result{kernel,
                     {launchOf(cluster, kernel, plan->blocksOf(kernel))}};
  result.launches.front().lhs =
      operandText(cluster, plan->operands.query, "memory");
  result.launches.front().rhs =
      operandText(cluster, plan->operands.key, "memory");
  return result;
}
