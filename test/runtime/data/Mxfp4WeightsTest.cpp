// Weights of MXFP4 from files: the table of the OCP specification (Microscaling
// Formats 1.0, section 5.3.3), written out, times powers of two.
#include "runtime/data/Safetensors.h"
#include "runtime/support/Floats.h"
#include "test/support/ScratchDirectory.h"
#include "test/support/TensorFile.h"

#include <cmath>

#include <gmock/gmock.h>

using namespace tessera;
using namespace tessera::testing;
using ::testing::HasSubstr;

namespace {

constexpr double kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/// "x" [experts, in, out] in blocks of 32 inputs.
struct Stack {
  uint64_t experts = 3, in = 64, out = 5;
  std::vector<uint8_t> blocks, scales;
  std::vector<uint64_t> scaleShape{3, 5, 2};
  ScratchDirectory folder;

  Stack() {
    for (uint64_t i = 0; i < experts * out * in / 2; ++i)
      blocks.push_back(uint8_t(i * 73 + i / 7));
    for (uint64_t i = 0; i < experts * out * in / 32; ++i)
      scales.push_back(uint8_t(120 + i % 13));
    scales[1] = 0;
    scales[2] = 252;
  }
  double valueOf(uint64_t expert, uint64_t input, uint64_t output) const {
    const uint64_t row = expert * out + output;
    const uint8_t both = blocks[(row * in + input) / 2];
    const unsigned code = input % 2 ? both >> 4 : both & 15;
    const double factor =
        std::exp2(double(scales[row * in / 32 + input / 32]) - 127.0);
    return (code & 8 ? -1 : 1) * kE2m1[code & 7] * factor;
  }
  StatusOr<SafetensorsModel> open() const {
    TensorFile file;
    file.add("x_blocks", SafetensorsType::u8, {experts, out, in / 32, 16},
             blocks);
    file.add("x_scales", SafetensorsType::u8, scaleShape, scales);
    file.write(folder / "model.safetensors");
    return SafetensorsModel::open(folder.path);
  }
};

TEST(Mxfp4Weights, AreTheProductsTransposed) {
  Stack stack;
  auto model = stack.open();
  ASSERT_TRUE(model.ok()) << model.message();
  ASSERT_EQ(model->tensors().size(), 1u);
  const SafetensorsModel::Location at = model->tensors().at("x");
  EXPECT_EQ(at.entry->type, SafetensorsType::bf16);
  EXPECT_EQ(at.entry->shape, (std::vector<uint64_t>{3, 64, 5}));
  // From any element on, across rows and experts.
  const uint64_t all = stack.experts * stack.in * stack.out;
  EXPECT_EQ(at.entry->end - at.entry->begin, 2 * all);
  for (auto [first, count] : {std::pair<uint64_t, uint64_t>{0, all},
                              {3, 9},
                              {317, 20},
                              {all - 1, 1}}) {
    std::vector<uint16_t> values(count);
    Status status = at.file->read(*at.entry, 2 * first,
                                  std::as_writable_bytes(std::span(values)));
    ASSERT_TRUE(status.ok()) << status.message();
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t element = first + i, row = element / stack.out;
      EXPECT_EQ(
          double(bf16ToFloat(values[i])),
          stack.valueOf(row / stack.in, row % stack.in, element % stack.out))
          << element;
    }
  }
}

TEST(Mxfp4Weights, RefuseFactorsThatAreNotFinite) {
  for (uint8_t scale : {253, 255}) {
    Stack stack;
    stack.scales[17] = scale;
    auto model = stack.open();
    ASSERT_TRUE(model.ok()) << model.message();
    const SafetensorsModel::Location at = model->tensors().at("x");
    std::vector<std::byte> bytes(at.entry->end - at.entry->begin);
    EXPECT_THAT(at.file->read(*at.entry, 0, bytes).message(),
                HasSubstr("with which weights are not finite"));
  }
}

TEST(Mxfp4Weights, RefuseOtherShapes) {
  Stack stack;
  stack.scaleShape = {3, 10};
  EXPECT_THAT(stack.open().message(),
              HasSubstr("must be U8 of the shape [3, 5, 2]"));
}

} // namespace
