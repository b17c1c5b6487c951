// What this runtime uses of NCCL, declared from its documented facts: no header
// is needed to build, and the library is loaded when GPUs are to speak.
// test/runtime/comm/nccl/NcclApiTest.cpp compares every line with NVIDIA's
// header where there is one.
#pragma once
#include <cstddef>

namespace tessera::comm::nccl {

using Result = int;                            // ncclResult_t
using Communicator = struct CommunicatorTag *; // ncclComm_t
using Stream = struct StreamTag *;             // cudaStream_t, CUstream
struct UniqueId {                              // ncclUniqueId, by value
  char bytes[128];
};

inline constexpr Result kSuccess = 0;
inline constexpr Result kInProgress = 7;

enum DataType : int { // ncclDataType_t
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

enum Operator : int { // ncclRedOp_t
  kSum = 0,
  kMax = 2,
  kMin = 3,
};

/// X(name in Library, symbol, parameters); all return a Result. Counts are in
/// elements; buffers are the device's.
#define TESSERA_NCCL_FUNCTIONS(X)                                              \
  X(version, ncclGetVersion, (int *version))                                   \
  X(uniqueId, ncclGetUniqueId, (UniqueId * id))                                \
  X(join, ncclCommInitRank,                                                    \
    (Communicator * communicator, int ranks, UniqueId id, int rank))           \
  X(destroy, ncclCommDestroy, (Communicator communicator))                     \
  X(abort, ncclCommAbort, (Communicator communicator))                         \
  X(asyncError, ncclCommGetAsyncError,                                         \
    (Communicator communicator, Result * error))                               \
  X(allReduce, ncclAllReduce,                                                  \
    (const void *from, void *to, std::size_t count, DataType type,             \
     Operator reduction, Communicator communicator, Stream stream))            \
  X(broadcast, ncclBroadcast,                                                  \
    (const void *from, void *to, std::size_t count, DataType type, int root,   \
     Communicator communicator, Stream stream))                                \
  X(reduce, ncclReduce,                                                        \
    (const void *from, void *to, std::size_t count, DataType type,             \
     Operator reduction, int root, Communicator communicator, Stream stream))  \
  X(allGather, ncclAllGather,                                                  \
    (const void *from, void *to, std::size_t count, DataType type,             \
     Communicator communicator, Stream stream))                                \
  X(reduceScatter, ncclReduceScatter,                                          \
    (const void *from, void *to, std::size_t count, DataType type,             \
     Operator reduction, Communicator communicator, Stream stream))            \
  X(send, ncclSend,                                                            \
    (const void *from, std::size_t count, DataType type, int peer,             \
     Communicator communicator, Stream stream))                                \
  X(receive, ncclRecv,                                                         \
    (void *to, std::size_t count, DataType type, int peer,                     \
     Communicator communicator, Stream stream))                                \
  X(groupStart, ncclGroupStart, ())                                            \
  X(groupEnd, ncclGroupEnd, ())

} // namespace tessera::comm::nccl
