// Weights of F8_E4M3 with scales, from files in every form, against the
// format's table and products that are rounded here.
#include "runtime/data/Float8Weights.h"
#include "runtime/support/Floats.h"
#include "test/support/ScratchDirectory.h"
#include "test/support/TensorFile.h"

#include <bit>
#include <cmath>
#include <fstream>

#include <gmock/gmock.h>

using namespace tessera;
using namespace tessera::testing;
using ::testing::HasSubstr;

namespace {

/// Of bytes 0 to 126, in units of 2^-9: ml_dtypes 0.5 has these for
/// float8_e4m3fn, which is PyTorch's type of that name. 127 is no number, and
/// 128 more is the negative.
constexpr int kE4m3[] = {
    0,      1,      2,      3,      4,      5,      6,      7,      8,
    9,      10,     11,     12,     13,     14,     15,     16,     18,
    20,     22,     24,     26,     28,     30,     32,     36,     40,
    44,     48,     52,     56,     60,     64,     72,     80,     88,
    96,     104,    112,    120,    128,    144,    160,    176,    192,
    208,    224,    240,    256,    288,    320,    352,    384,    416,
    448,    480,    512,    576,    640,    704,    768,    832,    896,
    960,    1024,   1152,   1280,   1408,   1536,   1664,   1792,   1920,
    2048,   2304,   2560,   2816,   3072,   3328,   3584,   3840,   4096,
    4608,   5120,   5632,   6144,   6656,   7168,   7680,   8192,   9216,
    10240,  11264,  12288,  13312,  14336,  15360,  16384,  18432,  20480,
    22528,  24576,  26624,  28672,  30720,  32768,  36864,  40960,  45056,
    49152,  53248,  57344,  61440,  65536,  73728,  81920,  90112,  98304,
    106496, 114688, 122880, 131072, 147456, 163840, 180224, 196608, 212992,
    229376};
static_assert(std::size(kE4m3) == 127);

double valueOf(unsigned byte) {
  return (byte & 128 ? -1.0 : 1.0) * kE4m3[byte & 127] / 512.0;
}

/// The nearest bf16 by a look at its neighbours, half to even.
uint16_t nearestBf16(double exact) {
  const uint16_t near = floatToBf16(float(exact));
  uint16_t best = near;
  for (uint16_t other : {uint16_t(near - 1), uint16_t(near + 1)}) {
    const double mine = std::fabs(bf16ToFloat(best) - exact),
                 its = std::fabs(bf16ToFloat(other) - exact);
    if (its < mine || (its == mine && other % 2 == 0))
      best = other;
  }
  return best;
}

/// A checkpoint of one matrix, "x.weight".
struct Matrix {
  uint64_t rows = 20, columns = 48;
  std::vector<uint8_t> bytes;
  std::vector<float> scales{0.5f};
  std::vector<uint64_t> scaleShape{1};
  std::string scaleName = "x.weight_scale", config;
  SafetensorsType type = SafetensorsType::f8_e4m3;

