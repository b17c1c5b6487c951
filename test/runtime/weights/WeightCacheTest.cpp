#include "runtime/weights/WeightCache.h"
#include "runtime/hal/host/HostMemory.h"
#include "runtime/weights/WeightsImage.h"
#include "test/runtime/train/FakeTrainModel.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kWeights = (std::size_t(20) << 20) + 4711 * 4;
constexpr std::size_t kHead = std::size_t(2) << 20; // before the weights

/// Two parameters and a cache in memory as a device has it.
class PlacedModel : public FakeTrainModel {
public:
  explicit PlacedModel(std::string name = "b.weight") {
    auto add = [&](std::string tensor, StateRole role, uint64_t bytes) {
      tensors.push_back(
          {std::move(tensor), SafetensorsType::f32, {bytes / 4}, role, bytes});
    };
    tensors.clear();
    add("a.weight", StateRole::parameter, 4096);
    add(std::move(name), StateRole::parameter, kWeights - 4096);
    add("cache.keys.0", StateRole::cache, 4096);
    memory = hal::HostMemory::allocate(kWeights + 4096, "a test").take();
  }
  std::span<std::byte> stateInMemory(const StateTensor &tensor) override {
    std::size_t at = 0;
    for (const StateTensor &each : tensors) {
      if (&each == &tensor)
        return {memory.data() + at, std::size_t(tensor.size)};
      at += each.size;
    }
    return {};
  }
  std::span<std::byte> weights() { return {memory.data(), kWeights}; }
  std::byte &cache() { return memory.data()[kWeights]; }
  void fill(uint32_t seed) {
    auto *words = reinterpret_cast<uint32_t *>(memory.data());
    for (std::size_t i = 0; i < kWeights / 4; ++i)
      words[i] = (seed + uint32_t(i)) * 0x9e3779b9;
  }
  hal::HostMemory memory;
};

bool isZero(std::span<const std::byte> bytes) {
  return bytes[0] == std::byte(0) &&
         std::memcmp(bytes.data(), &bytes[1], bytes.size() - 1) == 0;
}

void writeCheckpoint(const std::string &path, char content) {
  const std::string header =
      R"({"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})";
  const uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char *>(&length), sizeof length);
  file << header << std::string(8, content);
}

/// A folder with a checkpoint, whose weights `model` has in memory.
struct Start {
  Start() {
    checkpoint = scratch / "model.safetensors";
    writeCheckpoint(checkpoint, 'a');
    model.fill(1);
  }
  std::optional<WeightCache> kept(TrainModel &of) const {
    return WeightCache::of(scratch.path, checkpoint, of);
  }
  std::string file() { return kept(model)->path(); }
  Status store() { return kept(model)->store({}); }
  /// Whether another process would have the model's weights.
  bool isKept() {
    PlacedModel next;
    return kept(next)->load(false, note) &&
           std::ranges::equal(next.weights(), model.weights());
  }
  std::size_t files() const {
    return std::size_t(
        std::distance(fs::directory_iterator(scratch.path + "/weights"), {}));
  }

  ScratchDirectory scratch;
  std::string checkpoint, note;
  PlacedModel model;
};

void flip(const std::string &path, std::size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(std::streamoff(at));
  const char byte = char(file.get() ^ 1);
  file.seekp(std::streamoff(at));
  file.put(byte);
}

} // namespace

TEST(WeightCache, AreThereAtTheNextStart) {
  Start start;
  EXPECT_FALSE(start.isKept());
  EXPECT_EQ(start.note, ""); // nothing was there
  ASSERT_TRUE(start.store().ok());
  EXPECT_TRUE(start.isKept());
  EXPECT_EQ(start.note, "");
  EXPECT_EQ(start.files(), 1u);
}

TEST(WeightCache, AreEachProcessesOwn) {
  Start start;
  ASSERT_TRUE(start.store().ok());
  PlacedModel next;
  next.cache() = std::byte(7);
  std::string note;
  ASSERT_TRUE(start.kept(next)->load(true, note));
  EXPECT_EQ(next.cache(), std::byte(7)); // right behind them
  next.fill(99);
  EXPECT_TRUE(start.isKept());
}

// Not even a file of the same size and the same times is the same.
TEST(WeightCache, AreOfOneCheckpointAsItWas) {
  Start start;
  ASSERT_TRUE(start.store().ok());
  struct stat before;
  ASSERT_EQ(::stat(start.checkpoint.c_str(), &before), 0);
  writeCheckpoint(start.checkpoint, 'b');
  const timespec times[] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, start.checkpoint.c_str(), times, 0), 0);
  EXPECT_FALSE(start.isKept());
  ASSERT_TRUE(start.store().ok());
  EXPECT_TRUE(start.isKept());
  EXPECT_EQ(start.files(), 2u);
}

TEST(WeightCache, AreOfOneLayout) {
  Start start;
  PlacedModel other("c.weight"), quantized;
  quantized.tensors[1].quantized = {"b", false, {16, 32, 8, 32}, false};
  EXPECT_NE(start.kept(other)->path(), start.file());
  const std::string file = start.kept(quantized)->path();
  EXPECT_NE(file, start.file());
  quantized.tensors[1].quantized->layout.floats = true;
  EXPECT_NE(start.kept(quantized)->path(), file);
  quantized.tensors[1].quantized->layout.floats = false;
  quantized.tensors[1].quantized->layout.group = 64;
  EXPECT_NE(start.kept(quantized)->path(), file);
}

