// Kernels.cpp for GPUs: the same kernels, as the compiler prints them, for a
// CUDA compiler or, against the emulated side of the device library, for the
// host's. Block b of a kernel with size n covers elements
// [64 b, min(64 b + 64, n)).
#include "runtime/device/Device.cuh"
#include "runtime/device/Hopper.cuh"

namespace tessera::device {

/// The place of the running thread in its instance of a launch.
template <int Buffers, int Sizes> struct Place {
  TESSERA_DEVICE explicit Place(const Launch<Buffers, Sizes> &launch)
      : instance(launch.instance()),
        block(blockNumber() - instance.firstBlock()),
        element(block * 64 + thread()) {}
  TESSERA_DEVICE bool isInside() const { return element < instance.sizes[0]; }

  TableInstance<Buffers, Sizes> instance;
  int64_t block, element;
};

template <typename T> TESSERA_DEVICE T read(const T *from, int64_t i) {
  checkRead(from + i, 1);
  return from[i];
}
template <typename T> TESSERA_DEVICE void write(T *to, int64_t i, T value) {
  checkWrite(to + i, 1);
  to[i] = value;
}

// out[i] = i
TESSERA_KERNEL(iota, 64, 1, 1) {
  Place place(launch);
  if (place.isInside())
    write(place.instance.buffer<float>(0), place.element,
          static_cast<float>(place.element));
}

// out = 2 in + 1, also in place
TESSERA_KERNEL(scale, 64, 2, 1) {
  Place place(launch);
  if (place.isInside())
    write(place.instance.buffer<float>(1), place.element,
          2 * read(place.instance.buffer<float>(0), place.element) + 1);
}

// sum += in
TESSERA_KERNEL(accumulate, 64, 2, 1) {
  Place place(launch);
  float *sum = place.instance.buffer<float>(1);
  if (place.isInside())
    write(sum, place.element,
          read(sum, place.element) +
              read(place.instance.buffer<float>(0), place.element));
}

// partial[b] = sum of 1 / (1 + in) over block b, in order
TESSERA_KERNEL(partial_sums, 64, 2, 1) {
  Place place(launch);
  if (thread() != 0)
    return;
  float sum = 0;
  for (int64_t i = place.element;
       i < place.element + 64 && i < place.instance.sizes[0]; ++i)
    sum += 1 / (1 + read(place.instance.buffer<float>(0), i));
  write(place.instance.buffer<float>(1), place.block, sum);
}

// out[0] = sum of in, in order; one block
TESSERA_KERNEL(total, 64, 2, 1) {
  Place place(launch);
  if (thread() != 0)
    return;
  float sum = 0;
  for (int64_t i = 0; i < place.instance.sizes[0]; ++i)
    sum += read(place.instance.buffer<float>(0), i);
  write(place.instance.buffer<float>(1), 0, sum);
}

// Reverses every block by way of shared memory.
TESSERA_KERNEL(reverse_blocks, 64, 2, 1) {
  Place place(launch);
  float *copy = reinterpret_cast<float *>(sharedMemory());
  if (place.isInside())
    write(copy, thread(), read(place.instance.buffer<float>(0), place.element));
  sync();
  int64_t first = place.block * 64, left = place.instance.sizes[0] - first;
  int64_t count = left < 64 ? left : 64;
  if (place.isInside())
    write(place.instance.buffer<float>(1), place.element,
          read(copy, count - 1 - thread()));
}

// runs[b] += 1: every block exactly once
TESSERA_KERNEL(count_runs, 64, 1, 0) {
  const auto &instance = launch.instance();
  int64_t block = blockNumber() - instance.firstBlock();
  int32_t *runs = instance.buffer<int32_t>(0);
  if (thread() == 0)
    write(runs, block, read(runs, block) + 1);
}

// out = sqrt(in - 5) by its bits: NaN where in < 5
TESSERA_KERNEL(nan_below_five, 64, 2, 1) {
  Place place(launch);
  if (place.isInside())
    write(place.instance.buffer<uint32_t>(1), place.element,
          read(place.instance.buffer<float>(0), place.element) < 5
              ? 0x7fc00000u
              : 0x3f800000u);
}

// Block b copies box (b / 2, b % 2), 4 × 16 elements of 16 bits, of a matrix
// of 6 × 20 whose rows are 24 apart; zeros where there is none.
TESSERA_KERNEL(take_boxes, 64, 3, 0) {
  const auto &instance = launch.first;
  int block = static_cast<int>(blockNumber());
  unsigned char *box = sharedMemory();
  Barrier &landed = *reinterpret_cast<Barrier *>(sharedMemory() + 128);
  if (thread() == 0) {
    initBarrier(landed, 1);
    fenceBarriers();
    arriveExpecting(landed, 128);
    acquireMap(*instance.buffer<const TensorMap>(2));
    loadBox(box, *instance.buffer<const TensorMap>(2), landed, block % 2 * 16,
            block / 2 * 4);
  }
  sync();
  await(landed, 0);
  write(instance.buffer<uint16_t>(1), block * 64 + thread(),
        read(reinterpret_cast<const uint16_t *>(box), thread()));
}

template <typename T>
TESSERA_DEVICE float valueAt(const Instance<3, 17> &instance, int buffer,
                             int64_t i) {
  return Convert<float>::from(read(instance.buffer<T>(buffer), i));
}

// A product of matrices, `Each` elements a thread: result = lhs · rhsᵀ, or +=.
// Sizes: m, n, k, batches; of lhs, rhs and result the offset, the strides from
// row to row and from column to column and from batch to batch; accumulates.
// Its operands are bf16 where the name says so, its result where it ends in it.
template <typename In, typename Out>
TESSERA_DEVICE void multiplyAt(const Instance<3, 17> &instance, int64_t at,
                               float start) {
  const int64_t *sizes = instance.sizes;
  int64_t m = sizes[0], n = sizes[1], k = sizes[2];
  if (at >= m * n * sizes[3])
    return;
  int64_t column = at % n, row = at / n % m, batch = at / n / m;
  const int64_t *lhs = sizes + 4, *rhs = sizes + 8, *result = sizes + 12;
  float sum = start;
  for (int64_t i = 0; i < k; ++i)
    sum += valueAt<In>(instance, 0,
                       lhs[0] + row * lhs[1] + i * lhs[2] + batch * lhs[3]) *
           valueAt<In>(instance, 1,
                       rhs[0] + column * rhs[1] + i * rhs[2] + batch * rhs[3]);
  int64_t to =
      result[0] + row * result[1] + column * result[2] + batch * result[3];
  if (sizes[16])
    sum += valueAt<Out>(instance, 2, to);
  write(instance.buffer<Out>(2), to, Convert<Out>::from(sum));
}
template <typename In, typename Out, int Each = 1>
TESSERA_DEVICE void multiply(const Launch<3, 17> &launch, float start = 0) {
  const Instance<3, 17> &instance = launch.instance();
  int64_t block = blockNumber() - instance.firstBlock();
  for (int i = 0; i < Each; ++i)
    multiplyAt<In, Out>(instance, (block * Each + i) * 64 + thread(), start);
}
TESSERA_KERNEL(product, 64, 3, 17) { multiply<float, float>(launch); }
TESSERA_KERNEL(product_bf16, 64, 3, 17) { multiply<bf16, bf16>(launch); }
TESSERA_KERNEL(product_bf16_f32, 64, 3, 17) { multiply<bf16, float>(launch); }
// Variants of `product`, the second one wrong.
TESSERA_KERNEL(product_wide, 64, 3, 17) { multiply<float, float, 4>(launch); }
TESSERA_KERNEL(product_off, 64, 3, 17) { multiply<float, float, 8>(launch, 1); }

// What Kernels.cpp shows of scratch, which GPUs do not have.
TESSERA_KERNEL(meet, 64, 2, 1) {}

} // namespace tessera::device
