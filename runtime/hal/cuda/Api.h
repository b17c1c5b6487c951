// What this runtime uses of the CUDA driver API, declared from its documented
// facts: the driver's header is not needed to build, and its library is loaded
// when a GPU is asked for. test/runtime/hal/cuda/ApiTest.cpp compares every
// line with NVIDIA's header where there is one.
#pragma once
#include "runtime/device/TensorMap.h"

#include <cstddef>
#include <cstdint>

namespace tessera::hal::cuda {

using Result = int;                  // CUresult
using DeviceNumber = int;            // CUdevice
using Address = unsigned long long;  // CUdeviceptr
using Context = struct ContextTag *; // CUcontext, and so on
using Module = struct ModuleTag *;
using Kernel = struct KernelTag *; // CUfunction
using Stream = struct StreamTag *;
using Event = struct EventTag *;
using Graph = struct GraphTag *;
using GraphRun = struct GraphRunTag *;   // CUgraphExec
using GraphNode = struct GraphNodeTag *; // CUgraphNode
using Condition = unsigned long long;    // CUgraphConditionalHandle

/// Results that are handled differently.
enum : Result {
  kSuccess = 0,
  kOutOfMemory = 2,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kInvalidPtx = 218,
  kNvlinkUncorrectable = 220,
  kUnsupportedPtxVersion = 222,
  kContained = 226,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kTensorMemoryLeak = 721,
  kSystemDriverMismatch = 803,
};

enum DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kL2Bytes = 38,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kMaxSharedBytesOptIn = 97, ///< of a block, if a kernel asks for it
};

enum KernelAttribute : int {
  kMaxThreadsPerBlock = 0,
  kStaticSharedBytes = 1,
  kMaxDynamicSharedBytes = 8, ///< may be set
};

enum JitOption : int {
  kJitErrorLog = 5,
  kJitErrorLogBytes = 6,
};

/// Flags and modes.
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr int kCaptureThreadLocal = 1;

/// How tensor maps are made (TensorBoxes has the rest).
inline constexpr int kNoInterleaving = 0;
inline constexpr int kPromoteTo128Bytes = 2; ///< what L2 reads at a time
inline constexpr int kZerosOutside = 0;

/// How an edge of a graph begins and ends (CUgraphEdgeData); zeros: after the
/// whole of one node, the whole of the next.
struct GraphEdge {
  unsigned char fromPort, toPort, type, reserved[5];
};

/// CUgraphNodeType. A conditional node's body may have these alone.
enum NodeType : int {
  kKernelNode = 0,
  kCopyNode = 1,
  kFillNode = 2,
  kHostNode = 3, ///< but not this
  kGraphNode = 4,
  kEmptyNode = 5,
  kConditionalNode = 13,
};

inline constexpr int kWhile = 1; // CU_GRAPH_COND_TYPE_WHILE

/// CUgraphNodeParams of a conditional node.
struct ConditionalNode {
  int type = kConditionalNode;
  int reserved[3] = {};
  Condition condition = 0;
  int kind = kWhile;
  unsigned bodyCount = 1;
  Graph *bodies = nullptr; ///< set by the driver, which owns them
  Context context = nullptr;
  long long padding[25] = {}, reserved2 = 0;
};

/// Keys of a launch's `extra` list: an array of keys and values.
inline void *const kLaunchEnd = nullptr;
inline void *const kLaunchBuffer = reinterpret_cast<void *>(1);
inline void *const kLaunchBufferSize = reinterpret_cast<void *>(2);

