// Matrices in blocks of a GGUF file, written here from the format's definition,
// and where integers and scales come to lie.
#include "runtime/data/gguf/GgufRows.h"
#include "runtime/support/Floats.h"
#include "runtime/weights/ImportWeights.h"
#include "test/runtime/weights/OneMatrix.h"

#include <gmock/gmock.h>

using namespace tessera;
using namespace tessera::testing;

namespace {

/// The bytes of a file with one tensor, "x" [rows, columns].
class GgufBytes {
public:
  GgufBytes(GgufType type, uint64_t rows, uint64_t columns,
            std::span<const std::byte> blocks) {
    text("GGUF");
    number(uint32_t(3));
    number(uint64_t(1)); // tensors
    number(uint64_t(0)); // pairs
    number(uint64_t(1));
    text("x");
    number(uint32_t(2));
    number(columns);
    number(rows);
    number(uint32_t(type));
    number(uint64_t(0));
    all.resize((all.size() + 31) / 32 * 32);
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
  std::vector<std::byte> all;

private:
  template <typename T> void number(T value) {
    auto bytes = std::as_bytes(std::span(&value, 1));
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  void text(std::string_view value) {
    auto bytes = std::as_bytes(std::span(value));
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
};

/// A matrix with rows and columns that are not whole micropanels, q and scales
/// of the file's rows.
struct GgufMatrix {
  static constexpr uint64_t kRows = 40, kColumns = 96;
  GgufType type = GgufType::Q8_0;
  int64_t heads = 0;
  bool transposed = false;
  uint16_t firstScale = scale(0, 0);

  static int q8(uint64_t n, uint64_t k) {
    return int((n * 31 + k * 7) % 256) - 128;
  }
  static int q4(uint64_t n, uint64_t k) {
    return int((n * 5 + k * 3 + k / 16) % 16) - 8;
  }
  static uint16_t scale(uint64_t n, uint64_t group) {
    return floatToF16(float(n * 3 + group + 1) / 64);
  }
  bool isQ8() const { return type == GgufType::Q8_0; }
  int q(uint64_t n, uint64_t k) const { return isQ8() ? q8(n, k) : q4(n, k); }

  std::vector<std::byte> blocks() const {
    std::vector<std::byte> bytes;
    for (uint64_t n = 0; n < kRows; ++n)
      for (uint64_t group = 0; group < kColumns / 32; ++group) {
        const uint16_t d = n == 0 && group == 0 ? firstScale : scale(n, group);
        bytes.push_back(std::byte(d & 255));
        bytes.push_back(std::byte(d >> 8));
        const uint64_t k = group * 32;
        for (uint64_t i = 0; i < (isQ8() ? 32 : 16); ++i)
          bytes.push_back(isQ8() ? std::byte(q8(n, k + i))
                                 : std::byte((q4(n, k + i) + 8) |
                                             (q4(n, k + i + 16) + 8) << 4));
      }
    return bytes;
  }
  StatusOr<ImportReport> import(OneMatrix &model) const {
    const GgufBytes bytes(type, kRows, kColumns, blocks());
    auto parsed = GgufFile::parse(bytes.all, "x.gguf");
    EXPECT_TRUE(parsed.ok()) << parsed.message();
    auto file = std::make_shared<const GgufFile>(parsed.take());
    GgufRows rows;
    rows.file = file.get();
    rows.tensor = file->tensor("x");
    rows.rows = kRows;
    rows.columns = kColumns;
    rows.heads = heads;
    rows.transposed = transposed;
    std::vector<uint64_t> shape{kRows, kColumns};
    if (transposed)
      std::swap(shape[0], shape[1]);
    std::vector<SafetensorsEntry> entries{
        ggufEntry("x.weight", shape, file, rows)};
    auto weights = std::make_shared<const SafetensorsModel>(
        SafetensorsModel::of(SafetensorsFile::of("x.gguf", entries)));
    return importWeights(WeightFiles("x.gguf", weights), model);
  }
  std::string problem(const QuantizedLayout &layout) const {
    OneMatrix model(layout);
    auto report = import(model);
    return report.ok() ? "" : report.message();
  }
};

QuantizedLayout layoutOf(int64_t bits) {
  return {GgufMatrix::kRows, GgufMatrix::kColumns, bits, 32};
}

/// Row n of the model is row `from` of the file.
void expectRow(const GgufMatrix &matrix, OneMatrix &model, int64_t n,
               uint64_t from) {
  const int64_t bits = matrix.isQ8() ? 8 : 4, perWord = 32 / bits,
                words = GgufMatrix::kColumns / perWord;
  for (int64_t k = 0; k < int64_t(GgufMatrix::kColumns); ++k) {
    const auto word = model.at<uint32_t>(
        "x.values", (n / 16 * words + k / perWord) * 16 + n % 16);
    const uint32_t kept = word >> (k % perWord * bits);
    const int q = matrix.isQ8() ? int8_t(kept) : int(kept & 15) - 8;
    ASSERT_EQ(q, matrix.q(from, uint64_t(k))) << n << " " << k;
  }
  for (int64_t group = 0; group < 3; ++group)
    ASSERT_EQ(
        model.at<uint16_t>("x.scales", (n / 16 * 3 + group) * 16 + n % 16),
        GgufMatrix::scale(from, uint64_t(group)))
        << n << " " << group;
}

} // namespace

TEST(GgufBlocks, ComeToTheirLanesBitForBit) {
  for (GgufType type : {GgufType::Q8_0, GgufType::Q4_0}) {
    GgufMatrix matrix{.type = type};
    OneMatrix model(layoutOf(matrix.isQ8() ? 8 : 4));
    auto report = matrix.import(model);
    ASSERT_TRUE(report.ok()) << report.message();
    for (int64_t n = 0; n < int64_t(GgufMatrix::kRows); ++n)
      expectRow(matrix, model, n, uint64_t(n));
    // Rows that are not there.
    EXPECT_EQ(
        model.at<uint32_t>("x.values", 2 * (matrix.isQ8() ? 24 : 12) * 16 + 15),
        matrix.isQ8() ? 0u : 0x88888888u);
  }
}

TEST(GgufBlocks, HaveRotaryRowsInTheCheckpointsOrder) {
  // In a head of 20 rows the pairs are adjacent in the file.
  GgufMatrix matrix{.type = GgufType::Q4_0, .heads = 2};
  OneMatrix model(layoutOf(4));
  auto report = matrix.import(model);
  ASSERT_TRUE(report.ok()) << report.message();
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t pair = 0; pair < 10; ++pair)
      for (int64_t half = 0; half < 2; ++half)
        expectRow(matrix, model, head * 20 + half * 10 + pair,
                  uint64_t(head * 20 + 2 * pair + half));
}

TEST(GgufBlocks, AreNotRoundedAgain) {
  EXPECT_THAT(GgufMatrix{}.problem(layoutOf(4)),
              ::testing::HasSubstr("is Q8_0, and the program expects another "
                                   "layout; compile it for this file"));
  GgufMatrix other{.type = GgufType::Q4_0};
  EXPECT_THAT(other.problem({GgufMatrix::kRows, GgufMatrix::kColumns, 4, 64}),
              ::testing::HasSubstr("is Q4_0"));
  GgufMatrix across{.transposed = true};
  EXPECT_THAT(across.problem(layoutOf(8)),
              ::testing::HasSubstr("has the shape [96, 40]"));
}

// What is wrong with a matrix whose blocks are these.
static std::string problemOf(GgufType type, const QuantizedLayout &layout,
                             const std::vector<std::byte> &blocks) {
  const auto rows = uint64_t(layout.rows), columns = uint64_t(layout.columns);
  const GgufBytes bytes(type, rows, columns, blocks);
  auto parsed = GgufFile::parse(bytes.all, "x.gguf");
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  auto file = std::make_shared<const GgufFile>(parsed.take());
  GgufRows source;
  source.file = file.get();
  source.tensor = file->tensor("x");
  source.rows = rows;
  source.columns = columns;
  std::vector<SafetensorsEntry> entries{
      ggufEntry("x.weight", {rows, columns}, file, source)};
  auto weights = std::make_shared<const SafetensorsModel>(
      SafetensorsModel::of(SafetensorsFile::of("x.gguf", entries)));
  OneMatrix model(layout);
  auto report = importWeights(WeightFiles("x.gguf", weights), model);
  return report.ok() ? "" : report.message();
}

// Of super-blocks d and dmin, at each end of the matrix.
TEST(GgufBlocks, HaveFiniteFactorsOfSuperBlocks) {
  constexpr uint64_t kRows = 24, kColumns = 512, kBytes = 144;
  const QuantizedLayout layout{.rows = kRows,
                               .columns = kColumns,
                               .bits = 4,
                               .group = 256,
                               .superBlocks = true};
  std::vector<std::byte> blocks(kRows * kColumns / 256 * kBytes);
  auto problem = [&] { return problemOf(GgufType::Q4_K, layout, blocks); };
  EXPECT_EQ(problem(), "");
  for (size_t at : {size_t(1), size_t(3), blocks.size() - kBytes + 1,
                    blocks.size() - kBytes + 3}) {
    blocks[at] = std::byte(0x7C); // infinite
    EXPECT_THAT(problem(), ::testing::HasSubstr("is not finite")) << at;
    blocks[at] = std::byte(0);
  }
  // Bytes of scales are any.
  for (size_t at = 4; at < 16; ++at)
    blocks[at] = std::byte(255);
  EXPECT_EQ(problem(), "");
}

// Of mxfp4 the exponents.
TEST(GgufBlocks, HaveFinitePowersOfTwo) {
  constexpr uint64_t kRows = 24, kColumns = 160, kBytes = 17;
  const QuantizedLayout layout{
      .rows = kRows, .columns = kColumns, .bits = 4, .floats = true};
  std::vector<std::byte> blocks(kRows * kColumns / 32 * kBytes);
  for (size_t at : {size_t(0), 3 * kBytes, blocks.size() - kBytes}) {
    blocks[at] = std::byte(252);
    EXPECT_EQ(problemOf(GgufType::MXFP4, layout, blocks), "");
    blocks[at] = std::byte(253);
    EXPECT_THAT(problemOf(GgufType::MXFP4, layout, blocks),
                ::testing::HasSubstr("is not finite"))
        << at;
    blocks[at] = std::byte(0);
  }
}

TEST(GgufBlocks, HaveFiniteScales) {
  for (uint16_t scale : {0x7C00, 0xFE00}) {
    GgufMatrix damaged{.firstScale = scale};
    EXPECT_THAT(damaged.problem(layoutOf(8)),
                ::testing::HasSubstr("'x' in 'x.gguf' has a scale that is not "
                                     "finite; the file is damaged"));
  }
}
