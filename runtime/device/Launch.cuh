// How a kernel gets its arguments. A launch has one or more instances: the same
// kernel on other buffers. The first instance is passed with the launch; the
// others are in a table in global memory, which is written once, since
// addresses are planned.
#pragma once
#include "runtime/device/Types.cuh"

namespace tessera::device {

/// The same address, as one of global memory. Of addresses out of a table the
/// compiler would not know it, and accesses would be generic.
template <typename T> TESSERA_DEVICE T *global(T *address) {
#if defined(__CUDACC__)
  uint64_t window = __cvta_generic_to_global(address);
  asm("mov.b64 %0, %0;" : "+l"(window)); // or the casts cancel each other
  return static_cast<T *>(__cvta_global_to_generic(window));
#else
  return address;
#endif
}

/// One instance: words of 8 bytes throughout, so that a host can write it
/// without knowing the template.
template <int Buffers, int Sizes> struct Instance {
  uint64_t buffers[Buffers];
  int64_t sizes[Sizes + 1]; ///< and the number of its first block

  template <typename T> TESSERA_DEVICE T *buffer(int i) const {
    return reinterpret_cast<T *>(buffers[i]);
  }
  TESSERA_DEVICE int64_t firstBlock() const { return sizes[Sizes]; }
};

/// One that may be out of the table.
template <int Buffers, int Sizes>
struct TableInstance : Instance<Buffers, Sizes> {
  template <typename T> TESSERA_DEVICE T *buffer(int i) const {
    return global(Instance<Buffers, Sizes>::template buffer<T>(i));
  }
};

template <int Buffers, int Sizes> struct Launch {
  Instance<Buffers, Sizes> first;
  const Instance<Buffers, Sizes> *others; ///< instances 1 … count − 1
  int64_t count;

  /// The instance that the running block belongs to.
  TESSERA_DEVICE TableInstance<Buffers, Sizes> instance() const {
    int64_t low = 0, high = count; // the last one that starts at or before it
    while (high - low > 1) {
      int64_t middle = (low + high) / 2;
      if (others[middle - 1].firstBlock() <= blockNumber())
        low = middle;
      else
        high = middle;
    }
    if (low == 0) // parameters, which are in constant memory
      return {first};
    return {others[low - 1]};
  }
};

} // namespace tessera::device

/// Opens the definition of kernel `name`, inside namespace tessera::device: on
/// a GPU the symbol tessera_NAME, so that no kernel is taken for a function of
/// the C library; on the host NAME_emulated, by which the emulated GPU finds
/// it.
#if defined(__CUDACC__)
#define TESSERA_KERNEL(name, threads, buffers, sizes)                          \
  extern "C" __global__ void __launch_bounds__(threads)                        \
      tessera_##name(const __grid_constant__ Launch<buffers, sizes> launch)
#else
#define TESSERA_KERNEL(name, threads, buffers, sizes)                          \
  static void kernel_##name(const Launch<buffers, sizes> &);                   \
  extern "C" void name##_emulated(Machine &caller, const void *arguments) {    \
    machine = &caller;                                                         \
    caller.enter({threads});                                                   \
    kernel_##name(*static_cast<const Launch<buffers, sizes> *>(arguments));    \
  }                                                                            \
  static void kernel_##name(const Launch<buffers, sizes> &launch)
#endif

/// The number of threads of a TESSERA_KERNEL whose blocks have a multiprocessor
/// to themselves: its registers are divided among them.
#define TESSERA_ALONE(threads) threads, 1
