// Tensor maps of launches, by which kernels of sm_90 copy boxes of tensors.
#pragma once
#include "runtime/hal/cuda/Gpu.h"
#include "runtime/hal/host/Commands.h"

#include <cstdint>
#include <map>
#include <vector>

namespace tessera::hal::cuda {

/// The tensor maps of every launch whose kernel has some, consecutive in device
/// memory. They hold addresses, which are planned, so they are encoded once;
/// for a launch in a loop, once for each iteration in which its addresses
/// differ.
class TensorMaps {
public:
  /// Launches in the order of their execution, each with its iteration's
  /// addresses. An error is the driver's, who refuses a map.
  Status add(const Gpu &gpu, const Commands &code, const LaunchCommand &launch);
  /// After the last one.
  Status upload(const std::shared_ptr<Gpu> &gpu);

  /// From the first launch again.
  void restart() { position = 0; }
  /// The address of the next launch's first map: null where it has none.
  Address next(const LaunchCommand &launch);

private:
  /// Offset of the first map, by kernel and addresses of the buffers.
  std::map<std::vector<std::uint64_t>, std::uint64_t> known;
  std::vector<device::TensorMap> all; // until upload()
  std::vector<std::uint64_t> offsets; // of launches with maps, in bytes
  std::size_t position = 0;           // in `offsets`
  Owned<Address> memory;
};

} // namespace tessera::hal::cuda
