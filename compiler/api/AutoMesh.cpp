#include "compiler/api/AutoMesh.h"
#include "compiler/DeviceKinds.h"
#include "compiler/api/ProgramMemory.h"
#include "compiler/api/ReplayMeshes.h"
#include "hardware/Quantity.h"
#include "models/HfConfig.h"
#include "models/Recipe.h"
#include "parallelism/planner/MeshChoice.h"
#include "passes/sharding/MeshRequest.h"
#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

using namespace tessera;
using namespace tessera::planner;

// Memory of the machine in bytes; all its ranks share it.
static double machineMemory() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<double>(sysconf(_SC_PAGESIZE));
}

static StatusOr<Cluster> readCluster(const std::string &file, int64_t world) {
  StatusOr<Cluster> cluster = loadCluster(file);
  if (!cluster.ok())
    return cluster;
  if (!cluster->host && world > cluster->gpusPerNode &&
      world % cluster->gpusPerNode != 0)
    return Status::error("--cluster {}: {} ranks are not a multiple of the "
                         "devices of a node, which it gives as {}",
                         file, world, cluster->gpusPerNode);
  if (!resize(*cluster, world).ok())
    return Status::error("--cluster {}: describes {} devices without links to "
                         "more, the mesh has {}; add links, or use fewer ranks",
                         file, cluster->gpus(), world);
  for (const LinkTier &tier : cluster->links)
    if (!tier.perGpu)
      return Status::error("{}: {} between nodes may be per GPU or per node; "
                           "give the value per GPU in the file",
                           file, tier.ambiguous);
  return cluster;
}

static StatusOr<bool> compilesForGpus(const CompileRequest &request) {
  auto targets = resolveTargets(request.chosenTargets());
  if (!targets)
    return Status::error("{}", llvm::toString(targets.takeError()));
  return !std::ranges::all_of(kindsOf(*targets), &DeviceKind::isCpu);
}

// `world` devices of the file, which are those of the targets.
static StatusOr<Cluster> givenCluster(const std::string &file, int64_t world,
                                      bool onGpus) {
  StatusOr<Cluster> cluster = readCluster(file, world);
  if (cluster.ok() && onGpus == bool(cluster->host))
    return Status::error("--cluster {} describes {}; {}", file,
                         onGpus ? "CPU cores" : "GPUs",
                         onGpus ? "give one of GPUs for CUDA targets"
                                : "omit it for --target cpu, or give one of "
                                  "tessera doctor --calibrate");
  return cluster;
}

static StatusOr<Cluster> devicesOf(const CompileRequest &request,
                                   const MeshDevices &devices) {
  StatusOr<bool> onGpus = compilesForGpus(request);
  if (!onGpus.ok())
    return onGpus.status();
  if (*onGpus && devices.cluster.empty())
    return Status::error(
        "--mesh auto for CUDA devices requires --cluster FILE, which describes "
        "their memory and links; see hardware/clusters");
  StatusOr<Cluster> cluster =
      devices.cluster.empty()
          ? hostCluster(request.world, machineMemory())
          : givenCluster(devices.cluster, request.world, *onGpus);
  if (!cluster.ok() || devices.memory.empty())
    return cluster;
  StatusOr<double> memory = parseQuantity(devices.memory, Unit::Bytes);
  if (!memory.ok())
    return Status::error("--device-memory: {}", memory.message());
  cluster->gpu.memory = *memory;
  return cluster;
}