  Matrix() {
    for (uint64_t i = 0; i < rows * columns; ++i)
      bytes.push_back(uint8_t(i * 37 % 127 + (i * i % 5 < 2 ? 128 : 0)));
  }
  void scaled(std::vector<uint64_t> shape) {
    uint64_t count = 1;
    for (uint64_t size : shape)
      count *= size;
    scaleShape = std::move(shape);
    scales.clear();
    for (uint64_t i = 0; i < count; ++i)
      scales.push_back(float(i % 7 + 1) * 0.0123f);
  }
  void write() const {
    TensorFile tensors;
    tensors.add("x.weight", type, {rows, columns}, bytes);
    if (!scaleName.empty())
      tensors.add(scaleName, SafetensorsType::f32, scaleShape, scales);
    tensors.add("x.input_scale", SafetensorsType::f32, {1},
                std::vector<float>{3});
    tensors.write(folder / "model.safetensors");
    if (!config.empty())
      std::ofstream(folder / "config.json")
          << "{\"quantization_config\":" << config << "}";
  }
  StatusOr<std::vector<uint16_t>> read(uint64_t first = 0,
                                       int64_t count = -1) const {
    write();
    auto model = SafetensorsModel::open(folder.path);
    if (!model.ok())
      return model.status();
    EXPECT_EQ(model->tensors().size(), 1u);
    const SafetensorsModel::Location at = model->tensors().at("x.weight");
    EXPECT_EQ(at.entry->type, SafetensorsType::bf16);
    EXPECT_EQ(at.entry->end - at.entry->begin, rows * columns * 2);
    std::vector<uint16_t> values(count < 0 ? rows * columns : count);
    Status status = at.file->read(*at.entry, first * 2,
                                  std::as_writable_bytes(std::span(values)));
    return status.ok() ? StatusOr(values) : StatusOr<decltype(values)>(status);
  }
  /// With a scale for each block.
  void expect(uint64_t blockRows, uint64_t blockColumns) const {
    auto values = read();
    ASSERT_TRUE(values.ok()) << values.message();
    const uint64_t across = (columns + blockColumns - 1) / blockColumns;
    for (uint64_t n = 0; n < rows; ++n)
      for (uint64_t k = 0; k < columns; ++k)
        ASSERT_EQ(
            (*values)[n * columns + k],
            nearestBf16(valueOf(bytes[n * columns + k]) *
                        scales[n / blockRows * across + k / blockColumns]))
            << n << " " << k;
    auto part = read(columns + 5, 50);
    ASSERT_TRUE(part.ok());
    EXPECT_TRUE(std::equal(part->begin(), part->end(),
                           values->begin() + int64_t(columns) + 5));
  }
  std::string problem() const {
    auto values = read();
    return values.ok() ? "" : values.message();
  }

  ScratchDirectory folder;
};

} // namespace

TEST(Float8Weights, HaveTheFormatsValues) {
  Matrix matrix;
  matrix.rows = 2, matrix.columns = 127;
  matrix.bytes.clear();
  for (unsigned i = 0; i < 254; ++i)
    matrix.bytes.push_back(uint8_t(i < 127 ? i : i + 1));
  matrix.scales = {1};
  auto values = matrix.read();
  ASSERT_TRUE(values.ok()) << values.message();
  for (std::size_t i = 0; i < 254; ++i) {
    EXPECT_EQ(double(bf16ToFloat((*values)[i])), valueOf(matrix.bytes[i])) << i;
    EXPECT_EQ((*values)[i] >> 15, i / 127) << i;
  }
  for (uint8_t byte : {127, 255}) {
    matrix.bytes[200] = byte;
    EXPECT_THAT(matrix.problem(), HasSubstr("'x.weight'"));
    EXPECT_THAT(matrix.problem(), HasSubstr("is NaN at [1, 73]"));
  }
}

TEST(Float8Weights, TakeScalesOfEveryShape) {
  Matrix matrix;
  for (std::vector<uint64_t> shape : {std::vector<uint64_t>{}, {1}, {1, 1}}) {
    matrix.scaled(shape);
    matrix.expect(20, 48);
  }
  for (std::vector<uint64_t> shape : {std::vector<uint64_t>{20}, {20, 1}}) {
    matrix.scaled(shape);
    matrix.expect(1, 48);
  }
  matrix.scaleName = "x.weight_scale_inv";
  matrix.scaled({3, 2}); // ragged at both ends
  matrix.config = R"({"weight_block_size":[8,32]})";
  matrix.expect(8, 32);
  matrix.scaled({2, 3}); // what 20 / 2 and 48 / 3 alone do not tell
  matrix.config = R"({"config_groups":{"group_0":{"weights":{
      "block_structure":"16x16","group_size":null}}}})";
  matrix.expect(16, 16);
  matrix.scaled({20, 3});
  matrix.config = R"({"config_groups":{"group_0":{"weights":{
      "block_structure":null,"group_size":16}}}})";
  matrix.expect(1, 16);
}

