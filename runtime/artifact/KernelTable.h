// The kernels of an artifact, for display: launch parameters, the GPU
// compiler's statistics, and roofline bounds.
#pragma once
#include "hardware/Gpus.h"
#include "runtime/artifact/Artifact_generated.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::artifact {

/// The GPU whose data sheet bounds the kernels of `code`: the one of its target
/// (hardware::chipOfTarget). Null for CPUs.
const hardware::Chip *boundingChip(const DeviceCode &code);

/// Which of a GPU's peaks bounds a kernel. Without tensor cores: fp32.
enum class Arithmetic : std::uint8_t { fp32, tf32, bf16 };
Arithmetic arithmeticOf(const Kernel &kernel);
double peakOf(const hardware::Peaks &peaks, const Kernel &kernel);

/// One kernel of a program.
struct KernelRow {
  const Kernel *kernel;
  std::uint32_t number = 0;   ///< of the kernel in the device's code
  std::uint64_t launches = 0; ///< in one run of the program, loops unrolled
  double flops = 0;           ///< of one launch, instances together; 0: unknown
  double bytes = 0;           ///< of one launch, on average; 0: unknown
  /// max(bytes / bandwidth, flops / peak) of boundingChip; 0: unknown.
  double boundMicroseconds = 0;
};

/// The kernels of a program of `code`, in order of first launch.
std::vector<KernelRow> kernelRows(const DeviceCode &code,
                                  const Program &program);

/// Columns of a table that this library does not know how to fill.
struct MoreColumns {
  std::string heading;            ///< as wide as each cell
  std::vector<std::string> cells; ///< by kernel of the device's code
};

/// The rows as a table, under a line with their sum. Under each row its
/// kernel's variants.
std::string kernelTable(const DeviceCode &code, const Program &program,
                        const MoreColumns &more = {});

/// Bytes read and written by all instances: Kernel.bytes, or, if that is
/// unknown, the extents of the arguments.
std::uint64_t launchBytes(const Launch &launch, const Kernel &kernel);

/// The kernel of that name, or null.
const Kernel *findKernel(const DeviceCode &code, std::string_view name);

} // namespace tessera::artifact
