// Which rank this process is, and the launcher that started it.
#pragma once
#include "runtime/support/Status.h"

#include <functional>
#include <string>

namespace tessera::comm {

struct Launch {
  enum class Starter : std::uint8_t {
    alone,   ///< no launcher: one rank
    openMpi, ///< mpirun of Open MPI, or srun --mpi=pmix
    mpich,   ///< mpirun of MPICH and its kin, or srun --mpi=pmi2
    address, ///< RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun
    slurm,   ///< srun without an MPI
  };
  Starter starter = Starter::alone;
  int rank = 0, size = 1;
  /// Among the ranks of this machine: which GPU is whose.
  int localRank = 0, localSize = 1;
  /// Where rank 0 can be reached, if it was said: by MASTER_ADDR and
  /// MASTER_PORT, or the port after it if torchrun's agent has that one.
  std::string masterAddress;
  int masterPort = 0;

  /// "rank 2 of 8, started by mpirun of Open MPI"
  std::string describe() const;
};

/// Looks up an environment variable; null if it is not set.
using Environment = std::function<const char *(const char *name)>;

/// What the environment says. mpirun goes before torchrun-style variables, and
/// both before Slurm, inside of whose jobs they run; all that speak of this
/// process must agree. An error names the variables that are missing, are no
/// numbers or contradict one another.
StatusOr<Launch> readLaunch(const Environment &environment);
/// Of this process.
StatusOr<Launch> readLaunch();

} // namespace tessera::comm
