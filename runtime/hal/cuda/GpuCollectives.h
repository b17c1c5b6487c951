// A program's collectives between GPUs: on the stream, by NCCL, where all
// members of a group have it, and otherwise through the host.
#pragma once
#include "runtime/hal/cuda/NcclChannels.h"
#include "runtime/hal/cuda/StagedCollectives.h"

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace tessera::hal::cuda {

class GpuCollectives {
public:
  GpuCollectives() = default; ///< of a program that has none
  /// An error if there are some, but no channels. `nccl`, which may be null,
  /// outlives them.
  static StatusOr<GpuCollectives> prepare(const Commands &code,
                                          const MeshChannels *channels,
                                          const NcclChannels *nccl);
  /// Whether some go through the host, so that it has to be there: what does
  /// can be part of no graph.
  bool needsHost() const { return !staged.empty(); }

  /// Puts number `index` of Commands.collectives on the GPU's stream, or runs
  /// or starts it through the host, after what the stream holds.
  Status run(std::uint32_t index, Gpu &gpu, Address from, Address to);
  /// What follows on the stream sees its result at `to`.
  Status wait(std::uint32_t index, Gpu &gpu, Address to);

  /// Around a run of the program, whose stream is empty before and after:
  /// members tell one another, and whoever is missing for the world's timeout
  /// is named.
  Status begin();
  Status end();
  /// After an error, once the stream is empty.
  void settle();

private:
  struct One {
    const artifact::Collective *source;
    comm::nccl::NcclChannel *channel; ///< null: through the host
    comm::Collective what;            ///< but for addresses
  };
  struct Watch {
    comm::nccl::NcclChannel *channel;
    std::optional<comm::Ticket> ticket;
  };

  std::vector<One> list; // as Commands.collectives
  StagedCollectives staged;
  std::vector<Watch> watches; // one a channel
  /// Whether the stream has passed the run that is watched.
  std::unique_ptr<std::atomic<bool>> isDone;
};

} // namespace tessera::hal::cuda
