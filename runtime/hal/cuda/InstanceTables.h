// Arguments of launches, as kernels read them: device::Launch of
// runtime/device/Launch.cuh, in words of 8 bytes.
#pragma once
#include "runtime/hal/cuda/Gpu.h"
#include "runtime/hal/host/Commands.h"

#include <cstdint>
#include <map>
#include <vector>

namespace tessera::hal::cuda {

/// Appends a device::Instance: addresses as they are in this iteration, then
/// `maps` tensor maps from address `firstMap` on, sizes, the number of the
/// first block.
void appendInstance(const Commands &code, const LaunchCommand &launch,
                    const LaunchInstance &instance,
                    std::vector<std::uint64_t> &words, Address firstMap = 0,
                    std::uint32_t maps = 0);

/// The tables of instances 1 to count − 1 of every launch that has several, in
/// device memory. Addresses are planned, so they are written once; a launch in
/// a loop has one for each iteration in which its addresses differ.
class InstanceTables {
public:
  /// Launches in the order of their execution, each with its iteration's
  /// addresses.
  void add(const Commands &code, const LaunchCommand &launch);
  /// After the last one.
  Status upload(const std::shared_ptr<Gpu> &gpu);

  /// From the first launch again.
  void restart() { position = 0; }
  /// The table of the next launch: null where it has one instance.
  Address next(const LaunchCommand &launch);

private:
  std::map<std::vector<std::uint64_t>, std::uint64_t>
      known;                          // offset by content
  std::vector<std::uint64_t> all;     // until upload()
  std::vector<std::uint64_t> offsets; // of launches with tables, in bytes
  std::size_t position = 0;           // in `offsets`
  Owned<Address> memory;
};

} // namespace tessera::hal::cuda