TEST(WeightCache, NeedParametersSideBySideInMemory) {
  Start start;
  std::swap(start.model.tensors[1].role, start.model.tensors[2].role);
  EXPECT_FALSE(start.kept(start.model)); // something is between them
  std::swap(start.model.tensors[0].role, start.model.tensors[1].role);
  EXPECT_FALSE(start.kept(start.model)); // not where a huge page begins
  FakeTrainModel elsewhere;
  EXPECT_FALSE(start.kept(elsewhere));
  PlacedModel model;
  EXPECT_FALSE(WeightCache::of("", start.checkpoint, model));
  EXPECT_FALSE(
      WeightCache::of(start.scratch.path, start.scratch / "none", model));
}

TEST(WeightCache, DamagedFilesAreReadAnew) {
  Start start;
  ASSERT_TRUE(start.store().ok());
  const std::string file = start.file();
  for (std::size_t at :
       {std::size_t(0), std::size_t(16), std::size_t(24), std::size_t(32),
        std::size_t(40), std::size_t(48), std::size_t(300), kHead,
        kHead + kImageChunk, kHead + kWeights - 1}) {
    flip(file, at);
    PlacedModel next;
    std::string note;
    EXPECT_FALSE(start.kept(next)->load(false, note)) << at;
    EXPECT_NE(note.find("weights are read anew: '" + file), std::string::npos)
        << note;
    EXPECT_TRUE(isZero(next.weights())) << at;
    flip(file, at);
    EXPECT_TRUE(start.isKept()) << at;
  }
}

TEST(WeightCache, FilesOfAnotherSizeAreReadAnew) {
  Start start;
  ASSERT_TRUE(start.store().ok());
  for (std::size_t size :
       {std::size_t(0), std::size_t(20), kHead, kHead + kWeights - 1,
        kHead + kWeights + 1, kHead + kWeights}) {
    fs::resize_file(start.file(), size);
    EXPECT_FALSE(start.isKept()) << size; // the last has lost a byte
  }
  std::string note;
  PlacedModel next;
  EXPECT_FALSE(start.kept(next)->load(/*mayWrite=*/true, note));
  EXPECT_EQ(start.files(), 0u);
  ASSERT_TRUE(start.store().ok());
  EXPECT_TRUE(start.isKept());
}

TEST(WeightCache, AnothersFileIsNotBelieved) {
  Start start;
  PlacedModel other("c.weight");
  other.fill(2);
  ASSERT_TRUE(start.kept(other)->store({}).ok());
  fs::rename(start.kept(other)->path(), start.file());
  EXPECT_FALSE(start.isKept());
  EXPECT_NE(start.note.find("of other weights"), std::string::npos);
  fs::remove(start.file());
  fs::create_directory(start.file());
  EXPECT_FALSE(start.isKept());
}

TEST(WeightCache, MayBeStoredByMany) {
  Start start;
  std::vector<std::jthread> threads;
  std::atomic<int> failed = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { failed += !start.store().ok(); });
  threads.clear();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(start.files(), 1u);
  EXPECT_TRUE(start.isKept());
}

TEST(WeightCache, StoringIsStopped) {
  Start start;
  std::stop_source source;
  source.request_stop();
  EXPECT_FALSE(start.kept(start.model)->store(source.get_token()).ok());
  EXPECT_EQ(start.files(), 0u);
}

TEST(WeightCache, AFolderThatCannotBeWrittenIsSaid) {
  Start start;
  std::ofstream(start.scratch / "weights") << "a file";
  Status status = start.store();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(start.scratch / "weights"),
            std::string::npos);
  EXPECT_FALSE(start.isKept());
}

TEST(WeightCache, ThoseUsedLongestAgoMakeRoom) {
  Start start;
  PlacedModel models[] = {PlacedModel("b"), PlacedModel("c"), PlacedModel("d")};
  const uint64_t most = 2 * (kWeights + 2 * kHead);
  ASSERT_TRUE(start.kept(models[0])->store({}, most).ok());
  ASSERT_TRUE(start.kept(models[1])->store({}, most).ok());
  const auto longAgo = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(start.kept(models[0])->path(), longAgo);
  fs::last_write_time(start.kept(models[1])->path(), longAgo);
  std::string note;
  EXPECT_TRUE(start.kept(models[0])->load(true, note)); // is a use
  ASSERT_TRUE(start.kept(models[2])->store({}, most).ok());
  EXPECT_TRUE(fs::exists(start.kept(models[0])->path()));
  EXPECT_FALSE(fs::exists(start.kept(models[1])->path()));
  EXPECT_TRUE(fs::exists(start.kept(models[2])->path()));
  EXPECT_FALSE(start.kept(models[1])->store({}, kWeights / 2).ok());
  EXPECT_TRUE(fs::exists(start.kept(models[0])->path())); // nor goes another
  EXPECT_TRUE(fs::exists(start.kept(models[2])->path()));
}
