// Weights of a quantized base in checkpoints, of the right shapes and of
// others.
#include "runtime/generate/AdapterExport.h"
#include "runtime/support/Floats.h"
#include "test/support/ScratchDirectory.h"

#include <fstream>
#include <numeric>

#include <gtest/gtest.h>

using namespace tessera;
using tessera::testing::ScratchDirectory;

namespace {

struct FileSink : SafetensorsSink {
  explicit FileSink(const std::string &path) : file(path, std::ios::binary) {}
  Status write(std::span<const std::byte> bytes) override {
    file.write(reinterpret_cast<const char *>(bytes.data()),
               std::streamsize(bytes.size()));
    return Status::success();
  }
  std::ofstream file;
};

using Shape = std::vector<uint64_t>;

/// A file with w.values and w.scales of these shapes, all zeros but for scales
/// of f16, which are 1.
StatusOr<SafetensorsFile> fileOf(const std::string &path, const Shape &values,
                                 const Shape &scales,
                                 SafetensorsType type = SafetensorsType::i32) {
  std::vector<SafetensorsTensor> tensors;
  auto add = [&](const char *name, SafetensorsType of, const Shape &shape) {
    const uint64_t size =
        std::accumulate(shape.begin(), shape.end(),
                        uint64_t(safetensorsBits(of) / 8), std::multiplies<>());
    const bool isF16 = of == SafetensorsType::f16;
    tensors.push_back({name, of, shape, size, [=](SafetensorsSink &sink) {
                         std::vector<uint16_t> halves(
                             size / 2, isF16 ? floatToF16(1) : uint16_t(0));
                         return sink.write(std::as_bytes(std::span(halves)));
                       }});
  };
  add("w.values", SafetensorsType::i32, values);
  add("w.scales", type, scales);
  FileSink sink(path);
  TESSERA_RETURN_IF_ERROR(writeSafetensors(sink, std::move(tensors), {}));
  sink.file.close();
  return SafetensorsFile::open(path);
}

constexpr QuantizedLayout kNf4{.bits = 4, .group = 64, .floats = true},
    kInt4{.bits = 4, .group = 32};

} // namespace

// 16 rows of one block of 64 weights.
TEST(AdapterExport, ReadsNf4) {
  ScratchDirectory scratch;
  auto file = fileOf(scratch / "file", {1, 8, 16}, {1, 3, 16});
  ASSERT_TRUE(file.ok()) << file.message();
  auto weight = baseWeightOf(*file, "w", /*isTransposed=*/true, kNf4);
  ASSERT_TRUE(weight.has_value());
  EXPECT_EQ(weight->shape, (Shape{64, 16}));
  auto read = readWeight(*file, *weight, /*isTransposed=*/true);
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(*read, std::vector<float>(64 * 16));
}

// Words of zeros are -8, in groups of 32, of which there are two.
TEST(AdapterExport, ReadsInt4) {
  ScratchDirectory scratch;
  auto file =
      fileOf(scratch / "file", {1, 8, 16}, {1, 2, 16}, SafetensorsType::f16);
  ASSERT_TRUE(file.ok()) << file.message();
  auto weight = baseWeightOf(*file, "w", /*isTransposed=*/false, kInt4);
  ASSERT_TRUE(weight.has_value());
  auto read = readWeight(*file, *weight, /*isTransposed=*/false);
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(*read, std::vector<float>(64 * 16, -8));
  // A run without a quantized base has no such weight.
  EXPECT_FALSE(baseWeightOf(*file, "w", false, std::nullopt).has_value());
}

TEST(AdapterExport, RefusesCodesOfOtherShapes) {
  ScratchDirectory scratch;
  auto narrow = fileOf(scratch / "narrow", {1, 8, 1}, {1, 3, 16});
  ASSERT_TRUE(narrow.ok()) << narrow.message();
  EXPECT_FALSE(baseWeightOf(*narrow, "w", false, kNf4).has_value());
  const auto f16 = SafetensorsType::f16, i32 = SafetensorsType::i32;
  for (const auto &[layout, values, scales, type] :
       {std::tuple(kNf4, Shape{1, 8, 16}, Shape{1, 2, 16}, i32), // too few
        std::tuple(kNf4, Shape{1, 4, 16}, Shape{1, 3, 16}, i32), // half a block
        std::tuple(kInt4, Shape{1, 8, 16}, Shape{1, 1, 16}, f16),
        std::tuple(kInt4, Shape{1, 8, 16}, Shape{1, 1, 16}, i32)}) {
    auto file = fileOf(scratch / "other", values, scales, type);
    ASSERT_TRUE(file.ok()) << file.message();
    auto weight = baseWeightOf(*file, "w", false, layout);
    ASSERT_TRUE(weight.has_value());
    auto read = readWeight(*file, *weight, false);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.message(), "'w' in '" + file->path() +
                                  "' has scales that do not fit its values; "
                                  "the checkpoint is damaged");
  }
}
