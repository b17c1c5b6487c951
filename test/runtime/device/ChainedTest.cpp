// Products whose left operand is the result of another, between warpgroups that
// take turns, on the emulated GPU; and what the emulator makes of such kernels
// that do it wrong.
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/emulated/TensorMap.h"
#include "test/runtime/device/ChainedKernels.cuh"
#include "test/runtime/device/Defects.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

using namespace tessera;
using namespace tessera::device;

namespace {

emulated::BufferRange rangeOf(const auto &values, Access access) {
  return {reinterpret_cast<const std::byte *>(values.data()),
          values.size() * sizeof(values[0]), access};
}

// Boxes of `boxRows` rows of a matrix [rows, Chained::kDim].
TensorMap mapOf(const std::vector<bf16> &matrix, int boxRows) {
  TensorBoxes boxes;
  boxes.base = reinterpret_cast<std::uint64_t>(matrix.data());
  boxes.sizes[0] = Chained::kDim;
  boxes.sizes[1] = matrix.size() / Chained::kDim;
  boxes.strides[0] = Chained::kDim * sizeof(bf16);
  boxes.box[0] = Chained::kDim;
  boxes.box[1] = static_cast<std::uint32_t>(boxRows);
  boxes.swizzle = Swizzle::b128;
  TensorMap map;
  Status status = emulated::makeTensorMap(boxes, map);
  EXPECT_TRUE(status.ok()) << status.message();
  return map;
}

// Small enough that scores are whole numbers that bf16 holds.
struct Attention {
  explicit Attention(int tokens) : tokens(tokens) {
    std::mt19937 random(5);
    auto draw = [&](int rows) {
      std::vector<bf16> values(static_cast<std::size_t>(rows * Chained::kDim));
      for (bf16 &value : values)
        value = toBf16(static_cast<float>(static_cast<int>(random() % 3) - 1));
      return values;
    };
    q = draw(Chained::kQueries);
    k = draw(tokens);
    v = draw(tokens);
    constexpr int kDim = Chained::kDim;
    expected.resize(Chained::kQueries * kDim);
    for (int i = 0; i < Chained::kQueries; ++i)
      for (int key = 0; key < tokens; ++key) {
        float score = 0;
        for (int d = 0; d < kDim; ++d)
          score += toFloat(q[i * kDim + d]) * toFloat(k[key * kDim + d]);
        for (int d = 0; d < kDim; ++d)
          expected[i * kDim + d] += score * toFloat(v[key * kDim + d]);
      }
  }

  /// Empty if the result is right; the machine's error or "wrong" otherwise.
  std::string run(std::uint64_t seed, ChainedDefect defect) {
    std::vector<float> out(expected.size());
    TensorMap maps[] = {mapOf(q, Chained::kQueries), mapOf(k, Chained::kKeys),
                        mapOf(v, Chained::kKeys)};
    Launch<4, 2> launch{};
    for (int i = 0; i < 3; ++i)
      launch.first.buffers[i] = reinterpret_cast<std::uint64_t>(&maps[i]);
    launch.first.buffers[3] = reinterpret_cast<std::uint64_t>(out.data());
    launch.first.sizes[0] = tokens;
    launch.first.sizes[1] = static_cast<std::int64_t>(defect);
    launch.count = 1;
    const emulated::BufferRange buffers[] = {
        rangeOf(q, Access::read), rangeOf(k, Access::read),
        rangeOf(v, Access::read), rangeOf(out, Access::readWrite)};
    emulated::LaunchOptions options{
        "chained", {1, 1, 1}, Chained::kThreads, Chained::kShared, seed};
    emulated::BlockMachine machine;
    Status status = machine.launch(options, chained_emulated, &launch, buffers);
    if (!status.ok())
      return status.message();
    return out == expected ? "" : "wrong";
  }

  int tokens;
  std::vector<bf16> q, k, v;
  std::vector<float> expected;
};

} // namespace

TEST(Chained, IsExactUnderEverySeed) {
  Attention one(64), many(5 * 64);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(one.run(seed, ChainedDefect::none), "") << seed;
    EXPECT_EQ(many.run(seed, ChainedDefect::none), "") << seed;
  }
}

TEST(Chained, EveryDefectIsCaughtUnderEverySeed) {
  expectAllCaught<ChainedDefect>(Attention(5 * 64));
}

// The reports name what is wrong, where it can be known.
TEST(Chained, DefectsAreReportedByName) {
  const Report<ChainedDefect> reports[] = {
      {ChainedDefect::noTurnBegin, "barrier 2"},
      {ChainedDefect::noTurnEnd,
       "ends while 128 of 256 threads have come to barrier 2"},
      {ChainedDefect::keysReleasedByAll,
       "a bulk copy writes shared memory at offset 16384, which a wgmma"},
  };
  expectReported(reports, Attention(5 * 64));
}
