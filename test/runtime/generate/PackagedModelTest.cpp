#include "runtime/generate/PackagedModel.h"
#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/data/NewDirectory.h"
#include "runtime/support/Hash.h"
#include "test/runtime/train/BigramArtifact.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kHead = std::size_t(2) << 20;
constexpr std::size_t kCount = kBigramVocab * kBigramVocab;

/// A program with one parameter, a checkpoint for it, and the file of both.
struct Made {
  Made() {
    std::ofstream(program(), std::ios::binary) << bigramProgram();
    for (std::size_t i = 0; i < kCount; ++i)
      weights.push_back(float(i) / 7);
    writeCheckpoint("transformer.table.weight");
    status = write();
  }
  void writeCheckpoint(const std::string &name) {
    const std::string path = scratch / "model.safetensors";
    fs::remove(path);
    std::vector<SafetensorsTensor> tensors;
    tensors.push_back({name,
                       SafetensorsType::f32,
                       {kBigramVocab, kBigramVocab},
                       kCount * 4,
                       [&](SafetensorsSink &out) {
                         return out.write(std::as_bytes(std::span(weights)));
                       }});
    ASSERT_TRUE(writeNewSafetensors(path, std::move(tensors)).ok());
  }
  Status write() {
    return writePackagedModel(file(), {program(), scratch.path, texts});
  }
  std::string program() { return scratch / "program.tsr"; }
  std::string file() { return scratch / "model.tsr"; }
  std::string bytes() { return fileBytes(file()); }
  void replace(const std::string &bytes) {
    std::ofstream(file(), std::ios::binary) << bytes;
  }
  /// What opening the file and filling in its weights come to.
  Status load() {
    auto shipped = PackagedModel::open(file());
    if (!shipped.ok())
      return shipped.status();
    auto model = SessionModel::open(*ArtifactReader::open(file()), {});
    if (!model.ok())
      return model.status();
    TESSERA_RETURN_IF_ERROR(shipped->load(**model));
    std::vector<float> found(kCount);
    TESSERA_RETURN_IF_ERROR((*model)->readState(
        (*model)->state()[0], 0, std::as_writable_bytes(std::span(found))));
    EXPECT_EQ(found, weights);
    return Status::success();
  }
  void expectRefused(const std::string &part) {
    const Status status = load();
    ASSERT_FALSE(status.ok()) << part;
    EXPECT_NE(status.message().find(file()), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos)
        << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }

