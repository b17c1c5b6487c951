// Blocks of GGUF in micropanels: written here from the format's definition,
// and where each integer and scale is kept; and as floats, to the last bit.
#include "runtime/weights/PackGgufBlocks.h"
#include "runtime/support/Floats.h"
#include "runtime/weights/DequantizeMatrix.h"
#include "runtime/weights/PackedWeights.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <vector>

using namespace tessera;

namespace {

constexpr int64_t kPackedRows = 19, kPackedColumns = 512;

/// A matrix in blocks, and its micropanels.
struct BlockMatrix {
  GgufType type;
  QuantizedLayout layout;
  std::vector<uint8_t> bytes;
  std::vector<uint32_t> words;
  std::vector<uint16_t> scales;

  explicit BlockMatrix(GgufType type)
      : type(type), layout(*layoutOfBlocks(type, kPackedRows, kPackedColumns)),
        bytes(kPackedRows * rowBytes()) {}
  int64_t blockBytes() const { return ggufTypeInfo(type)->bytes; }
  int64_t rowBytes() const {
    return kPackedColumns / ggufTypeInfo(type)->block * blockBytes();
  }
  /// The block that has column k, and the column's place in it.
  uint8_t *block(int64_t n, int64_t k) {
    return &bytes[n * rowBytes() +
                  k / ggufTypeInfo(type)->block * blockBytes()];
  }
  void setHalf(uint8_t *at, uint16_t bits) {
    at[0] = uint8_t(bits);
    at[1] = uint8_t(bits >> 8);
  }
  void pack() {
    const int64_t micropanels = layout.micropanels();
    words.assign(micropanels * layout.words() * 16, layout.zeroWord());
    scales.assign(
        micropanels * layout.scaleRows() * 16 * layout.scaleBytes() / 2, 0);
    const auto each = words.size() / micropanels,
               ofScales = scales.size() / micropanels;
    for (int64_t n = 0; n < kPackedRows; ++n)
      packBlocks(
          type, layout,
          std::as_bytes(std::span(bytes)).subspan(n * rowBytes(), rowBytes()),
          n % 16, std::span(words).subspan(n / 16 * each, each),
          std::span(scales).subspan(n / 16 * ofScales, ofScales));
  }
  uint32_t word(int64_t n, int64_t i) const {
    return words[(n / 16 * layout.words() + i) * 16 + n % 16];
  }
  uint32_t scaleWord(int64_t n, int64_t i) const {
    uint32_t word = 0;
    std::memcpy(&word,
                &scales[2 * ((n / 16 * layout.scaleRows() + i) * 16 + n % 16)],
                sizeof word);
    return word;
  }
};

uint8_t integer(int64_t n, int64_t k, int64_t bits) {
  return uint8_t((n * 37 + k * 11 + k / 32 * 5) % (1 << bits));
}
/// Byte i of 16 of a super-block's scales.
uint8_t scaleByte(int64_t n, int64_t super, int64_t i, int64_t most) {
  return uint8_t((n * 29 + super * 13 + i * 7) % most);
}

/// Q4_K and Q5_K: halves | fifth bits, from the definition of blocks.
void writeMinima(BlockMatrix &to, bool hasFifth) {
  for (int64_t n = 0; n < kPackedRows; ++n)
    for (int64_t k = 0; k < kPackedColumns; k += 256) {
      uint8_t *block = to.block(n, k);
      to.setHalf(block, uint16_t(0x1000 + n * 8 + k / 256));
      to.setHalf(block + 2, uint16_t(0x2000 + n * 8 + k / 256));
      for (int64_t i = 0; i < 8; ++i) {
        const uint8_t scale = scaleByte(n, k / 256, i, 64),
                      least = scaleByte(n, k / 256, 8 + i, 64);
        uint8_t *packed = block + 4;
        if (i < 4) {
          packed[i] |= scale;
          packed[4 + i] |= least;
        } else {
          packed[4 + i] |= uint8_t((scale & 15) | (least & 15) << 4);
          packed[i - 4] |= uint8_t(scale >> 4 << 6);
          packed[i] |= uint8_t(least >> 4 << 6);
        }
      }
      uint8_t *fifth = block + 16, *low = fifth + (hasFifth ? 32 : 0);
      for (int64_t at = 0; at < 256; ++at) {
        const uint8_t q = integer(n, k + at, hasFifth ? 5 : 4);
        low[at / 64 * 32 + at % 32] |=
            uint8_t((q & 15) << (at % 64 < 32 ? 0 : 4));
        if (hasFifth)
          fifth[at % 32] |= uint8_t((q >> 4) << (at / 32));
      }
    }
}

void writeSigned(BlockMatrix &to) {
  for (int64_t n = 0; n < kPackedRows; ++n)
    for (int64_t k = 0; k < kPackedColumns; k += 256) {
      uint8_t *block = to.block(n, k);
      to.setHalf(block + 208, uint16_t(0x1000 + n * 8 + k / 256));
      for (int64_t i = 0; i < 16; ++i)
        block[192 + i] = scaleByte(n, k / 256, i, 256);
      for (int64_t at = 0; at < 256; ++at) {
        const uint8_t q = integer(n, k + at, 6);
        const int64_t half = at / 128, in = at % 128;
        block[half * 64 + in % 64] |= uint8_t((q & 15) << (in < 64 ? 0 : 4));
        block[128 + half * 32 + in % 32] |= uint8_t(q >> 4 << (in / 32 * 2));
      }
    }
}

/// The q that a block's words hold for its column k.
uint32_t keptSuper(const BlockMatrix &matrix, int64_t n, int64_t k) {
  const int64_t bits = matrix.layout.bits, first = k / 32 * bits,
                i = k % 32 / 8, byte = k % 8 / 2, odd = k % 2;
  uint32_t q = matrix.word(n, first + i) >> (4 * (k % 8)) & 15;
  if (bits == 5)
    q |= (matrix.word(n, first + 4) >> (8 * byte + 2 * i + odd) & 1) << 4;
  if (bits == 6)
    q |= (matrix.word(n, first + 4 + i / 2) >>
              (8 * byte + 4 * (i % 2) + 2 * odd) &
          3)
         << 4;
  return q;
}

void expectSuperBlocks(const BlockMatrix &matrix, int64_t most) {
  for (int64_t n = 0; n < kPackedRows; ++n) {
    for (int64_t k = 0; k < kPackedColumns; ++k)
      ASSERT_EQ(keptSuper(matrix, n, k), integer(n, k, matrix.layout.bits))
          << n << " " << k;
    for (int64_t super = 0; super < 2; ++super) {
      const auto d = uint32_t(0x1000 + n * 8 + super),
                 dmin = uint32_t(0x2000 + n * 8 + super);
      EXPECT_EQ(matrix.scaleWord(n, super * 5),
                matrix.layout.bits == 6 ? d : d | dmin << 16);
      for (int64_t i = 0; i < 16; ++i)
        EXPECT_EQ(matrix.scaleWord(n, super * 5 + 1 + i / 4) >> (i % 4 * 8) &
                      255,
                  scaleByte(n, super, i, most));
    }
  }
}

} // namespace

