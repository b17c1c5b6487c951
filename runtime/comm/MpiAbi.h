// What this runtime uses of MPI, declared from documented facts for the two
// binary interfaces that MPI libraries have: MPI's standard fixes names in C,
// not what they are. MpiAbiTest.cpp compares every line with the headers where
// there are some.
#pragma once
#include <cstddef>

namespace tessera::comm {

/// Equal in both.
inline constexpr int kMpiSuccess = 0;
inline constexpr int kMpiThreadSerialized = 2;

/// Open MPI 3 to 5 (libmpi.so.40): handles are pointers, predefined ones the
/// addresses of objects in the library.
struct OpenMpiAbi {
  using Communicator = struct OpenMpiCommunicator *;
  using Datatype = struct OpenMpiDatatype *;
  using ErrorHandler = struct OpenMpiErrorHandler *;
  using Request = struct OpenMpiRequest *;
  struct Status {
    int source, tag, error, cancelled;
    std::size_t bytes;
  };
  static constexpr int kAnySource = -1;
  static constexpr const char *kWorld = "ompi_mpi_comm_world";
  static constexpr const char *kByte = "ompi_mpi_byte";
  static constexpr const char *kErrorsReturn = "ompi_mpi_errors_return";
};

/// MPICH's ABI compatibility initiative (libmpi.so.12, libmpich.so.12): handles
/// are numbers.
struct MpichAbi {
  using Communicator = int;
  using Datatype = int;
  using ErrorHandler = int;
  using Request = int;
  struct Status {
    int countLow, countHighAndCancelled, source, tag, error;
  };
  static constexpr int kAnySource = -2;
  static constexpr Communicator kWorld = 0x44000000;
  static constexpr Datatype kByte = 0x4c00010d;
  static constexpr ErrorHandler kErrorsReturn = 0x54000001;
};

} // namespace tessera::comm
