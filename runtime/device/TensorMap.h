// Tensor maps: descriptors by which the copy engine of sm_90 (TMA) finds boxes
// of a tensor in global memory.
#pragma once
#include <stdint.h>

namespace tessera::device {

/// 128 bytes that only the machine reads: on a GPU a CUtensorMap, as the driver
/// fills it; on the emulated GPU what emulated::makeTensorMap writes. It lies
/// in global memory or is a parameter of the kernel (__grid_constant__ const).
struct alignas(64) TensorMap {
  uint64_t words[16];
};

/// Where a 16-byte chunk of shared memory really lies: bits 4 and up of its
/// address are exchanged by XOR with those from bit 7 on; one bit for a span of
/// 32 bytes, two for 64, three for 128. The pattern repeats after eight spans.
/// Values as in CUtensorMapSwizzle.
enum class Swizzle : uint8_t { none, b32, b64, b128 };

/// Bytes of a span; 16 where nothing is exchanged.
constexpr int spanOf(Swizzle swizzle) {
  return 16 << static_cast<int>(swizzle);
}

template <Swizzle S> inline constexpr int kSpan = spanOf(S);

/// Values as in CUtensorMapDataType.
enum class MapElement : uint8_t {
  u8 = 0,
  u16 = 1,
  u32 = 2,
  i32 = 3,
  u64 = 4,
  i64 = 5,
  f16 = 6,
  f32 = 7,
  f64 = 8,
  bf16 = 9,
};

/// The arguments of cuTensorMapEncodeTiled that are not always the same
/// (elements one after another, no interleaving, zeros out of bounds).
/// Dimension 0 is the innermost one, whose elements are neighbours.
struct TensorBoxes {
  MapElement element = MapElement::bf16;
  uint32_t rank = 2;        ///< 1 to 5
  uint64_t base = 0;        ///< address in global memory, 16-byte aligned
  uint64_t sizes[5] = {};   ///< of the tensor, in elements
  uint64_t strides[4] = {}; ///< of dimensions 1, 2, …: bytes, 16 × n
  uint32_t box[5] = {};     ///< elements, at most 256 in a dimension
  Swizzle swizzle = Swizzle::none;
};

} // namespace tessera::device
