// Magnitudes that begin as the norms of the base's rows.
#include "runtime/weights/Magnitudes.h"
#include "runtime/support/Floats.h"
#include "runtime/weights/ImportWeights.h"
#include "runtime/weights/MergeFactors.h"
#include "test/runtime/data/TestData.h"
#include "test/runtime/weights/OneMatrix.h"

#include <cmath>

namespace tessera {
namespace {

/// One layer at `path`, with an adapter of rank 1.
class OneLayer : public testing::FakeTrainModel {
public:
  OneLayer(const std::string &path, std::vector<uint64_t> shape, uint64_t in,
           uint64_t out, SafetensorsType type = SafetensorsType::f32) {
    add(path + ".weight", std::move(shape), type);
    add(path + ".lora_A.weight", {1, in});
    add(path + ".lora_B.weight", {out, 1});
    add(path + ".lora_magnitude_vector", {out});
    add(path + ".lora_weight_norm", {out});
  }
  const std::vector<StateTensor> &state() const override { return tensors; }
  Status readState(const StateTensor &tensor, uint64_t offset,
                   std::span<std::byte> out) override {
    std::memcpy(out.data(), held[tensor.name].data() + offset, out.size());
    return Status::success();
  }
  Status writeState(const StateTensor &tensor, uint64_t offset,
                    std::span<const std::byte> bytes) override {
    std::memcpy(held[tensor.name].data() + offset, bytes.data(), bytes.size());
    return Status::success();
  }
  std::vector<float> floats(const std::string &name) {
    std::vector<float> values(held[name].size() / sizeof(float));
    std::memcpy(values.data(), held[name].data(), held[name].size());
    return values;
  }

private:
  void add(const std::string &name, std::vector<uint64_t> shape,
           SafetensorsType type = SafetensorsType::f32) {
    uint64_t size = safetensorsBits(type) / 8;
    for (uint64_t each : shape)
      size *= each;
    tensors.push_back(
        {name, type, std::move(shape), StateRole::parameter, size});
    held[name].assign(size, std::byte(0));
  }
  std::vector<StateTensor> tensors;
  std::map<std::string, std::vector<std::byte>> held;
};

using Floats = std::vector<float>;
const Floats kSquare = {3, 4, 12, 5}; // rows of norms 5 and 13

class MagnitudesTest : public ::testing::Test {
protected:
  testing::ScratchDirectory scratch;
  std::string path() { return scratch / "model.safetensors"; }
};

TEST_F(MagnitudesTest, BeginAsNormsOfRows) {
  testing::PackedFile file;
  file.add("model.layers.0.q.weight", SafetensorsType::f32, {2, 2}, kSquare);
  file.write(path());
  OneLayer model("model.layers.0.q", {2, 2}, 2, 2);
  auto report = importWeights(path(), model);
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_TRUE(report->unexpected.empty());
  EXPECT_EQ(model.floats("model.layers.0.q.lora_magnitude_vector"),
            (Floats{5, 13}));
  EXPECT_EQ(model.floats("model.layers.0.q.lora_weight_norm"), (Floats{5, 13}));
}

TEST_F(MagnitudesTest, AreOfColumnsOfAConv1d) {
  testing::PackedFile file;
  file.add("transformer.h.0.q.weight", SafetensorsType::f32, {2, 2}, kSquare);
  file.write(path());
  OneLayer model("transformer.h.0.q", {2, 2}, 2, 2);
  ASSERT_TRUE(importWeights(path(), model).ok());
  EXPECT_EQ(model.floats("transformer.h.0.q.lora_magnitude_vector"),
            (Floats{std::sqrt(153.0f), std::sqrt(41.0f)}));
}

TEST_F(MagnitudesTest, AreOfWeightsAsTheModelHasThem) {
  const Floats fine = {1.001f, 0, 0, 1.003f};
  testing::PackedFile file;
  file.add("model.layers.0.q.weight", SafetensorsType::f32, {2, 2}, fine);
  file.write(path());
  OneLayer model("model.layers.0.q", {2, 2}, 2, 2, SafetensorsType::bf16);
  ASSERT_TRUE(importWeights(path(), model).ok());
  EXPECT_EQ(model.floats("model.layers.0.q.lora_weight_norm"),
            (Floats{bf16ToFloat(floatToBf16(fine[0])),
                    bf16ToFloat(floatToBf16(fine[3]))}));
}

TEST_F(MagnitudesTest, AreTheCheckpointsIfItHasAny) {
  const Floats factor = {1, 2}, magnitudes = {7, 8}, norms = {1, 1};
  testing::PackedFile file;
  file.add("model.layers.0.q.weight", SafetensorsType::f32, {2, 2}, kSquare);
  file.add("model.layers.0.q.lora_A.weight", SafetensorsType::f32, {1, 2},
           factor);
  file.add("model.layers.0.q.lora_B.weight", SafetensorsType::f32, {2, 1},
           factor);
  testing::PackedFile whole = file;
  whole.add("model.layers.0.q.lora_magnitude_vector", SafetensorsType::f32, {2},
            magnitudes);
  whole.add("model.layers.0.q.lora_weight_norm", SafetensorsType::f32, {2},
            norms);
  whole.write(path());
  OneLayer model("model.layers.0.q", {2, 2}, 2, 2);
  auto report = importWeights(path(), model);
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_TRUE(report->unexpected.empty());
  EXPECT_EQ(model.floats("model.layers.0.q.lora_magnitude_vector"), magnitudes);
  // Norms are computed, whatever a file says.
  EXPECT_EQ(model.floats("model.layers.0.q.lora_weight_norm"), (Floats{5, 13}));

  file.write(path());
  EXPECT_EQ(importWeights(path(), model).message(),
            "'" + path() +
                "' has factors of 'model.layers.0.q' without its magnitudes, "
                "as adapter.kind: lora has them; merge them with tessera "
                "export --merge, and use what that writes");
}

TEST(ReadMatrix, ReadsMicropanels) {
  QuantizedLayout layout;
  layout.rows = 18, layout.columns = 40, layout.bits = 16;
  testing::OneMatrix model(layout);
  // As the layout says: [micropanels, columns / 2, 16, 2].
  std::vector<uint16_t> halves(size_t(2 * 64 * 16));
  std::vector<float> expected;
  for (int64_t n = 0; n < layout.rows; ++n)
    for (int64_t k = 0; k < layout.columns; ++k) {
      expected.push_back(float(n * 4 + k));
      halves[size_t(((n / 16 * 32 + k / 2) * 16 + n % 16) * 2 + k % 2)] =
          floatToBf16(expected.back());
    }
  ASSERT_TRUE(
      model.writeState(model.state()[0], 0, std::as_bytes(std::span(halves)))
          .ok());
  auto matrix = readMatrix(model, "x");
  ASSERT_TRUE(matrix.ok()) << matrix.message();
  EXPECT_EQ(matrix->rows, 18u);
  EXPECT_EQ(matrix->columns, 40u);
  EXPECT_EQ(matrix->values, expected);
}

TEST(ReadMatrix, ReadsIntegersAndFloats) {
  const QuantizedLayout layouts[] = {
      {.rows = 18, .columns = 40, .bits = 8, .group = 32},
      {.rows = 18, .columns = 40, .bits = 4, .group = 32, .zeros = true},
      {.rows = 18, .columns = 40, .bits = 8, .group = 32, .floats = true}};
  for (const QuantizedLayout &layout : layouts) {
    testing::OneMatrix model(layout);
    const int64_t perWord = layout.perWord(), scalesOf = layout.zeros ? 2 : 1;
    std::vector<uint32_t> words(size_t(2 * layout.words() * 16));
    std::vector<uint16_t> scales(size_t(2 * layout.scaleRows() * 16));
    Floats expected;
    for (int64_t n = 0; n < layout.rows; ++n)
      for (int64_t k = 0; k < layout.columns; ++k) {
        const uint32_t code =
            uint32_t(n * 5 + k * 3) % (layout.bits == 4 ? 16 : 120);
        const int64_t zero = layout.zeros ? n % 7 - 3 : 0, group = k / 32;
        const float scale = float(1 + n % 4 + group) / 8;
        words[size_t((n / 16 * layout.words() + k / perWord) * 16 + n % 16)] |=
            code << (k % perWord * layout.bits);
        const int64_t at =
            (n / 16 * layout.scaleRows() + group * scalesOf) * 16 + n % 16;
        scales[size_t(at)] = floatToF16(scale);
        if (layout.zeros)
          scales[size_t(at + 16)] = floatToF16(float(zero));
        const float q = layout.floats      ? e4m3ToFloat(uint8_t(code))
                        : layout.bits == 4 ? float(int(code) - 8)
                                           : float(code);
        expected.push_back(scale * (q - float(zero)));
      }
    ASSERT_TRUE(
        model.writeState(model.state()[0], 0, std::as_bytes(std::span(words)))
            .ok());
    ASSERT_TRUE(
        model.writeState(model.state()[1], 0, std::as_bytes(std::span(scales)))
            .ok());
    auto matrix = readMatrix(model, "x");
    ASSERT_TRUE(matrix.ok()) << matrix.message();
    EXPECT_EQ(matrix->values, expected);
  }
}

TEST(ReadMatrix, RefusesWhatIsNotThere) {
  testing::OneMatrix model({.rows = 16, .columns = 32, .bits = 8});
  EXPECT_EQ(readMatrix(model, "y").message(), "the model has no 'y.weight'");
}

TEST(MergeFactors, GivesRowsTheirMagnitudes) {
  // Of a Conv1D: rows are the columns [3, 4] and [0, 0].
  const FactorShape shape{2, 2, 1, 2, true};
  Floats weight = {3, 0, 4, 0};
  mergeFactors(shape, weight, Floats{0, 1}, Floats{2, 0}, Floats{10, 10});
  // [3, 8] of norm sqrt(73), and a row of zeros.
  const double scale = 10 / std::sqrt(73.0);
  EXPECT_EQ(weight, (Floats{float(3 * scale), 0, float(8 * scale), 0}));
}

} // namespace
} // namespace tessera
