// Runs a flattened program on the thread pool.
#pragma once
#include "runtime/hal/cpu/CodeObject.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/hal/host/HostCommandList.h"

#include <span>

namespace tessera::hal {

class CpuCommandList : public HostCommandList {
public:
  /// `kernels` follows DeviceCode.kernels; `scratch` holds `scratchStride`
  /// bytes for each of the pool's threads.
  CpuCommandList(std::string_view program, Commands commands,
                 HostCollectives collectives,
                 std::span<KernelFunction *const> kernels, ThreadPool &pool,
                 std::byte *scratch, std::uint64_t scratchStride,
                 std::span<std::byte> arena, const RecordOptions &options);

private:
  Status launch(const LaunchCommand &launch) override;
  void copy(std::byte *to, const std::byte *from, std::uint64_t bytes) override;
  void fill(std::byte *to, std::uint8_t value, std::uint64_t bytes) override;

  std::span<KernelFunction *const> kernels;
  ThreadPool &pool;
  std::byte *scratch;
  std::uint64_t scratchStride;
};

} // namespace tessera::hal
