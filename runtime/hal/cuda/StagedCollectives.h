// A program's collectives where nothing moves bytes between GPUs: they come to
// the host's memory, go over its channels, and return.
#pragma once
#include "runtime/hal/cuda/Gpu.h"
#include "runtime/hal/host/Collectives.h"

#include <vector>

namespace tessera::hal::cuda {

class StagedCollectives {
public:
  StagedCollectives() = default; ///< of a program that has none
  /// Allocates host memory for as many collectives as are in flight at once. An
  /// error if there are some, but no channels.
  static StatusOr<StagedCollectives> prepare(const Commands &code,
                                             const MeshChannels *channels);
  bool empty() const { return stagings.empty(); }

  /// Runs number `index` of Commands.collectives between these addresses of the
  /// GPU, after what its stream holds, or starts it if it has a ticket: then
  /// the stream may continue. `counts`: for exchange_rows, the row counts.
  Status run(std::uint32_t index, Gpu &gpu, Address from, Address to,
             Address counts);
  /// Waits for a started one; its result is then at `to`.
  Status wait(std::uint32_t index, Gpu &gpu, Address to);
  /// As HostCollectives::settle.
  void settle() { host.settle(); }

private:
  /// Where a collective is staged: input and result, or both in one.
  struct Staging {
    std::size_t slot;
    std::uint64_t fromBytes, toBytes, toOffset;
    std::uint64_t rowsBytes; ///< 0 but for exchange_rows
    bool isStarted;          ///< has a ticket: a wait brings the result
  };
  void assignSlots(const Commands &code);
  Status bringBack(const Staging &staging, Gpu &gpu, Address to);

  HostCollectives host;
  std::vector<Staging> stagings; // as Commands.collectives
  std::vector<std::vector<std::byte>> slots;
  std::vector<std::byte> rows; ///< counts of the exchange that starts
};

} // namespace tessera::hal::cuda
