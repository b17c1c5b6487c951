// NcclApi.h against NVIDIA's own header: values, sizes and signatures. Nothing
// runs here but what says that it was compared.
#include "runtime/comm/nccl/NcclApi.h"

#include <gtest/gtest.h>

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

namespace tessera::comm::nccl {
namespace {

/// Types that travel alike in a call.
template <typename A, typename B>
constexpr bool isAlike = sizeof(A) == sizeof(B) && alignof(A) == alignof(B) &&
                         std::is_pointer_v<A> == std::is_pointer_v<B> &&
                         std::is_class_v<A> == std::is_class_v<B>;
template <typename A, typename B> constexpr bool isSame = isAlike<A, B>;
template <> constexpr bool isSame<void *, void *> = true;
template <> constexpr bool isSame<const void *, const void *> = true;
template <> constexpr bool isSame<Communicator, ncclComm_t> = true;
template <> constexpr bool isSame<Stream, cudaStream_t> = true;
template <typename A, typename B>
  requires requires { sizeof(A) + sizeof(B); }
constexpr bool isSame<A *, B *> = isAlike<A, B>;

template <typename A, typename B> constexpr bool isSameCall = false;
template <typename ResultA, typename ResultB, typename... A, typename... B>
  requires(sizeof...(A) == sizeof...(B))
constexpr bool isSameCall<ResultA(A...), ResultB(B...)> =
    isSame<ResultA, ResultB> && (isSame<A, B> && ...);

#define CHECK_FUNCTION(member, symbol, parameters)                             \
  static_assert(isSameCall<Result parameters, decltype(::symbol)>, #symbol);
TESSERA_NCCL_FUNCTIONS(CHECK_FUNCTION)
static_assert(!isSameCall<Result(int *), Result(int)>);

static_assert(kSuccess == ncclSuccess && kInProgress == ncclInProgress);
static_assert(sizeof(UniqueId) == NCCL_UNIQUE_ID_BYTES);
static_assert(int(kInt8) == ncclInt8 && int(kUint8) == ncclUint8);
static_assert(int(kInt32) == ncclInt32 && int(kInt64) == ncclInt64);
static_assert(int(kFloat16) == ncclFloat16 && int(kFloat32) == ncclFloat32);
static_assert(int(kFloat64) == ncclFloat64 && int(kBfloat16) == ncclBfloat16);
static_assert(int(kSum) == ncclSum && int(kMax) == ncclMax &&
              int(kMin) == ncclMin);

TEST(NcclApi, EqualsTheHeader) { SUCCEED(); }

} // namespace
} // namespace tessera::comm::nccl

#else

TEST(NcclApi, EqualsTheHeader) {
  GTEST_SKIP() << "there is no nccl.h on this machine";
}

#endif
