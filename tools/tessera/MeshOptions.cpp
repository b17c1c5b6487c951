#include "tools/tessera/MeshOptions.h"
#include "passes/sharding/MeshRequest.h"
#include "tools/tessera/Commands.h"
#include <CLI/CLI.hpp>
#include <fmt/format.h>

using namespace tessera;

void tessera::addMeshOptions(CLI::App &command, MeshSettings &settings) {
  addMeshOptions(
      command, settings,
      "shard a model directory over CPU ranks that mpirun or torchrun's "
      "variables started: tensor=2, expert=2 or both",
      "with --mesh: seconds that a rank may take to join, to read the "
      "tokenizer, or for one call, before all are ended; compiling and reading "
      "weights may take longer");
}

void tessera::addMeshOptions(CLI::App &command, MeshSettings &settings,
                             const std::string &mesh,
                             const std::string &timeout) {
  CLI::Option *option = command.add_option("--mesh", settings.mesh, mesh)
                            ->type_name("AXIS=SIZE,...");
  command.add_option("--rank-timeout", settings.timeout, timeout)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->needs(option);
}

// As many ranks as the mesh has.
static StatusOr<comm::Launch> readRanks(const std::string &mesh) {
  auto request = parseMeshRequest(mesh, 0);
  if (!request)
    return Status::error("{}", llvm::toString(request.takeError()));
  StatusOr<comm::Launch> launch = comm::readLaunch();
  if (!launch.ok())
    return launch.status();
  if (launch->size != request->devices)
    return Status::error("--mesh {} is for {} ranks and {} {} started; start "
                         "as many, such as with mpirun -n {} tessera ...",
                         mesh, request->devices, launch->size,
                         launch->size == 1 ? "was" : "were", request->devices);
  return launch;
}

void tessera::runOnRanks(const MeshSettings &settings, Invocation &invocation,
                         const std::function<Status(InferenceRanks *)> &work) {
  auto fail = [&](const Status &status) {
    if (!status.ok())
      invocation.fail(status.message().c_str());
  };
  if (settings.mesh.empty())
    return fail(work(nullptr));
  StatusOr<comm::Launch> launch = readRanks(settings.mesh);
  if (!launch.ok())
    return fail(launch.status());
  auto joined =
      InferenceRanks::join(*launch, std::chrono::seconds(settings.timeout));
  if (!joined.ok())
    return fail(joined.status());
  InferenceRanks &ranks = **joined;
  Status status = work(&ranks);
  const bool isReported = ranks.hasAgreedError() && !ranks.leads();
  if (isReported)
    invocation.exitCode = 1;
  else
    fail(status);
  if (ranks.mayLeave(status))
    if (Status left = ranks.leave(); status.ok())
      fail(left);
}
