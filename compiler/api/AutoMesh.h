// --mesh auto: chooses the axes before anything is compiled, so that the
// executable records the mesh that it was compiled for.
#pragma once
#include "compiler/Driver.h"
#include "parallelism/planner/MeshChoice.h"
#include "runtime/support/Status.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>
#include <string>

namespace tessera {

/// The devices of a mesh, for choosing its axes.
struct MeshDevices {
  std::string
      cluster; ///< file, as for `tessera plan`; empty: this machine's CPU
  std::string memory; ///< of one device, "24GiB"; empty: what it has
};

/// What --mesh auto, or --world alone, asks; absent if the mesh is named. An
/// error if options contradict each other.
StatusOr<std::optional<planner::MeshQuestion>>
meshQuestion(const CompileRequest &request, const MeshDevices &devices);

/// Takes the costs of --cluster for a mesh whose axes are named. An error if
/// the file describes other devices than the targets.
Status applyCluster(const MeshDevices &devices, CompileRequest &request);

/// Compiles on the mesh of the best candidate whose program fits a device:
/// state and arena as planned by the compiler, and the libraries. Candidates
/// that do not fit are named on stderr with what they need, then the chosen one
/// with the reason and the closest alternatives. Only the chosen one's code is
/// generated. Sets `request`'s mesh, and its rebuildCommand by `rebuild`. An
/// error if none fits names the smallest.
llvm::Expected<CompileSummary> compileOnAutoMesh(
    CompileRequest &request, const planner::MeshQuestion &question,
    llvm::function_ref<std::string(const CompileRequest &)> rebuild);

} // namespace tessera
