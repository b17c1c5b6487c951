#include "runtime/weights/ImportWeights.h"
#include "runtime/support/Floats.h"
#include "runtime/weights/CopyTensor.h"
#include "test/runtime/train/FakeTrainModel.h"
#include "test/runtime/weights/OneMatrix.h"
#include "test/support/SafetensorsFileSink.h"

#include <atomic>
#include <fstream>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::testing;

namespace {

float value(std::size_t i) { return float(i) / 8 - 2; }

std::vector<std::byte> bytesOf(SafetensorsType type, std::size_t count) {
  std::vector<std::byte> bytes(count * safetensorsBits(type) / 8);
  for (std::size_t i = 0; i < count; ++i) {
    float single = value(i);
    double wide = single;
    uint16_t half = type == SafetensorsType::bf16 ? floatToBf16(single)
                                                  : floatToF16(single);
    if (type == SafetensorsType::f64)
      std::memcpy(bytes.data() + 8 * i, &wide, 8);
    else if (type == SafetensorsType::f32 || type == SafetensorsType::i32)
      std::memcpy(bytes.data() + 4 * i, &single, 4);
    else
      std::memcpy(bytes.data() + 2 * i, &half, 2);
  }
  return bytes;
}

/// Tensors with these names, of which element i is value(i).
void writeWeights(const std::string &path,
                  const std::vector<std::string> &names, SafetensorsType type,
                  std::size_t count = 32) {
  std::vector<std::byte> bytes = bytesOf(type, count);
  std::vector<SafetensorsTensor> tensors;
  for (const std::string &name : names)
    tensors.push_back(
        {name, type, {count}, bytes.size(), [&](SafetensorsSink &sink) {
           return sink.write(bytes);
         }});
  SafetensorsFileSink writer(path);
  ASSERT_TRUE(writeSafetensors(writer, tensors, {}).ok());
}

} // namespace

TEST(ImportWeights, ConvertsEveryFloatType) {
  for (SafetensorsType type : {SafetensorsType::f32, SafetensorsType::f16,
                               SafetensorsType::bf16, SafetensorsType::f64}) {
    ScratchDirectory directory;
    writeWeights(directory / "model.safetensors", {"model.weight"}, type);
    FakeTrainModel model;
    auto report = importWeights(directory.path, model);
    ASSERT_TRUE(report.ok()) << report.message();
    EXPECT_EQ(report->loaded, 1u);
    for (std::size_t i = 0; i < 32; ++i)
      EXPECT_EQ(model.weight[i], value(i)) << safetensorsName(type);
  }
}

// More elements than go at once, by whatever way they go.
TEST(ImportWeights, IsTheSameInPieces) {
  constexpr std::size_t kCount = (std::size_t(1) << 21) + (1 << 18) + 3;
  for (SafetensorsType type : {SafetensorsType::f32, SafetensorsType::f64}) {
    ScratchDirectory directory;
    writeWeights(directory / "model.safetensors", {"weight"}, type, kCount);
    for (bool inMemory : {false, true}) {
      FakeTrainModel model(kCount);
      model.inMemory = inMemory;
      auto report = importWeights(directory.path, model);
      ASSERT_TRUE(report.ok()) << report.message();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kCount; ++i)
        wrong += model.weight[i] != value(i);
      EXPECT_EQ(wrong, 0u) << safetensorsName(type) << " " << inMemory;
    }
  }
}

TEST(InParallel, RunsEachAndReturnsTheFirstError) {
  std::vector<std::atomic<int>> runs(1000);
  ASSERT_TRUE(inParallel(1000, [&](uint32_t i, unsigned) {
                ++runs[i];
                return Status::success();
              }).ok());
  for (const std::atomic<int> &each : runs)
    ASSERT_EQ(each, 1);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(inParallel(1000,
                         [&](uint32_t i, unsigned) {
                           return i % 300 == 211 ? Status::error("{}", i)
                                                 : Status::success();
                         })
                  .message(),
              "211");
  EXPECT_TRUE(inParallel(0, [](uint32_t, unsigned) {
                return Status::error("none");
              }).ok());
}

TEST(ImportWeights, ToleratesPrefixesOnEitherSide) {
  constexpr const char *names[] = {"weight", "model.weight",
                                   "transformer.weight", "gpt_neox.weight"};
  for (const char *stored : names)
    for (const char *own : names) {
      ScratchDirectory directory;
      writeWeights(directory / "w.safetensors", {stored}, SafetensorsType::f32);
      FakeTrainModel model;
      model.tensors[0].name = own;
      EXPECT_TRUE(importWeights(directory / "w.safetensors", model).ok())
          << stored << " as " << own;
    }
}

