// How the programs of an artifact use kernels with a choice of implementations:
// matmuls that a library could compute, and kernels with variants.
#pragma once
#include "runtime/hal/cuda/Code.h"
#include "runtime/hal/host/Commands.h"

#include <map>

namespace tessera::hal::cuda {

/// An instance of a kernel, and the alignment of a matmul's arguments that
/// holds for all instances.
struct KernelUse {
  LaunchCommand launch{}; ///< of that instance alone
  LaunchInstance instance{};
  ProductAlignment alignment;
};

/// Whether its variants can be compared with it: the types of what it writes
/// are known.
bool hasVariants(const artifact::Kernel &kernel);

/// By the kernels' numbers.
std::map<std::uint32_t, KernelUse> findUses(const artifact::DeviceCode &code);

/// Launches the chosen variants (LoadedKernel.variant) in place of their
/// kernels, under their own names.
void useVariants(Commands &program, const artifact::DeviceCode &code,
                 std::span<const LoadedKernel> kernels);

} // namespace tessera::hal::cuda
