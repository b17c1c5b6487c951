// Runs a flattened program on the thread pool.
#pragma once
#include "runtime/hal/Device.h"
#include "runtime/hal/Profile.h"
#include "runtime/hal/cpu/Commands.h"
#include "runtime/hal/cpu/ThreadPool.h"

#include <memory>
#include <span>
#include <vector>

namespace tessera::hal {

class CpuCommandList : public CommandList {
public:
  /// `scratch` holds `scratchStride` bytes for each of the pool's threads.
  CpuCommandList(std::string_view program, Commands commands, ThreadPool &pool,
                 std::byte *scratch, std::uint64_t scratchStride,
                 std::span<std::byte> arena, const RecordOptions &options);
  Status run() override;
  const Profile *profile() const override { return measured.get(); }

private:
  Status step(const Command &command);
  void launch(const LaunchCommand &launch);
  void copy(const CopyCommand &copy);
  void fill(const FillCommand &fill);
  /// Moves the loop's pointers; the command to go on from.
  std::uint32_t loopEnd(std::uint32_t loop, std::uint32_t next);
  Status checkFinite(const LaunchCommand &launch, std::uint32_t step) const;

  std::string_view program;
  Commands code;
  ThreadPool &pool;
  std::byte *scratch;
  std::uint64_t scratchStride;
  std::span<std::byte> arena; // empty unless `check`
  bool check;
  std::vector<void *> firstPointers;    // code.pointers before the run
  std::vector<std::uint64_t> tripsLeft; // of each loop
  std::unique_ptr<Profile> measured;
};

} // namespace tessera::hal