/// X(name in Driver, symbol of the library, parameters); all return a Result.
/// A symbol with a version is the one that the driver's header of CUDA 12 and
/// 13 means by the plain name.
#define TESSERA_CUDA_FUNCTIONS(X)                                              \
  X(initialize, cuInit, (unsigned flags))                                      \
  X(version, cuDriverGetVersion, (int *version))                               \
  X(errorName, cuGetErrorName, (Result result, const char **text))             \
  X(errorText, cuGetErrorString, (Result result, const char **text))           \
  X(deviceCount, cuDeviceGetCount, (int *count))                               \
  X(deviceGet, cuDeviceGet, (DeviceNumber * device, int ordinal))              \
  X(deviceName, cuDeviceGetName, (char *name, int bytes, DeviceNumber device)) \
  X(deviceAttribute, cuDeviceGetAttribute,                                     \
    (int *value, int attribute, DeviceNumber device))                          \
  X(contextRetain, cuDevicePrimaryCtxRetain,                                   \
    (Context * context, DeviceNumber device))                                  \
  X(contextRelease, cuDevicePrimaryCtxRelease_v2, (DeviceNumber device))       \
  X(contextPush, cuCtxPushCurrent_v2, (Context context))                       \
  X(contextPop, cuCtxPopCurrent_v2, (Context * context))                       \
  X(memoryInfo, cuMemGetInfo_v2, (std::size_t *free, std::size_t *total))      \
  X(memoryAllocate, cuMemAlloc_v2, (Address * address, std::size_t bytes))     \
  X(memoryFree, cuMemFree_v2, (Address address))                               \
  X(hostAllocate, cuMemHostAlloc,                                              \
    (void **address, std::size_t bytes, unsigned flags))                       \
  X(hostFree, cuMemFreeHost, (void *address))                                  \
  X(copyToDevice, cuMemcpyHtoDAsync_v2,                                        \
    (Address to, const void *from, std::size_t bytes, Stream stream))          \
  X(copyToHost, cuMemcpyDtoHAsync_v2,                                          \
    (void *to, Address from, std::size_t bytes, Stream stream))                \
  X(copyOnDevice, cuMemcpyDtoDAsync_v2,                                        \
    (Address to, Address from, std::size_t bytes, Stream stream))              \
  X(fill, cuMemsetD8Async,                                                     \
    (Address to, unsigned char value, std::size_t bytes, Stream stream))       \
  X(moduleLoad, cuModuleLoadDataEx,                                            \
    (Module * module, const void *image, unsigned count, int *options,         \
     void **values))                                                           \
  X(moduleUnload, cuModuleUnload, (Module module))                             \
  X(moduleKernel, cuModuleGetFunction,                                         \
    (Kernel * kernel, Module module, const char *name))                        \
  X(kernelAttribute, cuFuncGetAttribute,                                       \
    (int *value, int attribute, Kernel kernel))                                \
  X(setKernelAttribute, cuFuncSetAttribute,                                    \
    (Kernel kernel, int attribute, int value))                                 \
  X(launch, cuLaunchKernel,                                                    \
    (Kernel kernel, unsigned gridX, unsigned gridY, unsigned gridZ,            \
     unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,  \
     Stream stream, void **parameters, void **extra))                          \
  X(encodeTensorMap, cuTensorMapEncodeTiled,                                   \
    (device::TensorMap * map, int element, std::uint32_t rank, void *address,  \
     const std::uint64_t *sizes, const std::uint64_t *strides,                 \
     const std::uint32_t *box, const std::uint32_t *steps, int interleaving,   \
     int swizzle, int promotion, int outside))                                 \
  X(streamCreate, cuStreamCreate, (Stream * stream, unsigned flags))           \
  X(streamDestroy, cuStreamDestroy_v2, (Stream stream))                        \
  X(streamSynchronize, cuStreamSynchronize, (Stream stream))                   \
  X(streamWait, cuStreamWaitEvent,                                             \
    (Stream stream, Event event, unsigned flags))                              \
  X(streamBeginCapture, cuStreamBeginCapture_v2, (Stream stream, int mode))    \
  X(streamEndCapture, cuStreamEndCapture, (Stream stream, Graph * graph))      \
  X(eventCreate, cuEventCreate, (Event * event, unsigned flags))               \
  X(eventDestroy, cuEventDestroy_v2, (Event event))                            \
  X(eventRecord, cuEventRecord, (Event event, Stream stream))                  \
  X(eventSynchronize, cuEventSynchronize, (Event event))                       \
  X(eventElapsed, cuEventElapsedTime,                                          \
    (float *milliseconds, Event start, Event end))                             \
  X(graphInstantiate, cuGraphInstantiateWithFlags,                             \
    (GraphRun * run, Graph graph, unsigned long long flags))                   \
  X(graphUpload, cuGraphUpload, (GraphRun run, Stream stream))                 \
  X(graphLaunch, cuGraphLaunch, (GraphRun run, Stream stream))                 \
  X(graphRunDestroy, cuGraphExecDestroy, (GraphRun run))                       \
  X(graphDestroy, cuGraphDestroy, (Graph graph))

/// Likewise, of drivers from kLoopsInGraphs on: a loop within a graph, whose
/// count is data.
#define TESSERA_CUDA_LOOP_FUNCTIONS(X)                                         \
  X(graphCreate, cuGraphCreate, (Graph * graph, unsigned flags))               \
  X(streamBeginCaptureTo, cuStreamBeginCaptureToGraph,                         \
    (Stream stream, Graph graph, const GraphNode *after,                       \
     const GraphEdge *edges, std::size_t count, int mode))                     \
  X(streamCaptureInfo, cuStreamGetCaptureInfo_v3,                              \
    (Stream stream, int *status, unsigned long long *id, Graph *graph,         \
     const GraphNode **last, const GraphEdge **edges, std::size_t *count))     \
  X(graphCondition, cuGraphConditionalHandleCreate,                            \
    (Condition * condition, Graph graph, Context context, unsigned initial,    \
     unsigned flags))                                                          \
  X(graphAddNode, cuGraphAddNode_v2,                                           \
    (GraphNode * node, Graph graph, const GraphNode *after,                    \
     const GraphEdge *edges, std::size_t count, ConditionalNode *parameters))  \
  X(graphNodes, cuGraphGetNodes,                                               \
    (Graph graph, GraphNode * nodes, std::size_t *count))                      \
  X(graphNodeType, cuGraphNodeGetType, (GraphNode node, int *type))

/// CUDA 12.4.
inline constexpr int kLoopsInGraphs = 12040;

} // namespace tessera::hal::cuda