static StatusOr<MeshQuestion> questionOf(const CompileRequest &request,
                                         const MeshDevices &devices) {
  MeshQuestion question;
  StatusOr<models::LoadedConfig> config = models::loadHfConfig(request.spec);
  if (!config.ok())
    return config.status();
  if (config->spec.stateSpace)
    return Status::error("--mesh auto does not know the costs of recurrent "
                         "layers; name the axes, such as --mesh data={}",
                         request.world);
  question.model = shapeOf(config->spec);
  StatusOr<models::Recipe> recipe =
      models::loadRecipe(request.recipe, request.set);
  if (!recipe.ok())
    return recipe.status();
  question.recipe = recipe.take();
  TESSERA_RETURN_IF_ERROR(models::checkRecipe(question.recipe, config->spec));
  const recipe::Recipe::Adapter &adapter = question.recipe.adapter;
  const bool takesCodes =
      adapter.kind != recipe::AdapterKind::None &&
      (config->stored ||
       (config->floats && adapter.base == recipe::AdapterBase::Auto));
  if (takesCodes || isQuantized(adapter.base))
    return Status::error("adapter.base: --mesh auto does not know the costs of "
                         "{} weights; name the axes, such as --mesh data={}",
                         takesCodes ? "quantized" : name(adapter.base),
                         request.world);
  StatusOr<Cluster> cluster = devicesOf(request, devices);
  if (!cluster.ok())
    return cluster.status();
  question.cluster = cluster.take();
  if (devices.cluster.empty() || question.cluster.host)
    question.libraryBytes = hostLibraryBytes;
  else if (question.recipe.compute != models::Precision::Bf16)
    return Status::error(
        "--mesh auto --cluster {}: costs of GPUs are known for bf16 only; set "
        "precision.compute=bf16, or name the axes",
        devices.cluster);
  return question;
}

StatusOr<std::optional<MeshQuestion>>
tessera::meshQuestion(const CompileRequest &request,
                      const MeshDevices &devices) {
  bool chooses =
      request.mesh == "auto" || (request.mesh.empty() && request.world > 1);
  if (!chooses) {
    if (!devices.memory.empty())
      return Status::error("--device-memory requires --mesh auto");
    return std::optional<MeshQuestion>();
  }
  if (request.world < 1)
    return Status::error(
        "--mesh auto: requires the number of devices, such as --world 8");
  if (!request.from.empty() || request.infer)
    return Status::error("--mesh auto: is supported only for training from a "
                         "SPEC; name the axes, such as data={}",
                         request.world);
  StatusOr<MeshQuestion> question = questionOf(request, devices);
  if (!question.ok())
    return question.status();
  return std::optional<MeshQuestion>(question.take());
}

Status tessera::applyCluster(const MeshDevices &devices,
                             CompileRequest &request) {
  if (devices.cluster.empty())
    return Status::success();
  if (!request.from.empty())
    return Status::error("--cluster has no effect with --from: edit the "
                         "attribute dist.cluster in {}",
                         request.input);
  if (request.mesh.empty())
    return Status::error("--cluster {}: gives the costs of devices on a mesh; "
                         "add --mesh, or omit it",
                         devices.cluster);
  llvm::Expected<MeshRequest> mesh =
      parseMeshRequest(request.mesh, request.world);
  if (!mesh)
    return Status::error("{}", llvm::toString(mesh.takeError()));
  StatusOr<bool> onGpus = compilesForGpus(request);
  if (!onGpus.ok())
    return onGpus.status();
  StatusOr<Cluster> cluster =
      givenCluster(devices.cluster, mesh->devices, *onGpus);
  if (!cluster.ok())
    return cluster.status();
  request.cluster = ratesOf(*cluster);
  return Status::success();
}

namespace {
/// Compiles candidates until the program of one fits.
class MeshTrial {
public:
  MeshTrial(const MeshQuestion &question, CompileRequest &request)
      : question(question), request(request),
        limit(usableMemory(question.cluster.gpu)) {}

  llvm::Expected<CompileSummary>
  run(llvm::function_ref<std::string(const CompileRequest &)> rebuild) {
    for (;;) {
      StatusOr<MeshChoice> choice = next();
      if (!choice.ok())
        return llvm::createStringError(choice.message());
      request.mesh = choice->chosen.mesh;
      request.rebuildCommand = rebuild(request);
      bool fits = true;
      llvm::Expected<CompileSummary> summary = attempt(*choice, fits);
      if (fits)
        return summary;
      llvm::consumeError(summary.takeError());
      refused.push_back(choice->chosen.mesh);
    }
  }

private:
  /// More candidates are not worth the time; then the smallest is tried.
  static constexpr size_t kMostTried = 16;

