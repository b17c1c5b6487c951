#include "compiler/api/ReplayMeshes.h"
#include "compiler/api/LocalTargets.h"
#include "compiler/api/ProgramMemory.h"
#include "hardware/Quantity.h"
#include "runtime/artifact/ArtifactReader.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include <algorithm>
#include <fmt/format.h>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <span>

using namespace tessera;
using namespace tessera::planner;

// Programs that are compiled at most, how many of them for a choice of axes
// each (the cost model orders them, roughly where ranks share cores), and how
// many at once: a constant, so that all machines compile the same.
static constexpr size_t kMostMeshes = 48;
static constexpr size_t kMostAxes = 32;
static constexpr size_t kTogether = 2;
// How much slower axes may be whose other schedules are compiled.
static constexpr double kSlower = 1.1;
// Lines that are printed.
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
/// Compiles meshes, kTogether at a time and kMostMeshes in all.
class ReplayWalk {
public:
  ReplayWalk(const CompileRequest &request, const MeshQuestion &question,
             std::string file)
      : request(request), question(question), file(std::move(file)) {}

  StatusOr<std::vector<ReplayedMesh>> run();

private:
  using Meshes = std::vector<MeshCandidate>;

  /// The seconds of each; infinite if it does not fit or is refused.
  std::vector<double> visit(std::span<const MeshCandidate *const> meshes);

  const CompileRequest &request;
  const MeshQuestion &question;
  const std::string file; ///< names of artifacts begin with it
  size_t visited = 0;
  std::vector<ReplayedMesh> replayed;
  Status refused; ///< by the compiler, the first one
};
} // namespace

std::vector<double>
ReplayWalk::visit(std::span<const MeshCandidate *const> meshes) {
  std::vector<double> seconds;
  for (; !meshes.empty();
       meshes = meshes.subspan(std::min(meshes.size(), kTogether))) {
    std::vector<std::future<StatusOr<std::optional<ReplayedMesh>>>> running;
    for (const MeshCandidate *mesh :
         meshes.first(std::min(meshes.size(), kTogether)))
      running.push_back(std::async(
          std::launch::async,
          [this, mesh, name = fmt::format("{}.{}", file, running.size())] {
            llvm::FileRemover remover(name);
            return replay(request, question, *mesh, name);
          }));
    for (auto &future : running) {
      StatusOr<std::optional<ReplayedMesh>> result = future.get();
      ++visited;
      if (!result.ok() && refused.ok())
        refused = result.status();
      if (result.ok() && *result)
        replayed.push_back(**result);
      seconds.push_back(result.ok() && *result
                            ? replayed.back().prediction.seconds
                            : std::numeric_limits<double>::infinity());
    }
  }
  return seconds;
}

StatusOr<std::vector<ReplayedMesh>> ReplayWalk::run() {
  StatusOr<std::vector<Meshes>> groups = meshesByAxes(question);
  if (!groups.ok())
    return groups.status();
  groups->resize(std::min(groups->size(), kMostAxes));
  std::vector<const MeshCandidate *> best, others;
  for (const Meshes &group : *groups)
    best.push_back(&group.front());
  std::multimap<double, const Meshes *> order;
  for (auto [seconds, group] : llvm::zip(visit(best), *groups))
    order.emplace(seconds, &group);
  // Of each of the fastest the second, then of each the third, and so on.
  const double limit = kSlower * order.begin()->first;
  for (size_t i = 1, more = 1; more > 0; ++i) {
    more = 0;
    for (const auto &[seconds, group] : order)
      if (seconds <= limit && i < group->size() && ++more &&
          others.size() < kMostMeshes - best.size())
        others.push_back(&(*group)[i]);
  }
  visit(others);
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
