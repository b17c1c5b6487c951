// A program's collectives between GPUs: by NCCL on a second stream if all
// members of a group have it, otherwise through the host. exchange_rows always
// goes through the host, which has to know its counts; compilation for a GPU
// makes an all_to_all instead (passes/sharding/PaddedExchange.h).
#pragma once
#include "runtime/hal/cuda/NcclChannels.h"
#include "runtime/hal/cuda/StagedCollectives.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::hal::cuda {

class GpuCollectives {
public:
  GpuCollectives() = default; ///< of a program that has none
  /// An error if there are some, but no channels. `nccl`, which may be null,
  /// outlives them.
  static StatusOr<GpuCollectives> prepare(const Commands &code,
                                          const MeshChannels *channels,
                                          const NcclChannels *nccl,
                                          const std::shared_ptr<Gpu> &gpu);
  /// Whether some go through the host, so that it has to be there: what does
  /// can be part of no graph.
  bool needsHost() const { return !staged.empty(); }
  /// "; collectives by NCCL", or what else carries them; empty without any.
  std::string describe() const;

  /// Puts number `index` of Commands.collectives on the GPU, or runs or starts
  /// it through the host, after what the kernels' stream holds. `rows`: of
  /// exchange_rows, how many go where.
  Status run(std::uint32_t index, Gpu &gpu, Address from, Address to,
             Address rows);
  /// What follows on the kernels' stream sees its result at `to`.
  Status wait(std::uint32_t index, Gpu &gpu, Address to);
  /// As if all that NCCL was given were waited for here: no event of one graph
  /// can be waited for in another.
  Status join(Gpu &gpu);

  /// Called before and after a run of the program, while its stream is empty:
  /// members synchronize, and an error names a member that is missing for the
  /// world's timeout.
  Status begin();
  Status end();
  /// After an error, once the kernels' stream is empty: waits until no
  /// collective is in flight.
  void settle(Gpu &gpu);

private:
  struct One {
    const artifact::Collective *source;
    comm::nccl::NcclChannel *channel; ///< null: through the host
    comm::Collective what;            ///< but for addresses
    /// Of NCCL's: what the kernels' stream has passed before it, and the other
    /// stream with it.
    Owned<Event> begun = {}, done = {};
    bool isUnderWay = false; ///< started, and not waited for
  };
  struct Watch {
    comm::nccl::NcclChannel *channel;
    std::optional<comm::Ticket> ticket;
  };

  Status onStream(One &one, Gpu &gpu, Address from, Address to) const;

  std::vector<One> list; // as Commands.collectives
  Stream collectiveStream = nullptr;
  StagedCollectives staged;
  std::vector<Watch> watches; // one a channel
  /// Whether the stream has passed the run that is watched.
  std::unique_ptr<std::atomic<bool>> isDone;
};

} // namespace tessera::hal::cuda
