// Runs a flattened program's launches on the emulated GPU.
#pragma once
#include "runtime/device/TensorMap.h"
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/host/HostCommandList.h"

#include <span>
#include <type_traits>
#include <vector>

namespace tessera::hal {

/// A kernel compiled for the host: emulated::KernelEntry's function type.
using EmulatedFunction = std::remove_pointer_t<emulated::KernelEntry>;

class EmulatedCommandList : public HostCommandList {
public:
  /// `kernels` follows DeviceCode.kernels. Every launch draws its order from
  /// `seed` and its own number since the list was made.
  EmulatedCommandList(std::string_view program, Commands commands,
                      HostCollectives collectives,
                      std::span<EmulatedFunction *const> kernels,
                      const emulated::Chip &chip, std::uint64_t seed,
                      const emulated::Numerics &numerics,
                      std::span<std::byte> arena, const RecordOptions &options);

private:
  Status launch(const LaunchCommand &launch) override;
  void copy(std::byte *to, const std::byte *from, std::uint64_t bytes) override;
  void fill(std::byte *to, std::uint8_t value, std::uint64_t bytes) override;
  /// Appends a device::Instance, as words, and the ranges of its buffers.
  Status addInstance(const LaunchCommand &launch,
                     const LaunchInstance &instance);

  std::span<EmulatedFunction *const> kernels;
  emulated::Chip chip;
  std::uint64_t seed, launches = 0;
  emulated::Numerics numerics;
  emulated::BlockMachine machine;
  std::vector<std::uint64_t> words; // of all instances
  std::vector<emulated::BufferRange> ranges;
  std::vector<device::TensorMap> maps; // of the launch
};

} // namespace tessera::hal
