// What `tessera inspect` adds about machine code, where nvdisasm is installed.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/artifact/KernelTable.h"

namespace tessera {

/// Columns with the latency bound of each kernel of `program`. An error says
/// how to get nvdisasm, or what else is missing.
StatusOr<artifact::MoreColumns>
latencyColumns(const artifact::DeviceCode &code,
               const artifact::Program &program);

/// What the columns mean, for after the table.
std::string latencyLegend(const artifact::DeviceCode &code);

/// Prints the SASS of a kernel after a summary of its loops.
Status showSass(const artifact::DeviceCode &code,
                const artifact::Program &program,
                const artifact::Kernel &kernel);

} // namespace tessera
