// --mesh auto: chooses the axes before anything is compiled, so that the
// executable records the mesh that it was compiled for.
#pragma once
#include "compiler/Driver.h"
#include "runtime/support/Status.h"
#include <string>

namespace tessera {

/// The devices of a mesh, for choosing its axes.
struct MeshDevices {
  std::string
      cluster; ///< file, as for `tessera plan`; empty: this machine's CPU
  std::string memory; ///< of one device, "24GiB"; empty: what it has
};

/// For --mesh auto, or --world alone, replaces the request's mesh by the chosen
/// axes and prints them, the reason and the closest alternatives to stderr.
/// Otherwise checks that no option describes devices.
Status resolveMesh(CompileRequest &request, const MeshDevices &devices);

} // namespace tessera
