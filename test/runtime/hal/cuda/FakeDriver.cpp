// libcuda-fake.so: the functions of the CUDA driver that the runtime uses
// (Api.h), on GPUs that do not exist. A code object is, in the place of a
// cubin, the shared object of the same kernels for the emulated GPU; PTX is a
// text that names such a file after "// object: ". Of a real cubin it takes the
// facts (architecture, kernels, their arguments, threads and shared memory),
// and runs what the artifact that it is from has for the emulated GPU, one of
// TESSERA_FAKE_CUDA_TWINS (A:B…).
//
// Settings, by the environment: TESSERA_FAKE_CUDA_ + GPUS, CAPABILITY (80),
// MEMORY (bytes), VERSION (13000), THREADS (of a block, for every kernel),
// STATIC_SHARED (bytes of every kernel), FAIL (FUNCTION:CALL:RESULT),
// HOST_COLLECTIVES (1: those of NCCL call functions of the host, as between
// nodes),
// MICROSECONDS (that each kernel takes, on a clock of events of its own),
// BLOCK_MICROSECONDS (that each of its blocks adds).
#include "runtime/hal/emulated/TensorMap.h"
#include "test/runtime/hal/cuda/FakeGpu.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace tessera::test {

// A copy of which `valid` says whether it stays within memory, now and when it
// is done.
template <typename Valid>
static Result copyLater(FakeGpus &all, Stream stream, void *to,
                        const void *from, std::size_t bytes, Valid valid) {
  FAKE_REQUIRE(all.streams.contains(stream), "a copy in no stream",
               kInvalidHandle);
  FAKE_REQUIRE(valid(), "a copy leaves its memory", kInvalidValue);
  return all.submit(
      stream,
      [&all, valid, to, from, bytes] {
        FAKE_REQUIRE(valid(), "a copy after a free", kIllegalAddress);
        std::memcpy(to, from, bytes);
        return Result(kSuccess);
      },
      kCopyNode);
}