// What is beside an encoder is no tensor too many, but in one.
TEST(ImportWeights, EncodersHaveHeadsThatNobodyAsksFor) {
  ScratchDirectory directory;
  std::string path = directory / "w.safetensors";
  FakeTrainModel model;
  model.tensors[0].name = "embeddings.token_type_embeddings.weight";
  model.tensors.push_back(model.tensors[0]);
  model.tensors.back().name = "output.LayerNorm.bias";
  // In the order of the file's names.
  const std::vector<std::string> heads = {"bert.embeddings.position_ids",
                                          "bert.pooler.dense.weight",
                                          "cls.predictions.bias"};
  std::vector<std::string> names = heads;
  names.emplace_back("bert.embeddings.token_type_embeddings.weight");
  names.emplace_back("bert.output.LayerNorm.beta");
  writeWeights(path, names, SafetensorsType::f32);
  auto report = importWeights(path, model);
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_EQ(report->loaded, 2u);
  EXPECT_TRUE(report->unexpected.empty());
  names.emplace_back("bert.classifier.weight");
  writeWeights(path, names, SafetensorsType::f32);
  EXPECT_EQ(importWeights(path, model)->unexpected,
            std::vector<std::string>{"bert.classifier.weight"});
  FakeTrainModel other;
  names = heads;
  names.emplace_back("model.weight");
  writeWeights(path, names, SafetensorsType::f32);
  EXPECT_EQ(importWeights(path, other)->unexpected, heads);
}

TEST(ImportWeights, MultiTokenPredictionIsNotLoaded) {
  ScratchDirectory directory;
  const std::string path = directory / "w.safetensors";
  FakeTrainModel model;
  std::vector<std::string> names = {"model.weight",
                                    "model.layers.61.eh_proj.weight",
                                    "model.layers.61.enorm.weight"};
  writeWeights(path, names, SafetensorsType::f32);
  const Status loaded = importAllWeights(path, model);
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  names[1] = "model.layers.60.eh_proj.weight"; // of another layer
  writeWeights(path, names, SafetensorsType::f32);
  EXPECT_EQ(importWeights(path, model)->unexpected,
            std::vector<std::string>{"model.layers.61.enorm.weight"});
}

TEST(ImportWeights, StacksComeFromTheirEntries) {
  ScratchDirectory directory;
  FakeTrainModel model;
  model.tensors[0].name = "model.experts.*.weight";
  model.tensors[0].shape = {4, 8};
  std::vector<std::string> names;
  for (const char *i : {"0", "1", "3"})
    names.push_back(std::string("model.experts.") + i + ".weight");
  std::string path = directory / "w.safetensors";
  writeWeights(path, names, SafetensorsType::bf16, 8);
  EXPECT_NE(importWeights(path, model)
                .message()
                .find("lacks 1 of the model's parameters: "
                      "model.experts.2.weight"),
            std::string::npos);
  names.emplace_back("model.experts.2.weight");
  writeWeights(path, names, SafetensorsType::bf16, 8);
  auto report = importWeights(path, model);
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_EQ(report->loaded, 4u);
  for (std::size_t i = 0; i < 32; ++i)
    EXPECT_EQ(model.weight[i], value(i % 8)) << i;
  writeWeights(path, names, SafetensorsType::bf16, 9);
  EXPECT_NE(importWeights(path, model).message().find("the model's has [8]"),
            std::string::npos);
}

TEST(ImportWeights, AHeadOfScoresBeginsAsItIsOnlyInTraining) {
  ScratchDirectory directory;
  const std::string path = directory / "w.safetensors";
  FakeTrainModel model;
  model.tensors[0].name = "score.weight";
  writeWeights(path, {"lm_head.weight"}, SafetensorsType::f32);
  auto report = importWeights(path, model);
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_EQ(report->initial, std::vector<std::string>{"score.weight"});
  EXPECT_EQ(report->loaded, 0u);
  EXPECT_EQ(importAllWeights(path, model).message(),
            "'" + path +
                "' lacks the model's score.weight; train it with task: reward, "
                "and give what tessera export writes");
  writeWeights(path, {"score.weight"}, SafetensorsType::f32);
  report = importWeights(path, model);
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_TRUE(report->initial.empty());
  EXPECT_TRUE(importAllWeights(path, model).ok());
}

