// Messages by MPI, which is loaded when a job has several ranks: the executable
// links none and runs where there is none.
#pragma once
#include "runtime/comm/Launch.h"
#include "runtime/comm/Transport.h"

#include <memory>

namespace tessera::comm {

/// Loads the MPI library that belongs to what started this process, an MPI's
/// mpirun or the like, and joins its job; all ranks call it, once.
/// TESSERA_LIBMPI names another library; which of the two binary interfaces it
/// has (Open MPI's, or MPICH's, which Intel MPI, MVAPICH and Cray MPI share) is
/// seen from its symbols.
StatusOr<std::unique_ptr<Transport>> joinMpi(const Launch &launch);

} // namespace tessera::comm
