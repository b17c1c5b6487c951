// Weights of an nf4 base in checkpoints, of the right shapes and of others.
#include "runtime/generate/AdapterExport.h"
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

/// A file with w.values and w.scales of these shapes, all zeros.
StatusOr<SafetensorsFile> fileOf(const std::string &path,
                                 const std::vector<uint64_t> &values,
                                 const std::vector<uint64_t> &scales) {
  std::vector<SafetensorsTensor> tensors;
  for (const auto &[name, shape] :
       {std::pair("w.values", values), std::pair("w.scales", scales)}) {
    const uint64_t size = std::accumulate(shape.begin(), shape.end(),
                                          uint64_t(4), std::multiplies<>());
    tensors.push_back({name, SafetensorsType::i32, shape, size,
                       [size](SafetensorsSink &sink) {
                         return sink.write(std::vector<std::byte>(size));
                       }});
  }
  FileSink sink(path);
  TESSERA_RETURN_IF_ERROR(writeSafetensors(sink, std::move(tensors), {}));
  sink.file.close();
  return SafetensorsFile::open(path);
}

} // namespace

// 16 rows of one block of 64 weights.
TEST(AdapterExport, ReadsNf4) {
  ScratchDirectory scratch;
  auto file = fileOf(scratch / "file", {1, 8, 16}, {1, 3, 16});
  ASSERT_TRUE(file.ok()) << file.message();
  auto weight = baseWeightOf(*file, "w", /*isTransposed=*/true);
  ASSERT_TRUE(weight.has_value());
  EXPECT_EQ(weight->shape, (std::vector<uint64_t>{64, 16}));
  auto read = readWeight(*file, *weight, /*isTransposed=*/true);
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(*read, std::vector<float>(64 * 16));
}

TEST(AdapterExport, RefusesNf4OfOtherShapes) {
  ScratchDirectory scratch;
  auto narrow = fileOf(scratch / "narrow", {1, 8, 1}, {1, 3, 16});
  ASSERT_TRUE(narrow.ok()) << narrow.message();
  EXPECT_FALSE(baseWeightOf(*narrow, "w", false).has_value());
  using Shape = std::vector<uint64_t>;
  for (const auto &[values, scales] :
       {std::pair(Shape{1, 8, 16}, Shape{1, 2, 16}),    // too few scales
        std::pair(Shape{1, 4, 16}, Shape{1, 3, 16})}) { // half a block
    auto file = fileOf(scratch / "other", values, scales);
    ASSERT_TRUE(file.ok()) << file.message();
    auto weight = baseWeightOf(*file, "w", false);
    ASSERT_TRUE(weight.has_value());
    auto read = readWeight(*file, *weight, false);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.message(), "'w' in '" + file->path() +
                                  "' has scales that do not fit its values; "
                                  "the checkpoint is damaged");
  }
}