TEST(ImportWeights, ReportsWhatIsMissingUnexpectedOrMisshapen) {
  ScratchDirectory directory;
  std::string path = directory / "w.safetensors";
  FakeTrainModel model;
  writeWeights(path, {"other"}, SafetensorsType::f32);
  EXPECT_NE(importWeights(path, model)
                .message()
                .find("lacks 1 of the model's parameters: model.weight"),
            std::string::npos);
  writeWeights(path,
               {"model.weight", "other", "h.0.attn.bias",
                "gpt_neox.layers.0.attention.masked_bias"},
               SafetensorsType::f32);
  auto report = importWeights(path, model);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->unexpected, std::vector<std::string>{"other"});
  writeWeights(path, {"model.weight"}, SafetensorsType::f32, 31);
  EXPECT_NE(importWeights(path, model)
                .message()
                .find("[31], the model's has "
                      "[32]"),
            std::string::npos);
  writeWeights(path, {"model.weight"}, SafetensorsType::i32);
  EXPECT_NE(importWeights(path, model).message().find("does not convert"),
            std::string::npos);
  EXPECT_FALSE(importWeights(directory / "absent", model).ok());
  EXPECT_NE(importWeights(directory.path, model)
                .message()
                .find("neither model.safetensors nor"),
            std::string::npos);
}

TEST(ImportWeights, ReadsShardedModels) {
  ScratchDirectory directory;
  writeWeights(directory / "model-00001-of-00002.safetensors", {"model.weight"},
               SafetensorsType::f32);
  writeWeights(directory / "model-00002-of-00002.safetensors", {"other"},
               SafetensorsType::f32);
  auto index = [&](const std::string &first, const std::string &second) {
    std::ofstream(directory / "model.safetensors.index.json")
        << R"({"metadata":{},"weight_map":{"model.weight":")" + first +
               R"(","other":")" + second + "\"}}";
    FakeTrainModel model;
    return importWeights(directory.path, model);
  };
  auto report = index("model-00001-of-00002.safetensors",
                      "model-00002-of-00002.safetensors");
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_EQ(report->unexpected.size(), 1u);
  for (const char *bad : {"../x.safetensors", "/etc/passwd", "", "..", "."})
    EXPECT_NE(index(bad, "model-00002-of-00002.safetensors")
                  .message()
                  .find("must be a plain file name"),
              std::string::npos)
        << bad;
  EXPECT_NE(index("model-00002-of-00002.safetensors",
                  "model-00002-of-00002.safetensors")
                .message()
                .find("which does not have it"),
            std::string::npos);
  EXPECT_NE(index("absent.safetensors", "model-00002-of-00002.safetensors")
                .message()
                .find("index.json"),
            std::string::npos);
}

// Super-blocks come from GGUF files, and are never made.
TEST(ImportWeights, RefusesToQuantizeToSuperBlocks) {
  const QuantizedLayout layout{16, 256, 4, 256, false, false, true};
  const std::vector<float> weights(size_t(16 * 256));
  PackedFile file;
  file.add("x.weight", SafetensorsType::f32, {16, 256}, weights);
  ScratchDirectory directory;
  file.write(directory / "model.safetensors");
  OneMatrix model(layout);
  auto report = importWeights(directory / "model.safetensors", model);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.message().find("'x.weight' in"), std::string::npos);
  EXPECT_NE(report.message().find("super-blocks of 4 bits, which only a GGUF"),
            std::string::npos)
      << report.message();
}

