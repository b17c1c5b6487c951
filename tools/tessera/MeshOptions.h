// --mesh of commands that generate text, alone or to learn from it: the process
// is one of several ranks.
#pragma once
#include "runtime/generate/InferenceRanks.h"

#include <functional>
#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace tessera {

struct Invocation;

struct MeshSettings {
  std::string mesh;      ///< "tensor=2"; empty: one process
  int64_t timeout = 600; ///< in seconds
};

void addMeshOptions(CLI::App &command, MeshSettings &settings);
/// With other descriptions of --mesh and --rank-timeout.
void addMeshOptions(CLI::App &command, MeshSettings &settings,
                    const std::string &mesh, const std::string &timeout);

/// Runs `work` with the ranks of the mesh, or with null if there is none, and
/// reports its error. Of an error on which all ranks agree rank 0 tells.
void runOnRanks(const MeshSettings &settings, Invocation &invocation,
                const std::function<Status(InferenceRanks *)> &work);

} // namespace tessera
