#include "compiler/api/ReplayMeshes.h"
#include "compiler/api/LocalTargets.h"
#include "compiler/api/ProgramMemory.h"
#include "hardware/Quantity.h"
#include "runtime/artifact/ArtifactReader.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <optional>
#include <span>

using namespace tessera;
using namespace tessera::planner;

// Programs that are compiled at most, and lines that are printed.
static constexpr size_t kMostMeshes = 24;
static constexpr size_t kMostOthers = 3;
// The program of `mesh` and its step; nothing if it does not fit.
static StatusOr<std::optional<ReplayedMesh>>
replay(const CompileRequest &request, const MeshQuestion &question,
       const MeshCandidate &mesh, const std::string &file) {
  CompileRequest trial = request;
  trial.mesh = mesh.mesh;
  trial.output = file;
  trial.executable = trial.dumpPasses = trial.embedSources = false;
  trial.dumpDir = trial.to = "";
  trial.mlirOptions.clear();
  // FLOPs and bytes are those of every variant.
  trial.targets = localTargets("cpu");
  ReplayedMesh result{mesh, {}, 0};
  bool fits = true;
  trial.accept = [&](llvm::ArrayRef<RankMemory> all) -> llvm::Error {
    result.needed = double(fullestRank(all).total()) + question.libraryBytes;
    fits = result.needed <= usableMemory(question.cluster.gpu);
    return fits ? llvm::Error::success()
                : llvm::createStringError("does not fit");
  };
  llvm::Expected<CompileSummary> summary = compile(trial);
  if (!summary) {
    const std::string message = llvm::toString(summary.takeError());
    if (!fits)
      return std::optional<ReplayedMesh>();
    return Status::error("{}: {}", meshName(mesh.mesh), message);
  }
  auto reader = ArtifactReader::open(file);
  if (!reader.ok())
    return reader.status();
  auto prediction = report::predictOnHost(reader->root(),
                                          *question.cluster.host, "train_step");
  if (!prediction.ok())
    return Status::error("{}: {}", meshName(mesh.mesh), prediction.message());
  result.prediction = *prediction;
  return std::optional(result);
}

namespace {
/// Compiles meshes one after the other, kMostMeshes of them.
class ReplayWalk {
public:
  ReplayWalk(const CompileRequest &request, const MeshQuestion &question,
             std::string file)
      : request(request), question(question), file(std::move(file)) {}

  StatusOr<std::vector<ReplayedMesh>> run();

private:
  using Meshes = std::vector<MeshCandidate>;

  /// Its seconds; infinite if it does not fit or is refused.
  double visit(const MeshCandidate &mesh);

  const CompileRequest &request;
  const MeshQuestion &question;
  const std::string file; ///< for artifacts
  size_t visited = 0;
  std::vector<ReplayedMesh> replayed;
  Status refused; ///< by the compiler, the first one
};
} // namespace

double ReplayWalk::visit(const MeshCandidate &mesh) {
  ++visited;
  auto result = replay(request, question, mesh, file);
  if (!result.ok() && refused.ok())
    refused = result.status();
  if (!result.ok() || !*result)
    return std::numeric_limits<double>::infinity();
  replayed.push_back(**result);
  return (*result)->prediction.seconds;
}

StatusOr<std::vector<ReplayedMesh>> ReplayWalk::run() {
  StatusOr<std::vector<Meshes>> groups = meshesByAxes(question);
  if (!groups.ok())
    return groups.status();
  std::multimap<double, const Meshes *> order; ///< by simulated seconds
  for (const Meshes &group : *groups)
    if (visited < kMostMeshes)
      order.emplace(visit(group.front()), &group);
  for (const auto &[seconds, group] : order)
    for (const MeshCandidate &mesh : std::span(*group).subspan(1))
      if (visited < kMostMeshes)
        visit(mesh);
  if (replayed.empty() && !refused.ok())
    return refused;
  if (replayed.empty())
    return Status::error("--world {}: of {} meshes that were compiled none "
                         "fits {} a rank; give a smaller batch.micro, or "
                         "--device-memory",
                         request.world, visited,
                         formatBytes(usableMemory(question.cluster.gpu)));
  return std::move(replayed);
}

// The fastest first, before it the simplest of those that the simulation cannot
// tell apart from it.
static void rank(std::vector<ReplayedMesh> &all) {
  auto seconds = [](const ReplayedMesh &each) {
    return each.prediction.seconds;
  };
  std::ranges::sort(all, {}, [&](const ReplayedMesh &each) {
    return std::pair(seconds(each), each.candidate.mesh);
  });
  const double limit = seconds(all.front()) * (1 + SearchResult::indifference);
  auto end = std::ranges::find_if(
      all, [&](const ReplayedMesh &each) { return seconds(each) > limit; });
  auto simplest =
      std::min_element(all.begin(), end, [](const auto &a, const auto &b) {
        return complexity(a.candidate.candidate.plan) <
               complexity(b.candidate.candidate.plan);
      });
  std::rotate(all.begin(), simplest, simplest + 1);
}

StatusOr<std::vector<ReplayedMesh>>
tessera::replayMeshes(const CompileRequest &request,
                      const MeshQuestion &question) {
  llvm::SmallString<64> file;
  if (llvm::sys::fs::createTemporaryFile("tessera", "tsr", file))
    return Status::error("cannot make a temporary file");
  llvm::FileRemover remover(file);
  StatusOr<std::vector<ReplayedMesh>> all =
      ReplayWalk(request, question, file.str().str()).run();
  if (all.ok())
    rank(*all);
  return all;
}

std::string tessera::printReplayed(const MeshQuestion &question,
                                   const std::vector<ReplayedMesh> &meshes) {
  const ReplayedMesh &best = meshes.front();
  std::string text = fmt::format(
      "{}: chosen of {} that were compiled and simulated on {}, {} of {} "
      "a rank; {}",
      meshName(best.candidate.mesh), meshes.size(), question.cluster.name,
      formatBytes(best.needed), formatBytes(usableMemory(question.cluster.gpu)),
      report::printPrediction(best.prediction, *question.cluster.host));
  size_t others = 0;
  for (const ReplayedMesh &each : meshes) {
    if (&each == &best)
      continue;
    if (others++ == kMostOthers)
      break;
    text += fmt::format("  {}: {}, {}\n", each.candidate.mesh,
                        formatSeconds(each.prediction.seconds),
                        formatBytes(each.needed));
  }
  return text;
}
