// What `tessera inspect` adds about machine code, where nvdisasm is installed.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/artifact/KernelTable.h"

namespace tessera {

/// What a table of kernels says by their machine code.
struct LatencyTable {
  artifact::MoreColumns columns;
  std::string after; ///< what the columns mean, and kernels of generic accesses
};

/// Of the kernels of `program`. An error says how to get nvdisasm, or what else
/// is missing.
StatusOr<LatencyTable> latencyTable(const artifact::DeviceCode &code,
                                    const artifact::Program &program);

/// Prints the SASS of a kernel, by its number, after a summary of its loops.
Status showSass(const artifact::DeviceCode &code,
                const artifact::Program &program, std::uint32_t kernel);

} // namespace tessera
