// tessera compile --plan: a plan file as the mesh and recipe keys of a request.
#pragma once
#include "compiler/api/AutoMesh.h"

namespace tessera {

/// Adds what the plan at `path` says to `request`: mesh, keys of the recipe,
/// and the target if none is given. When the program turns out to need other
/// memory than the plan says, request.warning is called. An error if the
/// request contradicts the plan, or its model is another one.
Status applyPlan(const std::string &path, const MeshDevices &devices,
                 CompileRequest &request);

} // namespace tessera
