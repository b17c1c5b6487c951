// A product of two matrices as kernels for sm_90a do it, warps with roles of
// their own, on the emulated GPU; and what the emulator makes of such kernels
// that do it wrong.
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/emulated/TensorMap.h"
#include "test/runtime/device/Defects.h"
#include "test/runtime/device/HopperKernels.cuh"

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

// Boxes of 64 × 64 elements of a row-major matrix.
TensorMap mapOf(const std::vector<bf16> &matrix, int rows, int columns,
                int boxRows) {
  TensorBoxes boxes;
  boxes.base = reinterpret_cast<std::uint64_t>(matrix.data());
  boxes.sizes[0] = static_cast<std::uint64_t>(columns);
  boxes.sizes[1] = static_cast<std::uint64_t>(rows);
  boxes.strides[0] = static_cast<std::uint64_t>(columns) * 2;
  boxes.box[0] = 64;
  boxes.box[1] = static_cast<std::uint32_t>(boxRows);
  boxes.swizzle = Swizzle::b128;
  TensorMap map;
  Status status = emulated::makeTensorMap(boxes, map);
  EXPECT_TRUE(status.ok()) << status.message();
  return map;
}

std::vector<bf16> smallIntegers(std::mt19937 &random, int count) {
  std::vector<bf16> values(static_cast<std::size_t>(count));
  for (bf16 &value : values)
    value = toBf16(static_cast<float>(static_cast<int>(random() % 5) - 2));
  return values;
}

struct Product {
  Product(int rows, int columns, int depth)
      : rows(rows), columns(columns), depth(depth) {
    std::mt19937 random(7);
    a = smallIntegers(random, rows * depth);
    b = smallIntegers(random, depth * columns);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) {
        float sum = 0;
        for (int k = 0; k < depth; ++k)
          sum += toFloat(a[i * depth + k]) * toFloat(b[k * columns + j]);
        expected.push_back(toBf16(sum).bits);
      }
  }

  /// Empty if the result is right; the machine's error or "wrong" otherwise.
  std::string run(std::uint64_t seed, Defect defect) {
    std::vector<bf16> c(expected.size());
    TensorMap maps[] = {mapOf(a, rows, depth, Pipelined::kM),
                        mapOf(b, depth, columns, 64),
                        mapOf(c, rows, columns, 64)};
    int down = (rows + Pipelined::kM - 1) / Pipelined::kM,
        across = (columns + Pipelined::kN - 1) / Pipelined::kN;
    Launch<3, 3> launch{};
    for (int i = 0; i < 3; ++i)
      launch.first.buffers[i] = reinterpret_cast<std::uint64_t>(&maps[i]);
    launch.first.sizes[0] = depth;
    launch.first.sizes[1] = across;
    launch.first.sizes[2] = static_cast<std::int64_t>(defect);
    launch.count = 1;
    const emulated::BufferRange buffers[] = {rangeOf(a, Access::read),
                                             rangeOf(b, Access::read),
                                             rangeOf(c, Access::readWrite)};
    emulated::LaunchOptions options{"pipelined",
                                    {unsigned(down * across), 1, 1},
                                    Pipelined::kThreads,
                                    Pipelined::kShared,
                                    seed};
    emulated::BlockMachine machine;
    Status status =
        machine.launch(options, pipelined_emulated, &launch, buffers);
    if (!status.ok())
      return status.message();
    for (std::size_t i = 0; i < c.size(); ++i)
      if (c[i].bits != expected[i])
        return "wrong";
    return "";
  }

  int rows, columns, depth;
  std::vector<bf16> a, b;
  std::vector<std::uint16_t> expected;
};

} // namespace

TEST(Pipelined, ProductIsExactUnderEverySeed) {
  Product whole(128, 128, 64), ragged(200, 152, 328);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(whole.run(seed, Defect::none), "") << seed;
    EXPECT_EQ(ragged.run(seed, Defect::none), "") << seed;
  }
}

TEST(Pipelined, EveryDefectIsCaughtUnderEverySeed) {
  expectAllCaught<Defect>(Product(128, 128, 328));
}

// The reports name what is wrong, where it can be known.
TEST(Pipelined, DefectsAreReportedByName) {
  const Report<Defect> reports[] = {
      {Defect::tooManyBytes, "0 arrivals and 16 bytes are missing"},
      {Defect::tooManyArrivals, "ends before 1 threads have seen the end"},
      {Defect::noBarrierFence, "which thread 0 initialized without a fence"},
      {Defect::noBarrierSync, "without a barrier after its initialization"},
      {Defect::misplacedStage, "a bulk copy writes shared memory"},
      {Defect::noWgmmaFence, "without wgmma.fence"},
      {Defect::writesEarly, "has written accumulator 0 of a wgmma in flight"},
      {Defect::warpLeft, "issue different wgmma"},
      {Defect::noAsyncFence, "has written without fence.proxy.async"},
      {Defect::leavesEarly, "ends while a bulk store still reads 8192 bytes"},
      {Defect::tooManyRegisters, "waits for 2304 registers"},
  };
  expectReported(reports, Product(128, 128, 328));
}
