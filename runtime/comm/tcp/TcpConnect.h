// How ranks connect without an MPI: rank 0 listens at a known address and sends
// all ranks each other's addresses.
#pragma once
#include "runtime/comm/Launch.h"
#include "runtime/comm/tcp/TcpSocket.h"

#include <chrono>
#include <vector>

namespace tessera::comm {

/// Connects every two ranks of the job; all call it. Returns a stream socket
/// for each other rank, none for this one. Rank 0 listens on
/// launch.masterPort, all ranks reach it by launch.masterAddress and one
/// another by the addresses from which they came.
///
/// Rejects any other connection: one with a wrong greeting, or without the
/// random number that rank 0 drew for this job. An error names the rank that
/// could not be reached, or did not come, within the time.
StatusOr<std::vector<Socket>> connectRanks(const Launch &launch,
                                           std::chrono::milliseconds timeout);

} // namespace tessera::comm
