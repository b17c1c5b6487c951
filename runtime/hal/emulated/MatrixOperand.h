// Operands of wgmma in shared memory: descriptors and where the elements lie
// that they describe (PTX ISA, "Asynchronous warpgroup level matrix shared
// memory layout").
#pragma once
#include "runtime/device/emulated/Machine.h"
#include "runtime/support/Status.h"

#include <vector>

namespace tessera::emulated {

/// Depth of one product, in bytes.
inline constexpr unsigned kDepthBytes = 32;

/// The fields of a descriptor; addresses and offsets in bytes.
struct MatrixDescriptor {
  explicit MatrixDescriptor(std::uint64_t bits);
  std::uint32_t start, leading, stride;
  unsigned baseOffset;
  device::Swizzle swizzle;
};

/// The address in shared memory that a swizzle turns `address` into.
std::uint32_t swizzled(std::uint32_t address, device::Swizzle swizzle);

/// The addresses of the 16-byte chunks of an operand of `rows` rows (of A) or
/// columns (of B). K-major: chunk 2 · row + c holds bytes 16 c to 16 c + 15 of
/// the row's depth. MN-major, 16-bit elements: chunk k · rows / 8 + j holds
/// elements 8 j to 8 j + 7 at depth k. An error where the layout is none of the
/// documented ones.
StatusOr<std::vector<std::uint32_t>>
chunksOf(const MatrixDescriptor &descriptor, bool mnMajor, unsigned rows);

unsigned bytesOf(device::MatrixElement element);
const char *nameOf(device::MatrixElement element);
/// The number stored at `bytes`; of tf32 the low 13 bits are ignored.
float readElement(device::MatrixElement element, const std::byte *bytes);

/// The operand itself, by depth: element (row, k) at [k · rows + row].
std::vector<float> gather(const std::byte *shared,
                          const std::vector<std::uint32_t> &chunks,
                          device::MatrixElement element, bool mnMajor,
                          unsigned rows);

} // namespace tessera::emulated
