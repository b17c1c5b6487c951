#include "runtime/hal/emulated/MatrixOperand.h"
#include "runtime/device/Mma.cuh"

#include <array>
#include <cmath>
#include <cstring>

namespace tessera::emulated {

using device::MatrixElement;
using device::Swizzle;

MatrixDescriptor::MatrixDescriptor(std::uint64_t bits) {
  constexpr Swizzle kModes[] = {Swizzle::none, Swizzle::b128, Swizzle::b64,
                                Swizzle::b32};
  auto field = [&](unsigned from) {
    return static_cast<std::uint32_t>(bits >> from & 0x3fff) * 16;
  };
  start = field(0);
  leading = field(16);
  stride = field(32);
  baseOffset = static_cast<unsigned>(bits >> 49 & 7);
  swizzle = kModes[bits >> 62];
}

std::uint32_t swizzled(std::uint32_t address, Swizzle swizzle) {
  std::uint32_t bits = (1u << static_cast<unsigned>(swizzle)) - 1;
  return address ^ ((address >> 7 & bits) << 4);
}

// K-major: rows of one span, groups of eight rows `stride` apart. Without a
// swizzle, the chunks of a row are `leading` apart.
static std::uint32_t chunkKMajor(const MatrixDescriptor &d, unsigned row,
                                 unsigned c) {
  std::uint32_t across = d.swizzle == Swizzle::none ? d.leading : 16;
  return swizzled(d.start + row % 8 * spanOf(d.swizzle) + row / 8 * d.stride +
                      c * across,
                  d.swizzle);
}

// MN-major: a span holds neighbouring rows of one depth, eight depths follow
// each other.
static std::uint32_t chunkMnMajor(const MatrixDescriptor &d, unsigned k,
                                  unsigned j) {
  if (d.swizzle == Swizzle::none)
    return d.start + k % 8 * 16 + k / 8 * d.leading + j * d.stride;
  unsigned span = spanOf(d.swizzle), chunks = span / 16;
  return swizzled(d.start + k % 8 * span + k / 8 * d.stride + j % chunks * 16 +
                      j / chunks * d.leading,
                  d.swizzle);
}

static Status check(const MatrixDescriptor &d, bool mnMajor, unsigned rows) {
  if (d.baseOffset)
    return Status::error("a descriptor with base offset {}; 0 belongs to "
                         "patterns that start at their boundary",
                         d.baseOffset);
  if (d.swizzle == Swizzle::none)
    return Status::success();
  unsigned span = spanOf(d.swizzle), inside = d.start % (8 * span);
  if (inside && (mnMajor || inside + kDepthBytes > span))
    return Status::error("a descriptor with a swizzle of {} bytes starts at "
                         "address {}, {} bytes after a multiple of {}",
                         span, d.start, inside, 8 * span);
  if (mnMajor && rows % (span / 2))
    return Status::error("an operand of {} rows is stored in blocks of {}",
                         rows, span / 2);
  return Status::success();
}

StatusOr<std::vector<std::uint32_t>>
chunksOf(const MatrixDescriptor &descriptor, bool mnMajor, unsigned rows) {
  if (Status status = check(descriptor, mnMajor, rows); !status.ok())
    return status;
  std::vector<std::uint32_t> chunks;
  chunks.reserve(rows * 2);
  if (mnMajor) {
    for (unsigned k = 0; k < kDepthBytes / 2; ++k)
      for (unsigned j = 0; j < rows / 8; ++j)
        chunks.push_back(chunkMnMajor(descriptor, k, j));
  } else {
    for (unsigned row = 0; row < rows; ++row)
      for (unsigned c = 0; c < 2; ++c)
        chunks.push_back(chunkKMajor(descriptor, row, c));
  }
  return chunks;
}

unsigned bytesOf(MatrixElement element) {
  switch (element) {
  case MatrixElement::bf16:
  case MatrixElement::f16:
    return 2;
  case MatrixElement::tf32:
    return 4;
  case MatrixElement::e4m3:
  case MatrixElement::e5m2:
    return 1;
  }
  return 0;
}

const char *nameOf(MatrixElement element) {
  constexpr const char *kNames[] = {"bf16", "f16", "tf32", "e4m3", "e5m2"};
  return kNames[static_cast<unsigned>(element)];
}

// Four bits of exponent with bias 7, three of mantissa, no infinity.
static float fromE4m3(unsigned bits) {
  unsigned exponent = bits >> 3 & 15, mantissa = bits & 7;
  float value = exponent == 15 && mantissa == 7 ? NAN
                : exponent ? std::ldexp(8.0f + static_cast<float>(mantissa),
                                        static_cast<int>(exponent) - 10)
                           : std::ldexp(static_cast<float>(mantissa), -9);
  return bits & 128 ? -value : value;
}

static std::array<float, 256> allOfE4m3() {
  std::array<float, 256> values;
  for (unsigned bits = 0; bits < values.size(); ++bits)
    values[bits] = fromE4m3(bits);
  return values;
}

template <typename Bits> static Bits bitsAt(const std::byte *bytes) {
  Bits bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

// Gives `use` what makes an element's bytes a float.
template <typename Use>
static auto withReader(MatrixElement element, const Use &use) {
  static const std::array<float, 256> e4m3 = allOfE4m3();
  switch (element) {
  case MatrixElement::bf16:
    return use([](const std::byte *at) {
      return device::toFloat(device::bf16{bitsAt<std::uint16_t>(at)});
    });
  case MatrixElement::f16:
    return use([](const std::byte *at) {
      return device::halfToFloat(bitsAt<std::uint16_t>(at));
    });
  case MatrixElement::tf32:
    return use([](const std::byte *at) {
      return device::bitsToFloat(bitsAt<std::uint32_t>(at) & ~0x1fffu);
    });
  case MatrixElement::e4m3:
    return use(
        [](const std::byte *at) { return e4m3[bitsAt<std::uint8_t>(at)]; });
  case MatrixElement::e5m2: // the upper half of an f16
    break;
  }
  return use([](const std::byte *at) {
    return device::halfToFloat(
        static_cast<std::uint16_t>(bitsAt<std::uint8_t>(at) << 8));
  });
}

float readElement(MatrixElement element, const std::byte *bytes) {
  return withReader(element, [&](auto read) { return read(bytes); });
}

std::vector<float> gather(const std::byte *shared,
                          const std::vector<std::uint32_t> &chunks,
                          MatrixElement element, bool mnMajor, unsigned rows) {
  unsigned bytes = bytesOf(element), depth = kDepthBytes / bytes;
  unsigned inChunk = 16 / bytes;
  std::vector<float> values(std::size_t(depth) * rows);
  withReader(element, [&](auto read) {
    for (unsigned k = 0; k < depth; ++k)
      for (unsigned row = 0; row < rows; ++row) {
        unsigned chunk =
            mnMajor ? k * (rows / 8) + row / 8 : row * 2 + k / inChunk;
        unsigned within = mnMajor ? row % 8 : k % inChunk;
        values[std::size_t(k) * rows + row] =
            read(shared + chunks[chunk] + within * bytes);
      }
  });
  return values;
}

} // namespace tessera::emulated
