// A program's collectives where ranks reach its memory: the CPU and what is
// emulated on it.
#pragma once
#include "runtime/hal/Mesh.h"
#include "runtime/hal/host/Commands.h"

#include <optional>
#include <vector>

namespace tessera::hal {

/// What the artifact's collective is on this member of the channel, but for
/// addresses.
comm::Collective collectiveOf(const artifact::Collective &source,
                              const comm::Channel &channel);

class HostCollectives {
public:
  /// For a program of `code`. An error if it has collectives, but no channels.
  static StatusOr<HostCollectives> prepare(const Commands &code,
                                           const MeshChannels *channels);

  /// Runs number `index` of Commands.collectives between these addresses, or
  /// starts it if it has a ticket. `rows`: of exchange_rows, how many go where.
  /// An error if they are more than the buffers hold.
  Status run(std::uint32_t index, const std::byte *from, std::byte *to,
             const std::byte *rows);
  /// Until that one, which was started, is done.
  Status wait(std::uint32_t index);
  /// Waits for whatever is under way, after an error: its buffers are not ours
  /// before.
  void settle();

private:
  struct One {
    const artifact::Collective *source;
    comm::Channel *channel;
    comm::Collective what; ///< but for addresses
    std::optional<comm::Ticket> ticket;
  };
  Status setRows(One &one, const std::byte *counts, std::byte *to);

  std::vector<One> list;          // as Commands.collectives
  std::vector<std::size_t> order; ///< of pieces, while rows are exchanged
};

} // namespace tessera::hal
