// What `tessera compile` was asked for as a request of the compiler.
#pragma once
#include "compiler/api/AdapterSettings.h"
#include "compiler/api/AutoMesh.h"
#include <optional>
#include <string>

namespace tessera {

/// What of the command line is not in the request itself.
struct CompileChoice {
  std::string plan; ///< a file of `tessera plan -o`; empty: none
  MeshDevices devices;
  AdapterSettings adapters;
  bool leavesWeights = false; ///< of inference programs: without weights
  /// TESSERA_TARGET of the environment. Targets that are given come first, and
  /// so do those of a plan and of a dump with kernels.
  std::string defaultTargets;
};

/// Completes `request`, and tells the mesh that is still to be chosen, if it
/// is. An error if options are missing or contradict each other.
StatusOr<std::optional<planner::MeshQuestion>>
prepareCompile(CompileRequest &request, const CompileChoice &choice);

/// The command that makes the same artifact, with a placeholder as the output.
std::string rebuildCommand(const CompileRequest &request,
                           const CompileChoice &choice);

} // namespace tessera
