// Api.h and LibraryApi.h against NVIDIA's own headers: values, sizes and
// signatures. Nothing runs here but what says that it was compared.
#include "runtime/hal/cuda/LibraryApi.h"

#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#define TESSERA_HAS_CUDA_H 1
#include <cuda.h>
#if __has_include(<cublasLt.h>)
#define TESSERA_HAS_CUBLASLT_H 1
#include <cublasLt.h>
#endif

#include <cstddef>
#include <type_traits>

namespace tessera::hal::cuda {
namespace {

/// Types that travel alike in a call: pointers, and numbers of one size.
template <typename A, typename B>
constexpr bool isAlike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
    std::is_floating_point_v<A> == std::is_floating_point_v<B>;

template <typename A, typename B> constexpr bool pointToAlike() {
  if constexpr (requires { sizeof(A) + sizeof(B); })
    return isAlike<A, B>;
  else
    return false; // opaque: the pairs below
}

/// And what pointers point to travels alike too, unless it is opaque.
template <typename A, typename B> constexpr bool isSame = isAlike<A, B>;
template <typename A, typename B>
constexpr bool isSame<A *, B *> = pointToAlike<A, B>();
template <typename A, typename B>
constexpr bool isSame<const A *, const B *> = pointToAlike<A, B>();
template <> constexpr bool isSame<void *, void *> = true;
template <> constexpr bool isSame<const void *, const void *> = true;
template <> constexpr bool isSame<Context, CUcontext> = true;
template <> constexpr bool isSame<Module, CUmodule> = true;
template <> constexpr bool isSame<Kernel, CUfunction> = true;
template <> constexpr bool isSame<Stream, CUstream> = true;
template <> constexpr bool isSame<Event, CUevent> = true;
template <> constexpr bool isSame<Graph, CUgraph> = true;
template <> constexpr bool isSame<GraphRun, CUgraphExec> = true;

template <typename A, typename B> constexpr bool isSameCall = false;
template <typename ResultA, typename ResultB, typename... A, typename... B>
  requires(sizeof...(A) == sizeof...(B))
constexpr bool isSameCall<ResultA(A...), ResultB(B...)> =
    isSame<ResultA, ResultB> && (isSame<A, B> && ...);

#define CHECK_FUNCTION(member, symbol, parameters)                             \
  static_assert(isSameCall<Result parameters, decltype(::symbol)>, #symbol);
TESSERA_CUDA_FUNCTIONS(CHECK_FUNCTION)

#if CUDA_VERSION >= 12040
template <> constexpr bool isSame<GraphNode, CUgraphNode> = true;
template <> constexpr bool isSame<GraphNode *, CUgraphNode *> = true;
template <>
constexpr bool isSame<const GraphNode *, const CUgraphNode *> = true;
template <>
constexpr bool isSame<const GraphNode **, const CUgraphNode **> = true;
template <>
constexpr bool isSame<const GraphEdge *, const CUgraphEdgeData *> = true;
template <>
constexpr bool isSame<const GraphEdge **, const CUgraphEdgeData **> = true;
template <>
constexpr bool isSame<ConditionalNode *, CUgraphNodeParams *> = true;
TESSERA_CUDA_LOOP_FUNCTIONS(CHECK_FUNCTION)

static_assert(sizeof(GraphEdge) == sizeof(CUgraphEdgeData) &&
              offsetof(GraphEdge, type) == offsetof(CUgraphEdgeData, type));
static_assert(sizeof(ConditionalNode) == sizeof(CUgraphNodeParams));
#define CHECK_FIELD(ours, theirs)                                              \
  static_assert(offsetof(ConditionalNode, ours) ==                             \
                offsetof(CUgraphNodeParams, theirs))
CHECK_FIELD(type, type);
CHECK_FIELD(condition, conditional.handle);
CHECK_FIELD(kind, conditional.type);
CHECK_FIELD(bodyCount, conditional.size);
CHECK_FIELD(bodies, conditional.phGraph_out);
CHECK_FIELD(context, conditional.ctx);
CHECK_FIELD(reserved2, reserved2);
#undef CHECK_FIELD
#endif

static_assert(!isSameCall<Result(int), Result(int, int)>);
static_assert(!isSameCall<Result(int), Result(long)>);
static_assert(!isSameCall<Result(int *), Result(long *)>);
static_assert(!isSameCall<Result(Module), CUresult(CUfunction)>);
static_assert(!isSameCall<Result(float *), Result(int **)>);

#define CHECK_VALUE(ours, theirs)                                              \
  static_assert(static_cast<long long>(ours) ==                                \
                static_cast<long long>(::theirs))
CHECK_VALUE(kSuccess, CUDA_SUCCESS);
CHECK_VALUE(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
CHECK_VALUE(kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
CHECK_VALUE(kNoDevice, CUDA_ERROR_NO_DEVICE);
CHECK_VALUE(kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
CHECK_VALUE(kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
CHECK_VALUE(kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
CHECK_VALUE(kInvalidPtx, CUDA_ERROR_INVALID_PTX);
CHECK_VALUE(kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
CHECK_VALUE(kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
CHECK_VALUE(kNotFound, CUDA_ERROR_NOT_FOUND);
CHECK_VALUE(kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
CHECK_VALUE(kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
CHECK_VALUE(kAssert, CUDA_ERROR_ASSERT);
CHECK_VALUE(kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
CHECK_VALUE(kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
CHECK_VALUE(kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
CHECK_VALUE(kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
CHECK_VALUE(kInvalidPc, CUDA_ERROR_INVALID_PC);
CHECK_VALUE(kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
CHECK_VALUE(kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
#if CUDA_VERSION >= 13000 // that have come since 12.0
CHECK_VALUE(kContained, CUDA_ERROR_CONTAINED);
CHECK_VALUE(kTensorMemoryLeak, CUDA_ERROR_TENSOR_MEMORY_LEAK);
#endif
CHECK_VALUE(kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
CHECK_VALUE(kCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
CHECK_VALUE(kCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
CHECK_VALUE(kMaxSharedBytesOptIn,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
CHECK_VALUE(kMaxThreadsPerBlock, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
CHECK_VALUE(kStaticSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
CHECK_VALUE(kMaxDynamicSharedBytes,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
CHECK_VALUE(kJitErrorLog, CU_JIT_ERROR_LOG_BUFFER);
CHECK_VALUE(kJitErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
CHECK_VALUE(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
CHECK_VALUE(kEventDefault, CU_EVENT_DEFAULT);
CHECK_VALUE(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
CHECK_VALUE(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
CHECK_VALUE(kNoInterleaving, CU_TENSOR_MAP_INTERLEAVE_NONE);
CHECK_VALUE(kPromoteTo128Bytes, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
CHECK_VALUE(kZerosOutside, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
CHECK_VALUE(device::MapElement::bf16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
CHECK_VALUE(device::MapElement::f32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
CHECK_VALUE(device::Swizzle::none, CU_TENSOR_MAP_SWIZZLE_NONE);
CHECK_VALUE(device::Swizzle::b32, CU_TENSOR_MAP_SWIZZLE_32B);
CHECK_VALUE(device::Swizzle::b64, CU_TENSOR_MAP_SWIZZLE_64B);
CHECK_VALUE(device::Swizzle::b128, CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(sizeof(device::TensorMap) == sizeof(CUtensorMap) &&
              alignof(device::TensorMap) <= alignof(CUtensorMap));
#if CUDA_VERSION >= 12040
CHECK_VALUE(kKernelNode, CU_GRAPH_NODE_TYPE_KERNEL);
CHECK_VALUE(kCopyNode, CU_GRAPH_NODE_TYPE_MEMCPY);
CHECK_VALUE(kFillNode, CU_GRAPH_NODE_TYPE_MEMSET);
CHECK_VALUE(kHostNode, CU_GRAPH_NODE_TYPE_HOST);
CHECK_VALUE(kGraphNode, CU_GRAPH_NODE_TYPE_GRAPH);
CHECK_VALUE(kEmptyNode, CU_GRAPH_NODE_TYPE_EMPTY);
CHECK_VALUE(kConditionalNode, CU_GRAPH_NODE_TYPE_CONDITIONAL);
CHECK_VALUE(kWhile, CU_GRAPH_COND_TYPE_WHILE);
#endif
CHECK_VALUE(kL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert(sizeof(Address) == sizeof(CUdeviceptr));

#ifdef TESSERA_HAS_CUBLASLT_H
template <> constexpr bool isSame<LtHandle, cublasLtHandle_t> = true;
template <> constexpr bool isSame<LtOperation, cublasLtMatmulDesc_t> = true;
template <> constexpr bool isSame<LtLayout, cublasLtMatrixLayout_t> = true;
template <>
constexpr bool isSame<LtPreference, cublasLtMatmulPreference_t> = true;

TESSERA_CUBLASLT_FUNCTIONS(CHECK_FUNCTION)
static_assert(isSameCall<std::size_t(), decltype(::cublasLtGetVersion)>);
static_assert(
    isSameCall<const char *(LtStatus), decltype(::cublasLtGetStatusString)>);
static_assert(sizeof(LtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              offsetof(LtHeuristic, status) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, state) &&
              offsetof(LtHeuristic, workspaceBytes) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
CHECK_VALUE(kLtFloat, CUDA_R_32F);
CHECK_VALUE(kLtBfloat16, CUDA_R_16BF);
CHECK_VALUE(kLtComputeFloat, CUBLAS_COMPUTE_32F);
CHECK_VALUE(kLtPlain, CUBLAS_OP_N);
CHECK_VALUE(kLtTransposed, CUBLAS_OP_T);
CHECK_VALUE(kLtTransposeA, CUBLASLT_MATMUL_DESC_TRANSA);
CHECK_VALUE(kLtTransposeB, CUBLASLT_MATMUL_DESC_TRANSB);
CHECK_VALUE(kLtBatches, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
CHECK_VALUE(kLtBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
CHECK_VALUE(kLtMaxWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
CHECK_VALUE(kLtReductions, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
CHECK_VALUE(kLtReduceInComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
CHECK_VALUE(kLtAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
CHECK_VALUE(kLtAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
CHECK_VALUE(kLtAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
CHECK_VALUE(kLtAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
CHECK_VALUE(kLtInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
#endif

} // namespace
} // namespace tessera::hal::cuda
#endif

TEST(CudaApi, AgreesWithTheDriversHeader) {
#ifdef TESSERA_HAS_CUDA_H
  namespace cuda = tessera::hal::cuda;
  EXPECT_EQ(cuda::kLaunchEnd, CU_LAUNCH_PARAM_END);
  EXPECT_EQ(cuda::kLaunchBuffer, CU_LAUNCH_PARAM_BUFFER_POINTER);
  EXPECT_EQ(cuda::kLaunchBufferSize, CU_LAUNCH_PARAM_BUFFER_SIZE);
#else
  GTEST_SKIP() << "no cuda.h here to compare with";
#endif
}
