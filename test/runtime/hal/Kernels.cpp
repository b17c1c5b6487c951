// Kernels for the conformance suite, compiled to a shared object as the
// compiler makes them: C symbols, no dependencies. Block b of a kernel with
// size n covers elements [64 b, min(64 b + 64, n)).
#include <cstdint>

namespace {
constexpr std::int64_t kBlock = 64;
std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

template <typename Body>
void forElements(const std::int64_t *sizes, std::int64_t begin,
                 std::int64_t end, Body body) {
  for (std::int64_t i = begin * kBlock, n = least(end * kBlock, sizes[0]);
       i < n; ++i)
    body(i);
}
} // namespace

extern "C" {

// out[i] = i
void iota(void *const *buffers, const std::int64_t *sizes, std::int64_t begin,
          std::int64_t end, void *) {
  auto *out = static_cast<float *>(buffers[0]);
  forElements(sizes, begin, end,
              [&](std::int64_t i) { out[i] = static_cast<float>(i); });
}

// out = 2 in + 1, also in place
void scale(void *const *buffers, const std::int64_t *sizes, std::int64_t begin,
           std::int64_t end, void *) {
  const auto *in = static_cast<const float *>(buffers[0]);
  auto *out = static_cast<float *>(buffers[1]);
  forElements(sizes, begin, end,
              [&](std::int64_t i) { out[i] = 2 * in[i] + 1; });
}

// sum += in
void accumulate(void *const *buffers, const std::int64_t *sizes,
                std::int64_t begin, std::int64_t end, void *) {
  const auto *in = static_cast<const float *>(buffers[0]);
  auto *sum = static_cast<float *>(buffers[1]);
  forElements(sizes, begin, end, [&](std::int64_t i) { sum[i] += in[i]; });
}

// partial[b] = sum of 1 / (1 + in) over block b, in order: fixed by the block,
// whatever the ranges
void partial_sums(void *const *buffers, const std::int64_t *sizes,
                  std::int64_t begin, std::int64_t end, void *) {
  const auto *in = static_cast<const float *>(buffers[0]);
  auto *partial = static_cast<float *>(buffers[1]);
  for (std::int64_t b = begin; b < end; ++b) {
    float sum = 0;
    for (std::int64_t i = b * kBlock; i < least((b + 1) * kBlock, sizes[0]);
         ++i)
      sum += 1 / (1 + in[i]);
    partial[b] = sum;
  }
}

// out[0] = sum of in, in order; one block
void total(void *const *buffers, const std::int64_t *sizes, std::int64_t,
           std::int64_t, void *) {
  const auto *in = static_cast<const float *>(buffers[0]);
  float sum = 0;
  for (std::int64_t i = 0; i < sizes[0]; ++i)
    sum += in[i];
  static_cast<float *>(buffers[1])[0] = sum;
}

// Reverses every block by way of scratch, which another thread would spoil;
// an unaligned scratch or buffer leaves the output as it was.
void reverse_blocks(void *const *buffers, const std::int64_t *sizes,
                    std::int64_t begin, std::int64_t end, void *scratch) {
  const auto *in = static_cast<const float *>(buffers[0]);
  auto *out = static_cast<float *>(buffers[1]);
  auto *copy = static_cast<volatile float *>(scratch);
  if ((reinterpret_cast<std::uintptr_t>(scratch) |
       reinterpret_cast<std::uintptr_t>(in) |
       reinterpret_cast<std::uintptr_t>(out)) %
      64)
    return;
  for (std::int64_t b = begin; b < end; ++b) {
    const std::int64_t first = b * kBlock;
    const std::int64_t count = least(kBlock, sizes[0] - first);
    for (std::int64_t i = 0; i < count; ++i)
      copy[i] = in[first + i];
    for (std::int64_t i = 0; i < count; ++i)
      out[first + i] = copy[count - 1 - i];
  }
}

// Every block waits until all sizes[0] blocks are inside, then tells where its
// scratch lies: shows which threads share one, whatever the timing.
void meet(void *const *buffers, const std::int64_t *sizes, std::int64_t begin,
          std::int64_t end, void *scratch) {
  auto *inside = static_cast<std::int64_t *>(buffers[0]);
  for (std::int64_t b = begin; b < end; ++b)
    static_cast<std::int64_t *>(buffers[1])[b] =
        reinterpret_cast<std::intptr_t>(scratch);
  __atomic_add_fetch(inside, end - begin, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(inside, __ATOMIC_SEQ_CST) < sizes[0])
    ;
}

// runs[b] += 1: every block exactly once
void count_runs(void *const *buffers, const std::int64_t *, std::int64_t begin,
                std::int64_t end, void *) {
  for (std::int64_t b = begin; b < end; ++b)
    static_cast<std::int32_t *>(buffers[0])[b] += 1;
}

// out = sqrt(in - 5) by its bits: NaN where in < 5
void nan_below_five(void *const *buffers, const std::int64_t *sizes,
                    std::int64_t begin, std::int64_t end, void *) {
  const auto *in = static_cast<const float *>(buffers[0]);
  auto *out = static_cast<std::uint32_t *>(buffers[1]);
  forElements(sizes, begin, end, [&](std::int64_t i) {
    out[i] = in[i] < 5 ? 0x7fc00000u : 0x3f800000u;
  });
}

// Block b copies box (b / 2, b % 2), 4 × 16 elements of 16 bits, of a matrix
// of 6 × 20 whose rows are 24 apart; zeros where there is none.
void take_boxes(void *const *buffers, const std::int64_t *, std::int64_t begin,
                std::int64_t end, void *) {
  const auto *in = static_cast<const std::uint16_t *>(buffers[0]);
  auto *out = static_cast<std::uint16_t *>(buffers[1]);
  for (std::int64_t b = begin; b < end; ++b)
    for (std::int64_t i = 0; i < 64; ++i) {
      const std::int64_t row = b / 2 * 4 + i / 16, column = b % 2 * 16 + i % 16;
      out[b * 64 + i] = row < 6 && column < 20 ? in[row * 24 + column] : 0;
    }
}
}