TEST(PackGgufBlocks, TakesSuperBlocksOfFourAndFiveBits) {
  for (bool hasFifth : {false, true}) {
    BlockMatrix matrix(hasFifth ? GgufType::Q5_K : GgufType::Q4_K);
    writeMinima(matrix, hasFifth);
    matrix.pack();
    expectSuperBlocks(matrix, 64);
  }
}

TEST(PackGgufBlocks, TakesSuperBlocksOfSixBits) {
  BlockMatrix matrix(GgufType::Q6_K);
  writeSigned(matrix);
  matrix.pack();
  expectSuperBlocks(matrix, 256);
}

TEST(PackGgufBlocks, TakesIntegersOfEightBits) {
  BlockMatrix matrix(GgufType::Q8_0);
  for (int64_t n = 0; n < kPackedRows; ++n)
    for (int64_t k = 0; k < kPackedColumns; ++k) {
      matrix.setHalf(matrix.block(n, k), uint16_t(0x1000 + n * 16 + k / 32));
      matrix.block(n, k)[2 + k % 32] = integer(n, k, 8);
    }
  matrix.pack();
  for (int64_t n = 0; n < kPackedRows; ++n)
    for (int64_t k = 0; k < kPackedColumns; ++k) {
      ASSERT_EQ(matrix.word(n, k / 4) >> (k % 4 * 8) & 255, integer(n, k, 8));
      ASSERT_EQ(matrix.scales[(n / 16 * 16 + k / 32) * 16 + n % 16],
                0x1000 + n * 16 + k / 32);
    }
}

TEST(PackGgufBlocks, TakesIntegersOfFourBits) {
  BlockMatrix matrix(GgufType::Q4_0);
  for (int64_t n = 0; n < kPackedRows; ++n)
    for (int64_t k = 0; k < kPackedColumns; ++k) {
      matrix.setHalf(matrix.block(n, k), uint16_t(0x1000 + n * 16 + k / 32));
      matrix.block(n, k)[2 + k % 16] |=
          uint8_t(integer(n, k, 4) << (k % 32 < 16 ? 0 : 4));
    }
  matrix.pack();
  for (int64_t n = 0; n < kPackedRows; ++n)
    for (int64_t k = 0; k < kPackedColumns; ++k) {
      ASSERT_EQ(matrix.word(n, k / 8) >> (k % 8 * 4) & 15, integer(n, k, 4));
      ASSERT_EQ(matrix.scales[(n / 16 * 16 + k / 32) * 16 + n % 16],
                0x1000 + n * 16 + k / 32);
    }
}