// Products that f32 would round to the middle between two bf16.
TEST(Float8Weights, AreRoundedOnce) {
  Matrix matrix;
  matrix.rows = 512, matrix.columns = 1;
  matrix.bytes.assign(512, 0x39); // 1.125
  matrix.scales.clear();
  matrix.scaleShape = {512, 1};
  int twice = 0;
  for (uint32_t i = 0; i < 512; ++i) {
    const auto half = std::bit_cast<float>(0x3f008000 + (i << 16));
    matrix.scales.push_back(half / 1.125f);
    twice += floatToBf16(1.125f * matrix.scales.back()) !=
             nearestBf16(1.125 * double(matrix.scales.back()));
  }
  EXPECT_GT(twice, 20);
  matrix.expect(1, 1);
}

TEST(Float8Weights, HaveScalesInOtherFilesAndTypes) {
  for (SafetensorsType type : {SafetensorsType::bf16, SafetensorsType::f16}) {
    ScratchDirectory folder;
    TensorFile weights, scales;
    weights.add("x.weight", SafetensorsType::f8_e4m3, {2, 2},
                std::vector<uint8_t>{0x38, 0xb8, 0x40, 0x01});
    auto half = type == SafetensorsType::bf16 ? floatToBf16 : floatToF16;
    scales.add("x.weight_scale", type, {2, 1},
               std::vector<uint16_t>{half(0.75f), half(2)});
    weights.write(folder / "a.safetensors");
    scales.write(folder / "b.safetensors");
    std::ofstream(folder / "model.safetensors.index.json")
        << R"({"weight_map":{"x.weight":"a.safetensors",
               "x.weight_scale":"b.safetensors"}})";
    auto model = SafetensorsModel::open(folder.path);
    ASSERT_TRUE(model.ok()) << model.message();
    EXPECT_EQ(model->files().size(), 2u);
    const SafetensorsModel::Location at = model->tensors().at("x.weight");
    std::vector<uint16_t> values(4);
    Status read =
        at.file->read(*at.entry, 0, std::as_writable_bytes(std::span(values)));
    ASSERT_TRUE(read.ok()) << read.message();
    EXPECT_EQ(values, (std::vector{floatToBf16(0.75f), floatToBf16(-0.75f),
                                   floatToBf16(4), floatToBf16(0x1p-8f)}));
  }
}

TEST(Float8Weights, SayWhatIsWrong) {
  auto problemOf = [](auto change) {
    Matrix matrix;
    change(matrix);
    return matrix.problem();
  };
  EXPECT_THAT(problemOf([](Matrix &m) { m.scaled({3, 2}); }),
              HasSubstr("'x.weight_scale' in"));
  EXPECT_THAT(
      problemOf([](Matrix &m) { m.scaled({3, 2}); }),
      HasSubstr("has the shape [3, 2]; for weights [20, 48] it must be "
                "[1], [20, 1] or that of the blocks of config.json "
                "(weight_block_size of quantization_config), which is absent"));
  EXPECT_THAT(problemOf([](Matrix &m) {
                m.scaled({2, 3});
                m.config = R"({"weight_block_size":[8,32]})";
              }),
              HasSubstr("[20, 1] or [3, 2], as config.json says that blocks "
                        "are 8 x 32"));
  for (float scale : {INFINITY, NAN, 1e36f})
    EXPECT_THAT(problemOf([&](Matrix &m) { m.scales[0] = scale; }),
                HasSubstr("at 0, with which weights are not finite"));
}

