// What this runtime uses of cuBLASLt, declared from its documented facts, as
// Api.h does with the driver. ApiTest.cpp compares it with NVIDIA's header.
#pragma once
#include "runtime/hal/cuda/Api.h"

#include <cstdint>

namespace tessera::hal::cuda {

using LtStatus = int;                        // cublasStatus_t
using LtHandle = struct LtHandleTag *;       // cublasLtHandle_t, and so on
using LtOperation = struct LtOperationTag *; // cublasLtMatmulDesc_t
using LtLayout = struct LtLayoutTag *;
using LtPreference = struct LtPreferenceTag *;

/// cublasLtMatmulAlgo_t
struct LtAlgorithm {
  std::uint64_t data[8];
};

/// cublasLtMatmulHeuristicResult_t
struct LtHeuristic {
  LtAlgorithm algorithm;
  std::size_t workspaceBytes;
  LtStatus status; ///< the rest is valid if it is 0
  float waves;
  int reserved[4];
};

enum LtType : int { kLtFloat = 0, kLtBfloat16 = 14 }; // cudaDataType_t
enum LtCompute : int { kLtComputeFloat = 68 };        // no TF32
enum LtTranspose : std::int32_t { kLtPlain = 0, kLtTransposed = 1 };
enum LtOperationAttribute : int { kLtTransposeA = 3, kLtTransposeB = 4 };
enum LtLayoutAttribute : int { kLtBatches = 5, kLtBatchStride = 6 };
enum LtPreferenceAttribute : int {
  kLtMaxWorkspaceBytes = 1,
  kLtReductions = 3,
  kLtAlignmentA = 5,
  kLtAlignmentB = 6,
  kLtAlignmentC = 7,
  kLtAlignmentD = 8,
};
/// Sums of a product that is cut along k are kept in the type of computation.
inline constexpr std::uint32_t kLtReduceInComputeType = 2;
inline constexpr LtStatus kLtInvalidValue = 7;

/// X(name in Library, symbol of the library, parameters); all return LtStatus.
#define TESSERA_CUBLASLT_FUNCTIONS(X)                                          \
  X(create, cublasLtCreate, (LtHandle * handle))                               \
  X(destroy, cublasLtDestroy, (LtHandle handle))                               \
  X(operationCreate, cublasLtMatmulDescCreate,                                 \
    (LtOperation * operation, int compute, int scaleType))                     \
  X(operationSet, cublasLtMatmulDescSetAttribute,                              \
    (LtOperation operation, int attribute, const void *value,                  \
     std::size_t bytes))                                                       \
  X(operationDestroy, cublasLtMatmulDescDestroy, (LtOperation operation))      \
  X(layoutCreate, cublasLtMatrixLayoutCreate,                                  \
    (LtLayout * layout, int type, std::uint64_t rows, std::uint64_t columns,   \
     std::int64_t leading))                                                    \
  X(layoutSet, cublasLtMatrixLayoutSetAttribute,                               \
    (LtLayout layout, int attribute, const void *value, std::size_t bytes))    \
  X(layoutDestroy, cublasLtMatrixLayoutDestroy, (LtLayout layout))             \
  X(preferenceCreate, cublasLtMatmulPreferenceCreate,                          \
    (LtPreference * preference))                                               \
  X(preferenceSet, cublasLtMatmulPreferenceSetAttribute,                       \
    (LtPreference preference, int attribute, const void *value,                \
     std::size_t bytes))                                                       \
  X(preferenceDestroy, cublasLtMatmulPreferenceDestroy,                        \
    (LtPreference preference))                                                 \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic,                                 \
    (LtHandle handle, LtOperation operation, LtLayout a, LtLayout b,           \
     LtLayout c, LtLayout d, LtPreference preference, int wanted,              \
     LtHeuristic *results, int *count))                                        \
  X(multiply, cublasLtMatmul,                                                  \
    (LtHandle handle, LtOperation operation, const void *alpha, const void *a, \
     LtLayout aLayout, const void *b, LtLayout bLayout, const void *beta,      \
     const void *c, LtLayout cLayout, void *d, LtLayout dLayout,               \
     const LtAlgorithm *algorithm, void *workspace,                            \
     std::size_t workspaceBytes, Stream stream))

} // namespace tessera::hal::cuda
