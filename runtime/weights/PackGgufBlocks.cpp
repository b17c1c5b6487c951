// Blocks: ggml-common.h of ggml-org/ggml. A block of Q8_0 or Q4_0 is a group of
// 32 integers with an f16 scale; one of a K-quant a super-block.
#include "runtime/weights/PackGgufBlocks.h"
#include "runtime/data/gguf/GgufLayouts.h"
#include "runtime/support/SuperBlocks.h"

#include <array>
#include <cassert>
#include <cstring>

namespace tessera {
namespace {

/// A block, read byte by byte.
struct Block {
  const uint8_t *bytes;

  uint16_t half(int64_t at) const {
    return uint16_t(bytes[at] | bytes[at + 1] << 8);
  }
};

/// What a super-block is made of: unsigned q, and the 16 bytes of scales.
struct SuperBlock {
  uint16_t d = 0, dmin = 0;
  std::array<uint8_t, 16> scales{};
  std::array<uint8_t, QuantizedLayout::kSuperBlock> q{};
};

/// One lane of a micropanel.
struct Lane {
  std::span<uint32_t> words;
  std::span<uint16_t> scales;
  int64_t lane;

  uint32_t &word(int64_t i) const { return words[i * kMicropanel + lane]; }
  void setScale(int64_t i, uint16_t bits) const {
    scales[i * kMicropanel + lane] = bits;
  }
  /// Byte i of the lane's words, whose others stay.
  void setScaleByte(int64_t i, uint8_t byte) const {
    uint16_t &half = scales[2 * (i / 4 * kMicropanel + lane) + i % 4 / 2];
    const int shift = i % 2 * 8;
    half = uint16_t((half & ~(0xff << shift)) | byte << shift);
  }
  void setScaleWord(int64_t i, uint32_t bits) const {
    std::memcpy(&scales[2 * (i * kMicropanel + lane)], &bits, sizeof bits);
  }
};

//===--- blocks of a file -------------------------------------------------===//

// d f16 | dmin f16 | 12 bytes of eight scales and minima | of 5 bits the fifth
// bits, 32 bytes | lowest four bits, 128 bytes. Of 64 consecutive columns the
// first 32 are the lower halves of bytes, the rest the upper ones. Bit i of
// byte j of the fifth bits is that of column 32 i + j.
SuperBlock readMinima(Block block, bool hasFifth) {
  SuperBlock to{.d = block.half(0), .dmin = block.half(2)};
  const uint8_t *packed = block.bytes + 4, *fifth = block.bytes + 16,
                *low = fifth + (hasFifth ? 32 : 0);
  // The first four have the lowest six bits of a byte. Of the others four bits
  // are in the last four bytes, and two above those of the first ones.
  for (int i = 0; i < 4; ++i) {
    to.scales[i] = packed[i] & 63;
    to.scales[8 + i] = packed[4 + i] & 63;
    to.scales[4 + i] = uint8_t((packed[8 + i] & 15) | (packed[i] >> 6 << 4));
    to.scales[12 + i] =
        uint8_t((packed[8 + i] >> 4) | (packed[4 + i] >> 6 << 4));
  }
  for (int k = 0; k < 256; ++k) {
    const int half = low[k / 64 * 32 + k % 32] >> (k / 32 % 2 * 4) & 15;
    const int upper = hasFifth ? fifth[k % 32] >> (k / 32) & 1 : 0;
    to.q[k] = uint8_t(half | upper << 4);
  }
  return to;
}

// Lowest four bits, 128 bytes | upper two, 64 bytes | 16 signed scales | d f16.
// Of 128 consecutive columns the first 64 are the lower halves of their 64
// bytes, and column 32 i + j has bits 2 i of byte j of the upper two.
SuperBlock readSigned(Block block) {
  SuperBlock to{.d = block.half(208)};
  std::memcpy(to.scales.data(), block.bytes + 192, to.scales.size());
  for (int k = 0; k < 256; ++k) {
    const int part = k / 128, at = k % 128;
    const int half = block.bytes[part * 64 + at % 64] >> (at / 64 * 4) & 15;
    const int upper =
        block.bytes[128 + part * 32 + at % 32] >> (at / 32 * 2) & 3;
    to.q[k] = uint8_t(half | upper << 4);
  }
  return to;
}

//===--- words of a micropanel --------------------------------------------===//

void packSuperBlock(const SuperBlock &from, int64_t bits, int64_t index,
                    const Lane &to) {
  constexpr int64_t kBlocks = QuantizedLayout::kSuperBlock / kQuantBlock;
  for (int64_t block = 0; block < kBlocks; ++block) {
    std::array<uint32_t, 6> words{};
    for (int64_t k = 0; k < kQuantBlock; ++k) {
      const uint32_t q = from.q[block * kQuantBlock + k];
      words[k / 8] |= (q & 15) << (k % 8 * 4);
      if (bits == 4)
        continue;
      const UpperBits upper = upperBitsAt(bits, k);
      words[upper.word] |= q >> 4 << upper.bit;
    }
    for (int64_t i = 0; i < bits; ++i)
      to.word((index * kBlocks + block) * bits + i) = words[i];
  }
  const int64_t first = index * QuantizedLayout::kSuperScales;
  to.setScaleWord(first, from.d | uint32_t(from.dmin) << 16);
  for (int64_t i = 0; i < 4; ++i) {
    uint32_t word = 0;
    for (int64_t byte = 0; byte < 4; ++byte)
      word |= uint32_t(from.scales[4 * i + byte]) << (8 * byte);
    to.setScaleWord(first + 1 + i, word);
  }
}

// d f16 | 32 signed bytes.
void packBytes(Block block, int64_t index, const Lane &to) {
  to.setScale(index, block.half(0));
  for (int64_t i = 0; i < 8; ++i) {
    uint32_t word = 0;
    for (int64_t byte = 0; byte < 4; ++byte)
      word |= uint32_t(block.bytes[2 + 4 * i + byte]) << (8 * byte);
    to.word(index * 8 + i) = word;
  }
}

// 16 bytes: the first 16 numbers in their lower halves.
void packHalves(const uint8_t *bytes, int64_t index, const Lane &to) {
  for (int64_t i = 0; i < 4; ++i) {
    uint32_t word = 0;
    for (int64_t j = 0; j < 8; ++j) {
      const int64_t k = 8 * i + j;
      const uint32_t q = bytes[k % 16] >> (k / 16 * 4) & 15;
      word |= q << (4 * j);
    }
    to.word(index * 4 + i) = word;
  }
}

// d f16 | halves. A file adds 8 to integers, too.
void packIntegers(Block block, int64_t index, const Lane &to) {
  to.setScale(index, block.half(0));
  packHalves(block.bytes + 2, index, to);
}

// Exponent, a byte | halves.
void packMxfp4(Block block, int64_t index, const Lane &to) {
  to.setScaleByte(index, block.bytes[0]);
  packHalves(block.bytes + 1, index, to);
}

} // namespace

std::optional<QuantizedLayout> layoutOfBlocks(GgufType type, int64_t rows,
                                              int64_t columns) {
  const auto info = ggufTypeInfo(type);
  auto layout = info ? ggufLayout(info->name) : std::nullopt;
  if (!layout || columns % layout->group != 0)
    return std::nullopt;
  layout->rows = rows;
  layout->columns = columns;
  return layout;
}

void packBlocks(GgufType type, const QuantizedLayout &layout,
                std::span<const std::byte> blocks, int64_t lane,
                std::span<uint32_t> words, std::span<uint16_t> scales) {
  const GgufTypeInfo info = *ggufTypeInfo(type);
  assert(layoutOfBlocks(type, layout.rows, layout.columns) == layout);
  assert(int64_t(blocks.size()) == layout.columns / info.block * info.bytes);
  const Lane to{words, scales, lane};
  const auto *from = reinterpret_cast<const uint8_t *>(blocks.data());
  for (int64_t i = 0; i < layout.columns / info.block; ++i, from += info.bytes)
    switch (type) {
    case GgufType::Q8_0:
      packBytes({from}, i, to);
      break;
    case GgufType::Q4_0:
      packIntegers({from}, i, to);
      break;
    case GgufType::MXFP4:
      packMxfp4({from}, i, to);
      break;
    case GgufType::Q6_K:
      packSuperBlock(readSigned({from}), layout.bits, i, to);
      break;
    default:
      packSuperBlock(readMinima({from}, layout.bits == 5), layout.bits, i, to);
    }
}

} // namespace tessera
