#include "runtime/train/Ranks.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/support/StopSignals.h"

#include <algorithm>
#include <thread>

namespace tessera {
namespace {

class NoFiles final : public FileOperations {
public:
  StatusOr<int> create(const std::string &) override { return -1; }
  Status write(int, std::span<const std::byte>, const std::string &) override {
    return Status::success();
  }
  Status sync(int, const std::string &) override { return Status::success(); }
  Status close(int, const std::string &) override { return Status::success(); }
  Status makeDirectory(const std::string &) override {
    return Status::success();
  }
  Status syncDirectory(const std::string &) override {
    return Status::success();
  }
  Status rename(const std::string &, const std::string &) override {
    return Status::success();
  }
  Status removeTree(const std::string &) override { return Status::success(); }
};

} // namespace

FileOperations &noFiles() {
  static NoFiles files;
  return files;
}

Status checkLaunch(const comm::Launch &launch, const std::string &path) {
  StatusOr<ArtifactReader> artifact = ArtifactReader::open(path);
  if (!artifact.ok())
    return artifact.status();
  const auto ranks = static_cast<int>(artifact::Mesh(artifact->root()).ranks());
  if (launch.size == ranks)
    return Status::success();
  if (launch.size == 1)
    return Status::error("this program is for {} ranks; start it with: mpirun "
                         "-n {} {}",
                         ranks, ranks, path);
  if (ranks == 1)
    return Status::error(
        "this program is for one rank and {} were started; compile it for "
        "them: {} --mesh data={}",
        launch.size, artifact::toView(artifact->root().rebuild_command()),
        launch.size);
  return Status::error("this program is for {} ranks and {} were started; "
                       "start {}, or compile it with another --mesh",
                       ranks, launch.size, ranks);
}

unsigned threadsPerRank(const comm::Launch &launch) {
  const auto ranks = static_cast<unsigned>(std::max(launch.localSize, 1));
  return std::max(std::thread::hardware_concurrency() / ranks, 1U);
}

StatusOr<TrainSummary> runTrainingOnRanks(MeshModel &model,
                                          const comm::Launch &launch,
                                          TrainOptions options) {
  if (launch.rank != 0) {
    options.writesRun = false;
    options.quiet = true;
    options.json = options.dumpMetrics = false;
    options.program.clear();
  }
  // A rank that cannot ask any more stops: what it does next says why.
  auto asked = options.stop ? options.stop : [] { return stopRequested(); };
  options.stop = [&model, asked] {
    StatusOr<bool> any = model.anywhere(asked());
    return !any.ok() || *any;
  };
  return runTraining(model, options,
                     launch.rank == 0 ? systemFiles() : noFiles());
}

} // namespace tessera