// Not passed over, as if nothing were said.
TEST(Float8Weights, SayWhichKeyOfBlocksIsWrong) {
  auto problemOf = [](std::string config) {
    Matrix matrix;
    matrix.config = std::move(config);
    return matrix.problem();
  };
  const std::string in = "key 'quantization_config.",
                    wanted = "': must be rows and columns of a block, at least "
                             "1 and 16, at most 1048576";
  for (const char *size :
       {"[0, -1]", "[128]", "[128, 8]", "[128, 2097152]", "\"128x128junk\"",
        "\"128x\"", "\" 128x128\"", "\"128x128x128\"", "7", "{}"})
    EXPECT_THAT(problemOf(R"({"weight_block_size":)" + std::string(size) + "}"),
                HasSubstr(in + "weight_block_size" + wanted))
        << size;
  auto weights = [](const char *of) {
    return std::string(R"({"config_groups":{"group_0":{"weights":{)") + of +
           "}}}}";
  };
  EXPECT_THAT(problemOf(weights(R"("block_structure":"16x8")")),
              HasSubstr("group_0.weights.block_structure" + wanted));
  EXPECT_THAT(problemOf(weights(R"("strategy":"group","group_size":8)")),
              HasSubstr("group_0.weights.group_size" + wanted));
  // What is not asked of them.
  for (const char *other :
       {R"("strategy":"channel","group_size":-1)", R"("group_size":-1)",
        R"("strategy":"tensor","block_structure":"none")"})
    EXPECT_EQ(problemOf(weights(other)), "") << other;
}

// Sizes of headers prove nothing: what they would make is not made.
TEST(Float8Weights, TakeNoMoreThanWhatIsRead) {
  auto open = [](const ScratchDirectory &folder, const std::string &header,
                 uint64_t bytes) {
    std::ofstream file(folder / "model.safetensors", std::ios::binary);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char *>(&length), 8);
    file << header;
    file.close();
    std::filesystem::resize_file(folder / "model.safetensors",
                                 8 + length + bytes);
    return SafetensorsModel::open(folder.path);
  };
  ScratchDirectory folder;
  auto none = open(folder,
                   R"({"x":{"dtype":"F8_E4M3","shape":[0,9223372036854775808],)"
                   R"("data_offsets":[0,0]},"x_scale":{"dtype":"F32",)"
                   R"("shape":[1],"data_offsets":[0,4]}})",
                   4);
  ASSERT_TRUE(none.ok()) << none.message();
  const SafetensorsModel::Location empty = none->tensors().at("x");
  EXPECT_TRUE(empty.file->read(*empty.entry, 0, {}).ok());
  // A row of 2^30 weights and 2^26 scales, of a file that takes no place.
  std::ofstream(folder / "config.json")
      << R"({"quantization_config":{"weight_block_size":[128,16]}})";
  auto wide = open(folder,
                   R"({"x":{"dtype":"F8_E4M3","shape":[1,1073741824],)"
                   R"("data_offsets":[0,1073741824]},"x_scale":{"dtype":"F32",)"
                   R"("shape":[1,67108864],)"
                   R"("data_offsets":[1073741824,1342177280]}})",
                   1342177280);
  ASSERT_TRUE(wide.ok()) << wide.message();
  const SafetensorsModel::Location at = wide->tensors().at("x");
  std::vector<uint16_t> values(1000, 1);
  ASSERT_TRUE(at.file
                  ->read(*at.entry, 777777770,
                         std::as_writable_bytes(std::span(values)))
                  .ok());
  EXPECT_EQ(values, std::vector<uint16_t>(1000));
}

// What is no matrix of such weights, or has no scales, stays as it is.
TEST(Float8Weights, LeavesOthersAlone) {
  Matrix matrix;
  matrix.scaleName = "";
  matrix.write();
  auto model = SafetensorsModel::open(matrix.folder.path);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->tensors().at("x.weight").entry->type,
            SafetensorsType::f8_e4m3);
  EXPECT_TRUE(model->tensors().contains("x.input_scale"));
  matrix.scaleName = "x.weight_scale";
  matrix.type = SafetensorsType::u8;
  matrix.write();
  model = SafetensorsModel::open(matrix.folder.path);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->tensors().size(), 3u);
  EXPECT_EQ(model->reading(), "");
}