  StatusOr<MeshChoice> next() const;
  llvm::Expected<CompileSummary> attempt(const MeshChoice &choice, bool &fits);
  bool accepts(const MeshChoice &choice, const RankMemory &memory);

  /// Whether a compilation that ends early leaves files or output.
  bool leavesTraces() const {
    return !request.dumpDir.empty() || request.dumpPasses ||
           !request.mlirOptions.empty() ||
           !(request.to.empty() || request.to == "planning");
  }

  const MeshQuestion &question;
  CompileRequest &request;
  const double limit;
  std::vector<std::string> refused;
  std::string leastMesh; ///< of the refused ones, and what it needs
  double least = 0;
};
} // namespace

StatusOr<MeshChoice> MeshTrial::next() const {
  StatusOr<MeshChoice> choice = chooseMesh(question, refused);
  if (choice.ok() && refused.size() >= kMostTried)
    choice->chosen = choice->smallest;
  bool isLeft = choice.ok() &&
                !std::ranges::count(refused, choice->chosen.mesh) &&
                refused.size() <= kMostTried;
  if (isLeft || refused.empty())
    return choice;
  return Status::error(
      "--world {}: no mesh fits: of {} whose programs were compiled, {} needs "
      "least, {} of {} a device; give more devices, a smaller batch.micro, or "
      "--device-memory",
      request.world, refused.size(), meshName(leastMesh), formatBytes(least),
      formatBytes(limit));
}

llvm::Expected<CompileSummary> MeshTrial::attempt(const MeshChoice &choice,
                                                  bool &fits) {
  CompileRequest trial = request;
  trial.accept = [&](llvm::ArrayRef<RankMemory> all) -> llvm::Error {
    fits = accepts(choice, fullestRank(all));
    return fits ? llvm::Error::success()
                : llvm::createStringError("does not fit");
  };
  if (!leavesTraces())
    return compile(trial);
  trial.onlyPlan = true;
  trial.dumpPasses = false;
  trial.dumpDir = trial.output = trial.to = "";
  trial.mlirOptions.clear();
  llvm::Expected<CompileSummary> proved = compile(trial);
  return proved ? compile(request) : std::move(proved);
}

bool MeshTrial::accepts(const MeshChoice &choice, const RankMemory &memory) {
  const double needed =
      static_cast<double>(memory.total()) + question.libraryBytes;
  if (needed <= limit) {
    fmt::print(stderr, "tessera: {}", printChoice(question, choice, needed));
    return true;
  }
  const MeshCandidate &chosen = choice.chosen;
  fmt::print(stderr,
             "tessera: {}: planned {}, the program needs {} of {}: does not "
             "fit\n",
             meshName(chosen.mesh),
             formatBytes(chosen.candidate.memory.total()), formatBytes(needed),
             formatBytes(limit));
  if (leastMesh.empty() || needed < least)
    leastMesh = chosen.mesh, least = needed;
  return false;
}

llvm::Expected<CompileSummary> tessera::compileOnAutoMesh(
    CompileRequest &request, const MeshQuestion &question,
    llvm::function_ref<std::string(const CompileRequest &)> rebuild) {
  if (!question.cluster.host)
    return MeshTrial(question, request).run(rebuild);
  StatusOr<std::vector<ReplayedMesh>> meshes = replayMeshes(request, question);
  if (!meshes.ok())
    return llvm::createStringError(meshes.message());
  fmt::print(stderr, "tessera: {}", printReplayed(question, *meshes));
  request.mesh = meshes->front().candidate.mesh;
  request.rebuildCommand = rebuild(request);
  return compile(request);
}
