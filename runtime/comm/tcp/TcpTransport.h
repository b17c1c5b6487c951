// Messages over TCP, where no MPI started the ranks.
#pragma once
#include "runtime/comm/Transport.h"
#include "runtime/comm/tcp/TcpConnect.h"

#include <memory>

namespace tessera::comm {

/// Over stream sockets to all other ranks, by rank, none for this one. A rank
/// that ends or dies closes its socket, so ranks that wait for it know at once.
/// abort() ends the process if the rank is one.
StatusOr<std::unique_ptr<Transport>> overSockets(std::vector<Socket> links,
                                                 int rank, bool isProcess);

/// connectRanks() and that.
StatusOr<std::unique_ptr<Transport>> joinTcp(const Launch &launch,
                                             std::chrono::milliseconds timeout);

} // namespace tessera::comm
