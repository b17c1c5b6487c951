// Times steps on the GPU: an event before and one after each.
#pragma once
#include "runtime/hal/Profile.h"
#include "runtime/hal/cuda/Gpu.h"

#include <vector>

namespace tessera::hal::cuda {

/// Adds what it measures to a profile. Waits for the GPU whenever its events
/// are used up. Everything is called with the context current.
class StepTimer {
public:
  Status create(const std::shared_ptr<Gpu> &gpu, Profile &profile);
  /// Forgets what was timed and not collected.
  void restart() { used = 0; }
  Status start(std::uint32_t step);
  Status stop();
  /// Waits for what was timed and adds it.
  Status collect();

private:
  struct Timed {
    Owned<Event> start, end;
    std::uint32_t step = 0;
  };
  std::shared_ptr<Gpu> gpu;
  Profile *profile = nullptr;
  std::vector<Timed> timed;
  std::size_t used = 0;        // of `timed`
  std::uint64_t firstHost = 0; // the host's clock at the first start
};

} // namespace tessera::hal::cuda
