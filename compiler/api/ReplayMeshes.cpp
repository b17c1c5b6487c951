#include "compiler/api/ReplayMeshes.h"
#include "compiler/api/LocalTargets.h"
#include "compiler/api/ProgramMemory.h"
#include "hardware/Quantity.h"
#include "runtime/artifact/ArtifactReader.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include <algorithm>
#include <fmt/format.h>
#include <optional>

using namespace tessera;
using namespace tessera::planner;

// Programs that are compiled at most, and lines that are printed.
static constexpr size_t kMostMeshes = 24;
static constexpr size_t kMostOthers = 3;
// Relative differences of simulated steps that mean nothing.
static constexpr double kIndifference = 0.01;

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

StatusOr<std::vector<ReplayedMesh>>
tessera::replayMeshes(const CompileRequest &request,
                      const MeshQuestion &question) {
  StatusOr<std::vector<MeshCandidate>> meshes =
      fastestMeshes(question, kMostMeshes);
  if (!meshes.ok())
    return meshes.status();
  llvm::SmallString<64> file;
  if (llvm::sys::fs::createTemporaryFile("tessera", "tsr", file))
    return Status::error("cannot make a temporary file");
  llvm::FileRemover remover(file);
  std::vector<ReplayedMesh> all;
  Status refused; // by the compiler, the first one
  for (const MeshCandidate &mesh : *meshes) {
    auto replayed = replay(request, question, mesh, file.str().str());
    if (!replayed.ok() && refused.ok())
      refused = replayed.status();
    if (replayed.ok() && *replayed)
      all.push_back(**replayed);
  }
  if (all.empty() && !refused.ok())
    return refused;
  if (all.empty())
    return Status::error("--world {}: of {} meshes that were compiled none "
                         "fits {} a rank; give a smaller batch.micro, or "
                         "--device-memory",
                         request.world, meshes->size(),
                         formatBytes(usableMemory(question.cluster.gpu)));
  auto seconds = [](const ReplayedMesh &each) {
    return each.prediction.seconds;
  };
  std::ranges::sort(all, {}, [&](const ReplayedMesh &each) {
    return std::pair(seconds(each), each.candidate.mesh);
  });
  // Of those that the simulation cannot tell apart, the simplest.
  auto end = std::ranges::find_if(all, [&](const ReplayedMesh &each) {
    return seconds(each) > (1 + kIndifference) * seconds(all.front());
  });
  auto simplest =
      std::min_element(all.begin(), end, [](const auto &a, const auto &b) {
        return complexity(a.candidate.candidate.plan) <
               complexity(b.candidate.candidate.plan);
      });
  std::rotate(all.begin(), simplest, simplest + 1);
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
