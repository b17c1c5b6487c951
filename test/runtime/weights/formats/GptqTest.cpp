// Matrices as GPTQ's tools store them, written here from the format's
// definition, and where their integers and scales come to lie.
#include "runtime/support/Floats.h"
#include "runtime/weights/ImportWeights.h"
#include "test/runtime/weights/OneMatrix.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

/// q and scales of a matrix [rows, columns], and its tensors as files have
/// them.
struct Matrix {
  QuantizedLayout layout;
  std::vector<uint32_t> words, zeros;
  std::vector<uint16_t> scales;
  std::vector<int32_t> groups;
  uint64_t wordRows;

  explicit Matrix(const QuantizedLayout &layout) : layout(layout) {
    int64_t perWord = layout.perWord(), rows = layout.rows;
    wordRows = uint64_t(layout.columns / perWord);
    words.resize(wordRows * uint64_t(rows));
    for (int64_t k = 0; k < layout.columns; ++k) {
      groups.push_back(int32_t(k / layout.group));
      for (int64_t n = 0; n < rows; ++n)
        words[size_t(k / perWord * rows + n)] |= stored(n, k)
                                                 << (k % perWord * layout.bits);
    }
    for (int64_t i = 0; i < layout.groups() * rows; ++i)
      scales.push_back(floatToF16(float(i + 1) / 64));
    zeros.assign(size_t(layout.groups() * ((rows + perWord - 1) / perWord)),
                 layout.bits == 4 ? 0x77777777u : 0x7F7F7F7Fu);
  }
  /// As files have it: with the middle added.
  uint32_t stored(int64_t n, int64_t k) const {
    return uint32_t(n * 7 + k * 5 + k / 32) % (layout.bits == 4 ? 16 : 256);
  }

  void write(const std::string &path) const {
    auto rows = uint64_t(layout.rows), parts = uint64_t(layout.groups());
    PackedFile file;
    file.add("x.qweight", SafetensorsType::i32, {wordRows, rows}, words);
    file.add("x.scales", SafetensorsType::f16, {parts, rows}, scales);
    file.add("x.qzeros", SafetensorsType::i32, {parts, zeros.size() / parts},
             zeros);
    file.add("x.g_idx", SafetensorsType::i32, {groups.size()}, groups);
    file.write(path);
  }

  std::string problem() const {
    ScratchDirectory folder;
    write(folder / "model.safetensors");
    OneMatrix model(layout);
    auto report = importWeights(folder / "model.safetensors", model);
    return report.ok() ? "" : report.message();
  }
};

QuantizedLayout layoutOf(int64_t bits) { return {24, 64, bits, 32}; }

} // namespace

TEST(Gptq, BringsEachIntegerToItsLane) {
  for (int64_t bits : {4, 8}) {
    const QuantizedLayout layout = layoutOf(bits);
    Matrix matrix(layout);
    ScratchDirectory folder;
    matrix.write(folder / "model.safetensors");
    OneMatrix model(layout);
    auto report = importWeights(folder / "model.safetensors", model);
    ASSERT_TRUE(report.ok()) << report.message();
    EXPECT_TRUE(report->unexpected.empty());
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t n = 0; n < layout.micropanels() * 16; ++n)
      for (int64_t k = 0; k < layout.columns; ++k) {
        int64_t word = (n / 16 * layout.words() + k / layout.perWord()) * 16;
        uint32_t kept = model.at<uint32_t>("x.values", word + n % 16) >>
                            (k % layout.perWord() * bits) &
                        mask;
        // Of 8 bits a signed integer, of 4 one with 8 added; 0 beside the rows.
        uint32_t zero = bits == 4 ? 8 : 128;
        uint32_t q = n < layout.rows ? matrix.stored(n, k) : zero;
        ASSERT_EQ(kept, bits == 4 ? q : (q - zero) & mask) << n << " " << k;
        int64_t group = k / layout.group;
        uint16_t scale = n < layout.rows
                             ? matrix.scales[size_t(group * layout.rows + n)]
                             : 0;
        ASSERT_EQ(model.at<uint16_t>("x.scales",
                                     (n / 16 * layout.groups() + group) * 16 +
                                         n % 16),
                  scale);
      }
  }
}

TEST(Gptq, BringsZeroPointsBesideScales) {
  for (int64_t bits : {4, 8}) {
    QuantizedLayout layout = layoutOf(bits);
    layout.zeros = true;
    Matrix matrix(layout);
    // Of row n and group g; the first version has 1 less in each place.
    auto zero = [&](int64_t n, int64_t g) {
      return uint32_t(1 + n * 5 + g * 3) % (1u << bits);
    };
    const int64_t perWord = layout.perWord(), width = layout.rows / perWord;
    for (int64_t g = 0; g < layout.groups(); ++g)
      for (int64_t n = 0; n < layout.rows; n += perWord) {
        uint32_t word = 0;
        for (int64_t i = 0; i < perWord; ++i)
          word |= zero(n + i, g) << (i * bits);
        matrix.zeros[size_t(g * width + n / perWord)] =
            word - (bits == 4 ? 0x11111111u : 0x01010101u);
      }
    ScratchDirectory folder;
    matrix.write(folder / "model.safetensors");
    OneMatrix model(layout);
    auto report = importWeights(folder / "model.safetensors", model);
    ASSERT_TRUE(report.ok()) << report.message();
    for (int64_t n = 0; n < layout.micropanels() * 16; ++n)
      for (int64_t g = 0; g < layout.groups(); ++g) {
        bool isThere = n < layout.rows;
        int64_t at = (n / 16 * layout.scaleRows() + 2 * g) * 16 + n % 16;
        ASSERT_EQ(model.at<uint16_t>("x.scales", at),
                  isThere ? matrix.scales[size_t(g * layout.rows + n)] : 0);
        ASSERT_EQ(f16ToFloat(model.at<uint16_t>("x.scales", at + 16)),
                  isThere ? float(zero(n, g)) - float(1 << (bits - 1)) : 0)
            << n << " " << g;
      }
  }
}

TEST(Gptq, SaysWhatItDoesNotRead) {
  auto has = [](const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
  };
  Matrix zeros(layoutOf(4)), order(layoutOf(4)), shape(layoutOf(4)),
      scale(layoutOf(4));
  EXPECT_EQ(zeros.problem(), "");
  zeros.zeros.assign(zeros.zeros.size(), 0x88888888u);
  EXPECT_EQ(zeros.problem(), "") << "the second version of the format";
  zeros.zeros[0] = 0x78888888u;
  EXPECT_TRUE(has(zeros.problem(), "zero points other than the middle"));
  std::swap(order.groups.front(), order.groups.back());
  EXPECT_TRUE(has(order.problem(), "columns in another order"));
  shape.wordRows /= 2;
  shape.words.resize(shape.words.size() / 2);
  EXPECT_TRUE(has(shape.problem(), "it would be [8, 24]"));
  scale.scales[3] = 0x7C00; // infinite
  EXPECT_TRUE(has(scale.problem(), "has the scale inf"));
}