TEST(PackGgufBlocks, TakesFloatsOfFourBits) {
  BlockMatrix matrix(GgufType::MXFP4);
  for (int64_t n = 0; n < kPackedRows; ++n)
    for (int64_t k = 0; k < kPackedColumns; ++k) {
      matrix.block(n, k)[0] = uint8_t(90 + n + k / 32);
      matrix.block(n, k)[1 + k % 16] |=
          uint8_t(integer(n, k, 4) << (k % 32 < 16 ? 0 : 4));
    }
  matrix.pack();
  EXPECT_EQ(matrix.scales.size(), size_t(2 * 4 * 16 * 2));
  for (int64_t n = 0; n < kPackedRows; ++n)
    for (int64_t k = 0; k < kPackedColumns; ++k) {
      ASSERT_EQ(matrix.word(n, k / 8) >> (k % 8 * 4) & 15, integer(n, k, 4));
      ASSERT_EQ(matrix.scaleWord(n, k / 128) >> (k / 32 % 4 * 8) & 255,
                90 + n + k / 32);
    }
}

TEST(PackGgufBlocks, KeepsEveryWeight) {
  std::mt19937 engine(3);
  for (GgufType type : {GgufType::Q4_K, GgufType::Q5_K, GgufType::Q6_K,
                        GgufType::Q8_0, GgufType::Q4_0, GgufType::MXFP4}) {
    BlockMatrix matrix(type);
    for (uint8_t &byte : matrix.bytes)
      byte = uint8_t(engine());
    // Steps that are numbers.
    const bool hasTwo = type == GgufType::Q4_K || type == GgufType::Q5_K;
    for (int64_t at = 0; at < int64_t(matrix.bytes.size());
         at += matrix.blockBytes()) {
      uint8_t *block = &matrix.bytes[at];
      if (type == GgufType::MXFP4) {
        block[0] = uint8_t(engine() % 252); // 0 is subnormal
        continue;
      }
      matrix.setHalf(block + (type == GgufType::Q6_K ? 208 : 0),
                     floatToF16(float(engine() % 1000) / 3000 - 0.15f));
      if (hasTwo)
        matrix.setHalf(block + 2, floatToF16(float(engine() % 1000) / 3000));
    }
    matrix.pack();
    std::vector<float> wanted(kPackedRows * kPackedColumns);
    dequantize(type, std::as_bytes(std::span(matrix.bytes)), wanted);
    const std::vector<float> kept =
        dequantizeMatrix(matrix.layout, std::as_bytes(std::span(matrix.words)),
                         std::as_bytes(std::span(matrix.scales)));
    ASSERT_EQ(kept.size(), wanted.size());
    for (size_t i = 0; i < kept.size(); ++i)
      ASSERT_EQ(kept[i], wanted[i])
          << ggufTypeInfo(type)->name << ", weight " << i;
  }
}

TEST(PackGgufBlocks, TakesWholeBlocksOfSomeTypes) {
  EXPECT_FALSE(layoutOfBlocks(GgufType::Q4_K, 16, 384));
  EXPECT_FALSE(layoutOfBlocks(GgufType::Q8_0, 16, 48));
  EXPECT_FALSE(layoutOfBlocks(GgufType::Q4_1, 16, 256));
  EXPECT_FALSE(layoutOfBlocks(GgufType::BF16, 16, 256));
  EXPECT_EQ(layoutOfBlocks(GgufType::Q8_0, 16, 96),
            (QuantizedLayout{.rows = 16, .columns = 96}));
  EXPECT_EQ(
      layoutOfBlocks(GgufType::MXFP4, 3, 96),
      (QuantizedLayout{.rows = 3, .columns = 96, .bits = 4, .floats = true}));
  EXPECT_EQ(layoutOfBlocks(GgufType::Q5_K, 3, 512),
            (QuantizedLayout{.rows = 3,
                             .columns = 512,
                             .bits = 5,
                             .group = 256,
                             .superBlocks = true}));
}

TEST(PackGgufBlocks, AreNotWrittenAsCompressedTensors) {
  const auto layout = layoutOfBlocks(GgufType::Q6_K, 16, 256);
  const Status status = checkPackable("x.weight", *layout, false);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("'x.weight' is kept in super-blocks of 6"),
            std::string::npos)
      << status.message();
}
