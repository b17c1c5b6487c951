// --mesh auto on a calibrated machine: the step times of compiled programs
// decide, not those of the closed form.
#pragma once
#include "compiler/Driver.h"
#include "compiler/report/SharedCores.h"
#include "parallelism/planner/MeshChoice.h"
#include "runtime/support/Status.h"
#include <string>
#include <vector>

namespace tessera {

/// A mesh and what its compiled program takes.
struct ReplayedMesh {
  planner::MeshCandidate candidate;
  report::HostPrediction prediction;
  double needed = 0; ///< bytes of the fullest rank, libraries included
};

/// Compiles meshes and simulates their training steps on the question's host:
/// first the best of each choice of axes by the closed form, then other
/// schedules and ZeRO stages of the axes that were simulated as the fastest.
/// The first is the simplest of those at most 2 % slower than the fastest, the
/// others follow by time. Programs that do not fit are left out. An error if
/// none is left.
StatusOr<std::vector<ReplayedMesh>>
replayMeshes(const CompileRequest &request,
             const planner::MeshQuestion &question);

/// A line for the first mesh, and one for each of the next three.
std::string printReplayed(const planner::MeshQuestion &question,
                          const std::vector<ReplayedMesh> &meshes);

} // namespace tessera