extern "C" {

//===--- for FakeCuda.h ---------------------------------------------------===//

const char *tesseraFakeLeaks() {
  static std::string text;
  text = FakeGpus::get().leaks();
  return text.c_str();
}
const char *tesseraFakeMisuse() { return FakeGpus::get().misuse.c_str(); }
unsigned tesseraFakeCalls(const char *function) {
  return FakeGpus::get().calls[function];
}
void tesseraFakeReset() { FakeGpus::get().reset(); }
/// For the fake NCCL: `operation` in the stream's order, also where it is
/// captured. It returns kNotReady as long as others have not done their part.
Result tesseraFakeSubmit(Stream stream,
                         const std::function<Result()> &operation) {
  FAKE_ENTER(tesseraFakeSubmit, kContext);
  FAKE_REQUIRE(all.streams.contains(stream), "a collective in no stream",
               kInvalidHandle);
  return all.submit(stream, operation,
                    setting("TESSERA_FAKE_CUDA_HOST_COLLECTIVES", 0) != 0
                        ? kHostNode
                        : kKernelNode);
}

//===--- driver and device ------------------------------------------------===//

Result cuInit(unsigned flags) {
  FAKE_ENTER(cuInit, kNothing);
  FAKE_REQUIRE(flags == 0, "cuInit with flags", kInvalidValue);
  if (setting("TESSERA_FAKE_CUDA_GPUS", 1) == 0)
    return kNoDevice;
  all.initialized = true;
  return kSuccess;
}

Result cuDriverGetVersion(int *version) {
  FAKE_ENTER(cuDriverGetVersion, kNothing);
  *version = static_cast<int>(setting("TESSERA_FAKE_CUDA_VERSION", 13000));
  return kSuccess;
}

Result cuGetErrorName(Result result, const char **text) {
  static thread_local std::string name;
  name = fmt::format("CUDA_ERROR_{}", result);
  *text = name.c_str();
  return kSuccess;
}

Result cuGetErrorString(Result result, const char **text) {
  static thread_local std::string words;
  words = fmt::format("fake result {}", result);
  *text = words.c_str();
  return kSuccess;
}

Result cuDeviceGetCount(int *count) {
  FAKE_ENTER(cuDeviceGetCount, kInitialized);
  *count = static_cast<int>(setting("TESSERA_FAKE_CUDA_GPUS", 1));
  return kSuccess;
}

Result cuDeviceGet(DeviceNumber *device, int ordinal) {
  FAKE_ENTER(cuDeviceGet, kInitialized);
  FAKE_REQUIRE(ordinal >= 0 && std::uint64_t(ordinal) <
                                   setting("TESSERA_FAKE_CUDA_GPUS", 1),
               "cuDeviceGet of none", kInvalidDevice);
  *device = ordinal;
  return kSuccess;
}

Result cuDeviceGetName(char *name, int bytes, DeviceNumber) {
  FAKE_ENTER(cuDeviceGetName, kInitialized);
  std::snprintf(name, static_cast<std::size_t>(bytes), "Fake GPU");
  return kSuccess;
}

Result cuDeviceGetAttribute(int *value, int attribute, DeviceNumber) {
  FAKE_ENTER(cuDeviceGetAttribute, kInitialized);
  switch (attribute) {
  case kMultiprocessorCount:
    *value = 108;
    return kSuccess;
  case kL2Bytes:
    *value = 1 << 16;
    return kSuccess;
  case kCapabilityMajor:
    *value = static_cast<int>(capability() / 10);
    return kSuccess;
  case kCapabilityMinor:
    *value = static_cast<int>(capability() % 10);
    return kSuccess;
  case kMaxSharedBytesOptIn:
    *value = static_cast<int>(mostSharedBytes());
    return kSuccess;
  default:
    return all.wrong("unknown device attribute");
  }
}

Result cuTensorMapEncodeTiled(device::TensorMap *map, int element,
                              std::uint32_t rank, void *address,
                              const std::uint64_t *sizes,
                              const std::uint64_t *strides,
                              const std::uint32_t *box,
                              const std::uint32_t *steps, int interleaving,
                              int swizzle, int promotion, int outside) {
  FAKE_ENTER(cuTensorMapEncodeTiled, kContext);
  FAKE_REQUIRE(rank >= 1 && rank <= 5 && interleaving == kNoInterleaving &&
                   promotion == kPromoteTo128Bytes && outside == kZerosOutside,
               "a tensor map of another kind", kInvalidValue);
  device::TensorBoxes boxes;
  boxes.element = static_cast<device::MapElement>(element);
  boxes.rank = rank;
  boxes.base = reinterpret_cast<std::uintptr_t>(address);
  boxes.swizzle = static_cast<device::Swizzle>(swizzle);
  std::copy_n(sizes, rank, boxes.sizes);
  std::copy_n(strides, rank - 1, boxes.strides);
  std::copy_n(box, rank, boxes.box);
  FAKE_REQUIRE(std::all_of(steps, steps + rank,
                           [](std::uint32_t step) { return step == 1; }),
               "a tensor map that leaves elements out", kInvalidValue);
  FAKE_REQUIRE(emulated::makeTensorMap(boxes, *map).ok(),
               "a tensor map that the driver refuses", kInvalidValue);
  return kSuccess;
}

Result cuDevicePrimaryCtxRetain(Context *context, DeviceNumber device) {
  FAKE_ENTER(cuDevicePrimaryCtxRetain, kInitialized);
  auto &entry = all.contexts[device];
  if (!entry)
    entry = std::make_unique<ContextTag>(ContextTag{device});
  ++entry->retains;
  *context = entry.get();
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(DeviceNumber device) {
  FAKE_ENTER(cuDevicePrimaryCtxRelease_v2, kInitialized);
  const auto found = all.contexts.find(device);
  FAKE_REQUIRE(found != all.contexts.end(), "release of no context",
               kInvalidContext);
  if (--found->second->retains == 0)
    all.contexts.erase(found);
  return kSuccess;
}

Result cuCtxPushCurrent_v2(Context context) {
  FAKE_ENTER(cuCtxPushCurrent_v2, kInitialized);
  FAKE_REQUIRE(std::any_of(all.contexts.begin(), all.contexts.end(),
                           [&](const auto &entry) {
                             return entry.second.get() == context;
                           }),
               "push of no context", kInvalidContext);
  currentContexts().push_back(context);
  return kSuccess;
}

Result cuCtxPopCurrent_v2(Context *context) {
  FAKE_ENTER(cuCtxPopCurrent_v2, kFree);
  *context = currentContexts().back();
  currentContexts().pop_back();
  return kSuccess;
}

//===--- memory -----------------------------------------------------------===//

Result cuMemGetInfo_v2(std::size_t *free, std::size_t *total) {
  FAKE_ENTER(cuMemGetInfo_v2, kContext);
  *total = setting("TESSERA_FAKE_CUDA_MEMORY", std::uint64_t(1) << 30);
  *free = *total - all.memory.used();
  return kSuccess;
}

Result cuMemAlloc_v2(Address *address, std::size_t bytes) {
  FAKE_ENTER(cuMemAlloc_v2, kContext | kNoCapture);
  FAKE_REQUIRE(bytes > 0, "cuMemAlloc of nothing", kInvalidValue);
  const std::size_t total =
      setting("TESSERA_FAKE_CUDA_MEMORY", std::uint64_t(1) << 30);
  if (bytes > total - all.memory.used())
    return kOutOfMemory;
  *address = all.memory.allocate(bytes);
  return *address ? kSuccess : kOutOfMemory;
}

Result cuMemFree_v2(Address address) {
  FAKE_ENTER(cuMemFree_v2, kFree | kNoCapture);
  all.finish(); // as the driver does
  FAKE_REQUIRE(all.memory.release(address), "cuMemFree of none", kInvalidValue);
  return all.sticky;
}

Result cuMemHostAlloc(void **address, std::size_t bytes, unsigned) {
  FAKE_ENTER(cuMemHostAlloc, kContext | kNoCapture);
  auto *memory = static_cast<std::byte *>(std::malloc(bytes));
  all.pinned[memory] = bytes;
  *address = memory;
  return kSuccess;
}

Result cuMemFreeHost(void *address) {
  FAKE_ENTER(cuMemFreeHost, kFree | kNoCapture);
  FAKE_REQUIRE(all.pinned.erase(static_cast<std::byte *>(address)),
               "cuMemFreeHost of none", kInvalidValue);
  std::free(address);
  return all.sticky;
}

Result cuMemcpyHtoDAsync_v2(Address to, const void *from, std::size_t bytes,
                            Stream stream) {
  FAKE_ENTER(cuMemcpyHtoDAsync_v2, kContext);
  return copyLater(all, stream, reinterpret_cast<void *>(to), from, bytes,
                   [&all, to, from, bytes] {
                     return all.memory.holds(to, bytes) &&
                            all.holdsPinned(from, bytes);
                   });
}

Result cuMemcpyDtoHAsync_v2(void *to, Address from, std::size_t bytes,
                            Stream stream) {
  FAKE_ENTER(cuMemcpyDtoHAsync_v2, kContext);
  return copyLater(all, stream, to, reinterpret_cast<const void *>(from), bytes,
                   [&all, to, from, bytes] {
                     return all.memory.holds(from, bytes) &&
                            all.holdsPinned(to, bytes);
                   });
}

Result cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes,
                            Stream stream) {
  FAKE_ENTER(cuMemcpyDtoDAsync_v2, kContext);
  FAKE_REQUIRE((to > from ? to - from : from - to) >= bytes,
               "a copy on the GPU overlaps itself", kInvalidValue);
  return copyLater(
      all, stream, reinterpret_cast<void *>(to),
      reinterpret_cast<const void *>(from), bytes, [&all, to, from, bytes] {
        return all.memory.holds(to, bytes) && all.memory.holds(from, bytes);
      });
}

Result cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes,
                       Stream stream) {
  FAKE_ENTER(cuMemsetD8Async, kContext);
  FAKE_REQUIRE(all.streams.contains(stream), "a fill in no stream",
               kInvalidHandle);
  FAKE_REQUIRE(all.memory.holds(to, bytes), "a fill leaves its memory",
               kInvalidValue);
  return all.submit(
      stream,
      [&all, to, value, bytes] {
        FAKE_REQUIRE(all.memory.holds(to, bytes), "a fill after a free",
                     kIllegalAddress);
        std::memset(reinterpret_cast<void *>(to), value, bytes);
        return Result(kSuccess);
      },
      kFillNode);
}

} // extern "C"

} // namespace tessera::test