// Experts: one matrix behind another, each as it would be alone.
TEST(ImportWeights, QuantizesEachMatrixOfAStack) {
  const QuantizedLayout each{32, 70, 4, 32, true};
  QuantizedLayout all = each;
  all.rows *= 3;
  const std::string names[] = {"x.0.weight", "x.1.weight", "x.2.weight"};
  std::vector<std::vector<float>> weights(3);
  PackedFile file, partOfIt, another;
  for (std::size_t i = 0; i < 3; ++i) {
    for (int64_t at = 0; at < each.rows * each.columns; ++at)
      weights[i].push_back(float((at * 37 + int64_t(i) * 11) % 101) - 40);
    const std::vector<uint64_t> shape{32, 70};
    file.add(names[i].c_str(), SafetensorsType::f32, shape, weights[i]);
    if (i != 1)
      partOfIt.add(names[i].c_str(), SafetensorsType::f32, shape, weights[i]);
    another.add(names[i].c_str(), SafetensorsType::f32, {70, 32}, weights[i]);
  }
  ScratchDirectory directory;
  file.write(directory / "model.safetensors");
  OneMatrix stack(all, "x.*.weight", 3);
  auto report = importWeights(directory.path, stack);
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_EQ(report->loaded, 3u);
  EXPECT_TRUE(report->unexpected.empty());
  for (std::size_t i = 0; i < 3; ++i) {
    ScratchDirectory alone;
    PackedFile single;
    single.add("x.weight", SafetensorsType::f32, {32, 70}, weights[i]);
    single.write(alone / "model.safetensors");
    OneMatrix one(each);
    ASSERT_TRUE(importWeights(alone.path, one).ok());
    const int64_t words = each.micropanels() * each.words() * 16,
                  scales = each.micropanels() * each.scaleRows() * 16;
    for (int64_t at = 0; at < words; ++at)
      ASSERT_EQ(stack.at<uint32_t>("x.values", int64_t(i) * words + at),
                one.at<uint32_t>("x.values", at));
    for (int64_t at = 0; at < scales; ++at)
      ASSERT_EQ(stack.at<uint16_t>("x.scales", int64_t(i) * scales + at),
                one.at<uint16_t>("x.scales", at));
  }

  ScratchDirectory wrong;
  partOfIt.write(wrong / "model.safetensors");
  EXPECT_EQ(importWeights(wrong.path, stack).message(),
            "'" + wrong.path +
                "' lacks 1 of the model's parameters: x.1.weight");
  another.write(wrong / "model.safetensors");
  EXPECT_EQ(importWeights(wrong.path, stack).message(),
            "'x.0.weight' in '" + (wrong / "model.safetensors") +
                "' has the shape [70, 32], the model's has [32, 70]");
}

// 8-bit floats with scales are bf16 to whoever asks, and nothing without.
TEST(ImportWeights, RoundsFloatsOf8BitsAsTheBf16TheyAre) {
  const QuantizedLayout layout{32, 64, 4, 32, true};
  std::vector<uint8_t> bytes;
  std::vector<uint16_t> plain;
  for (int64_t at = 0; at < layout.rows * layout.columns; ++at) {
    const auto mantissa = uint8_t(at * 5 % 8); // × 2^-3, from 1 on
    bytes.push_back(uint8_t((at % 3 == 0 ? 0xb8 : 0x38) | mantissa));
    plain.push_back(
        floatToBf16((at % 3 == 0 ? -3.0f : 3.0f) * (1 + float(mantissa) / 8)));
  }
  const std::vector<float> scale = {3}, activations = {7};
  PackedFile file, alone, reference;
  file.add("x.weight", SafetensorsType::f8_e4m3, {32, 64}, bytes);
  file.add("x.weight_scale", SafetensorsType::f32, {1}, scale);
  file.add("x.input_scale", SafetensorsType::f32, {1}, activations);
  alone.add("x.weight", SafetensorsType::f8_e4m3, {32, 64}, bytes);
  reference.add("x.weight", SafetensorsType::bf16, {32, 64}, plain);
  ScratchDirectory directory;
  const std::string path = directory / "model.safetensors";
  OneMatrix model(layout), other(layout);
  file.write(path);
  auto report = importWeights(directory.path, model);
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_TRUE(report->unexpected.empty());
  reference.write(path);
  ASSERT_TRUE(importWeights(directory.path, other).ok());
  for (int64_t at = 0; at < layout.micropanels() * layout.words() * 16; ++at)
    ASSERT_EQ(model.at<uint32_t>("x.values", at),
              other.at<uint32_t>("x.values", at));
  for (int64_t at = 0; at < layout.micropanels() * layout.scaleRows() * 16;
       ++at)
    ASSERT_EQ(model.at<uint16_t>("x.scales", at),
              other.at<uint16_t>("x.scales", at));

  alone.write(path);
  EXPECT_EQ(importWeights(directory.path, model).message(),
            "'x.weight' in '" + path +
                "' is F8_E4M3 and lacks its scales, 'x.weight_scale' or "
                "'x.weight_scale_inv'; give a checkpoint that has them");
}

TEST(ImportWeights, Of8BitFloatsOnlyMatricesAreRead) {
  const std::vector<uint8_t> bytes(24);
  const std::vector<float> scale = {3};
  PackedFile made;
  made.add("x", SafetensorsType::f8_e4m3, {2, 3, 4}, bytes);
  made.add("x_scale", SafetensorsType::f32, {1}, scale);
  ScratchDirectory directory;
  const std::string path = directory / "model.safetensors";
  made.write(path);
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(checkScaled(*file, *file->header().find("x")).message(),
            "'x' in '" + path +
                "' is F8_E4M3 with 3 dimensions, of which only matrices are "
                "read; give it in bf16");
}