  ScratchDirectory scratch;
  std::vector<float> weights;
  ModelFiles::Contents texts{{"config.json", "{\"a\": 1}"},
                             {"1_Pooling/config.json", "{}"},
                             {"tokenizer.json", std::string(100'000, 'x')}};
  Status status;
};

} // namespace

TEST(PackagedModel, HasProgramsWeightsAndTexts) {
  Made made;
  ASSERT_TRUE(made.status.ok()) << made.status.message();
  EXPECT_TRUE(PackagedModel::isOne(made.file()));
  EXPECT_FALSE(PackagedModel::isOne(made.program()));
  auto shipped = PackagedModel::open(made.file());
  ASSERT_TRUE(shipped.ok()) << shipped.message();
  EXPECT_EQ(shipped->weightBytes(), kCount * 4);
  for (const auto &[name, text] : made.texts)
    EXPECT_EQ(*shipped->files().read(name, 1 << 20), text);
  EXPECT_FALSE(shipped->files().has("modules.json"));
  EXPECT_EQ(shipped->files().read("modules.json", 9).message(),
            made.file() + ": modules.json: no such file");
  EXPECT_FALSE(shipped->files().read("tokenizer.json", 99'999).ok());
  const Status status = made.load();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(PackagedModel, IsWrittenWholeOrNotAtAll) {
  Made made;
  const std::string before = made.bytes();
  ASSERT_TRUE(made.write().ok());
  EXPECT_EQ(made.bytes(), before); // nothing depends on when or where
  made.writeCheckpoint("another.weight");
  EXPECT_NE(made.write().message().find("lacks 1 of the model's parameters"),
            std::string::npos);
  EXPECT_EQ(made.bytes(), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(made.scratch.path), {}), 3);
  made.writeCheckpoint("transformer.table.weight");
  const Status status =
      writePackagedModel(made.scratch / "nowhere/model.tsr",
                         {made.program(), made.scratch.path, made.texts});
  EXPECT_NE(status.message().find("nowhere/model.tsr' cannot be made"),
            std::string::npos)
      << status.message();
}

TEST(PackagedModel, IsWrittenWhereFilesNeedNames) {
  ScratchDirectory scratch;
  const std::string path = scratch / "image";
  auto names = [&] {
    return std::distance(fs::directory_iterator(scratch.path), {});
  };
  {
    auto image = NewImage::create(path, 5000, /*mayBeUnnamed=*/false);
    ASSERT_TRUE(image.ok()) << image.message();
    EXPECT_EQ(names(), 1); // a hidden one
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(names(), 0);
  auto image = NewImage::create(path, 5000, /*mayBeUnnamed=*/false);
  ASSERT_TRUE(image.ok());
  (*image)->memory()[4999] = std::byte(7);
  ASSERT_TRUE((*image)->append("text").ok());
  ASSERT_TRUE((*image)->finish("key").ok());
  EXPECT_EQ(names(), 1);
  auto head = readImageHead(path);
  ASSERT_TRUE(head.ok()) << head.message();
  EXPECT_EQ(head->key, "key");
  EXPECT_EQ(head->bytes, 5000u);
  EXPECT_EQ(fileBytes(path).substr(kHead + 4999), "\x07text");
}

// Against copying byte by byte.
TEST(PackagedModel, ChunksAreCutIntoTensors) {
  std::vector<hal::TensorInfo> state;
  const char *names[] = {"a", "b", "c", "d", "e"};
  uint64_t end = 64;
  for (uint64_t bytes : {100u, 1u, 640u, 64u, 9u}) {
    hal::TensorInfo tensor{};
    tensor.name = names[state.size()];
    tensor.role =
        state.size() == 3 ? artifact::Role::cache : artifact::Role::parameter;
    tensor.offset = end;
    tensor.bytes = bytes;
    state.push_back(tensor);
    end += (bytes + 63) / 64 * 64;
  }
  for (uint64_t chunk : {1u, 63u, 64u, 100u, 5000u}) {
    std::map<std::string_view, std::string> made;
    for (uint64_t at = 64; at < end; at += chunk)
      for (const TensorPiece &piece :
           piecesOf(state, at, std::min(chunk, end - at))) {
        std::string &bytes = made[piece.name];
        ASSERT_EQ(bytes.size(), piece.inTensor);
        ASSERT_LE(piece.inChunk + piece.bytes, chunk);
        for (uint64_t i = 0; i < piece.bytes; ++i)
          bytes += char((at + piece.inChunk + i) % 251);
      }
    EXPECT_EQ(made.size(), 4u);
    for (const hal::TensorInfo &tensor : state) {
      std::string wanted;
      for (uint64_t i = 0; i < tensor.bytes; ++i)
        wanted += char((tensor.offset + i) % 251);
      if (tensor.role == artifact::Role::parameter)
        EXPECT_EQ(made[tensor.name], wanted);
    }
  }
}

TEST(PackagedModel, IsNotBelievedWhereItIsDamaged) {
  Made made;
  const std::string good = made.bytes();
  const std::size_t texts = kHead + kCount * 4,
                    artifact = good.rfind("TSRAFOOT") - 1000;
  const std::pair<std::size_t, const char *> flipped[] = {
      {16, "version"},
      {24, "is damaged"}, // sizes
      {32, "is damaged"},
      {40, "is damaged"},
      {60, "is damaged"}, // the key
      {kHead, "is damaged"},
      {texts - 1, "is damaged"}, // weights
      {texts, "1_Pooling/config.json"},
      {texts + 50'000, "tokenizer.json"},
      {artifact, "hash"},
      {good.size() - 1, "footer"}};
  for (auto [at, part] : flipped) {
    std::string bad = good;
    bad[at] ^= 1;
    made.replace(bad);
    made.expectRefused(part);
  }
  const std::pair<std::size_t, const char *> cut[] = {
      {good.size() - 1, "no artifact footer"},
      {texts + 10, "is damaged; copy or compile it again"},
      {texts - 1, "is damaged; copy or compile it again"},
      {kHead, "is damaged; copy or compile it again"},
      {kHead - 1, "is damaged; copy or compile it again"},
      {70, "is damaged; copy or compile it again"},
      {20, "has no weights"}};
  for (auto [size, part] : cut) {
    made.replace(good.substr(0, size));
    made.expectRefused(part);
  }
  made.replace(good);
  EXPECT_TRUE(made.load().ok());
}

TEST(PackagedModel, WeightsAreOfTheirProgram) {
  Made made;
  std::string bytes = made.bytes();
  const std::string other = bigramProgram("another");
  artifact::Footer footer;
  std::memcpy(&footer, bytes.data() + bytes.size() - artifact::kFooterBytes,
              artifact::kFooterBytes);
  bytes.resize(footer.offset);
  bytes += artifact::appendedBytes(
      bytes.size(),
      std::string_view(other).substr(0, other.size() - artifact::kFooterBytes));
  made.replace(bytes);
  made.expectRefused("has weights of another program");
}

TEST(PackagedModel, HeadsOfOthersAreChecked) {
  auto head = [](uint64_t keyBytes, uint64_t bytes, uint64_t hashes) {
    std::string text = "tessera weights\n";
    for (uint64_t number : {uint64_t(1), keyBytes, bytes, hashes})
      text.append(reinterpret_cast<const char *>(&number), sizeof number);
    return text + std::string(4096, '\0');
  };
  const uint64_t all = UINT64_MAX, chunk = kImageChunk, file = 1 << 30;
  for (auto [key, bytes, hashes] : {std::tuple{all, chunk, uint64_t(1)},
                                    {4, all, 1},
                                    {4, chunk, all},
                                    {4, chunk, 2},
                                    {all - 40, chunk, 1},
                                    {4, file, 64},
                                    {5000, chunk, 1},
                                    {0, all - chunk + 2, 0}})
    EXPECT_FALSE(parseImageHead(head(key, bytes, hashes), file).ok());
  EXPECT_FALSE(parseImageHead("", 0).ok());
  EXPECT_FALSE(parseImageHead("tessera weights\n", 16).ok());
  // All is right but the hash of the head.
  EXPECT_EQ(parseImageHead(head(4, chunk, 1), file).message(), "is damaged");
}

TEST(PackagedModel, KeysOfOthersAreChecked) {
  const std::string bytes(100, 'x');
  EXPECT_TRUE(PackagedModel::readFiles("{}", bytes)->empty());
  auto key = [](const char *offset, const char *size) {
    return fmt::format("{{\"files\": {{\"config.json\": {{\"offset\": {}, "
                       "\"bytes\": {}, \"hash\": \"0\"}}}}}}",
                       offset, size);
  };
  for (auto [offset, size] : {std::pair("90", "11"),
                              {"101", "0"},
                              {"-1", "1"},
                              {"1.5", "1"},
                              {"0", "18446744073709551615"},
                              {"18446744073709551615", "2"},
                              {"null", "1"}})
    EXPECT_EQ(PackagedModel::readFiles(key(offset, size), bytes).message(),
              "is damaged; copy or compile it again");
  EXPECT_EQ(PackagedModel::readFiles(key("0", "9"), bytes).message(),
            "has a damaged 'config.json'; copy or compile it again");
  const std::string none = fmt::format("{:016x}", hash64({}));
  auto named = [&](const char *name) {
    return fmt::format("\"{}\": {{\"offset\": 1, \"bytes\": 0, \"hash\": "
                       "\"{}\"}}",
                       name, none);
  };
  auto read = [&](const std::string &files) {
    return PackagedModel::readFiles("{\"files\": {" + files + "}}", bytes);
  };
  EXPECT_EQ(*read(named("a")), (ModelFiles::Contents{{"a", ""}}));
  EXPECT_FALSE(read(named("a\\n")).ok());
  EXPECT_EQ(read(named("a\\n")).message().find('\n'), std::string::npos);
  EXPECT_FALSE(read(named("a") + "," + named("a")).ok());
  for (const char *bad : {"", "[", "{\"files\":", "nul"})
    EXPECT_FALSE(PackagedModel::readFiles(bad, bytes).ok());
}
