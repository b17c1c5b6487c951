// --mesh auto: the axes are chosen before anything is compiled, so that an
// executable says by which mesh it was made.
#pragma once
#include "compiler/Driver.h"
#include "runtime/support/Status.h"
#include <string>

namespace tessera {

/// What the devices of a mesh are, for choosing its axes.
struct MeshDevices {
  std::string cluster; ///< file as of `tessera plan`; empty: this machine's CPU
  std::string memory;  ///< of one device, "24GiB"; empty: what it has
};

/// Where a request asks for a choice (--mesh auto, or --world alone), puts the
/// axes in its place and prints them, the reason and what else was near to
/// stderr. Otherwise checks that nothing was said of devices.
Status resolveMesh(CompileRequest &request, const MeshDevices &devices);

} // namespace tessera
