// Every kind of wgmma on the emulated GPU against plain loops, on small
// integers, whose sums are exact in any order; ragged in all three dimensions.
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/emulated/MatrixOperand.h"
#include "runtime/hal/emulated/TensorMap.h"
#include "test/runtime/device/WgmmaKernels.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

using namespace tessera;
using namespace tessera::device;

namespace {

// The code of a small number: the first that is read as it.
std::uint32_t encode(MatrixElement element, float value) {
  std::uint32_t bits = floatToBits(value);
  if (element == MatrixElement::tf32)
    return bits;
  if (element == MatrixElement::bf16)
    return bits >> 16;
  for (std::uint32_t code = 0; code < 1u << 8 * emulated::bytesOf(element);
       ++code)
    if (emulated::readElement(
            element, reinterpret_cast<const std::byte *>(&code)) == value)
      return code;
  ADD_FAILURE() << value << " is no number of the type";
  return 0;
}

/// A matrix of `rows` rows of A, or columns of B, in global memory, with NaN
/// between its lines.
struct Matrix {
  Matrix(MatrixElement element, Major major, int rows, int depth, unsigned seed)
      : bytes(static_cast<int>(emulated::bytesOf(element))), depth(depth) {
    std::uint32_t codes[5];
    for (int value = -2; value <= 2; ++value)
      codes[value + 2] = encode(element, static_cast<float>(value));
    inner = major == Major::k ? depth : rows;
    outer = major == Major::k ? rows : depth;
    pitch = (inner * bytes + 15) / 16 * 16;
    memory.assign(static_cast<std::size_t>(outer) * pitch / 16,
                  Line{{~0ull, ~0ull}});
    std::mt19937 random(seed);
    for (int row = 0; row < rows; ++row)
      for (int k = 0; k < depth; ++k) {
        int value = static_cast<int>(random() % 5) - 2;
        values.push_back(static_cast<float>(value));
        int i = major == Major::k ? row : k, j = major == Major::k ? k : row;
        std::memcpy(reinterpret_cast<std::byte *>(memory.data()) + i * pitch +
                        j * bytes,
                    &codes[value + 2], static_cast<std::size_t>(bytes));
      }
  }

  TensorMap map(Swizzle swizzle, int width, int height) const {
    TensorBoxes boxes;
    boxes.element = bytes == 1   ? MapElement::u8
                    : bytes == 2 ? MapElement::bf16
                                 : MapElement::f32;
    boxes.base = reinterpret_cast<std::uint64_t>(memory.data());
    boxes.sizes[0] = static_cast<std::uint64_t>(inner);
    boxes.sizes[1] = static_cast<std::uint64_t>(outer);
    boxes.strides[0] = static_cast<std::uint64_t>(pitch);
    boxes.box[0] = static_cast<std::uint32_t>(width);
    boxes.box[1] = static_cast<std::uint32_t>(height);
    boxes.swizzle = swizzle;
    TensorMap map;
    Status status = emulated::makeTensorMap(boxes, map);
    EXPECT_TRUE(status.ok()) << status.message();
    return map;
  }

  float at(int row, int k) const { return values[row * depth + k]; }

  struct alignas(16) Line {
    std::uint64_t words[2];
  };
  int bytes, depth, inner, outer, pitch;
  std::vector<Line> memory;
  std::vector<float> values;
};

emulated::BufferRange rangeOf(const auto &values, Access access) {
  return {reinterpret_cast<const std::byte *>(values.data()),
          values.size() * sizeof(values[0]), access};
}

template <Inputs I, int N, Major A, Major B, Swizzle S, bool Registers>
void check(const char *name, emulated::KernelEntry entry) {
  using Kernel = SingleProduct<I, N, A, B, S, Registers>;
  using TileA = typename Kernel::SideA::Boxes;
  using TileB = typename Kernel::SideB::Boxes;
  constexpr WarpgroupProduct::Same kTypes = productOf<I>();
  int rows = 50, columns = N - 3, depth = Kernel::kDepth * 2 + 3;
  Matrix a(kTypes.elementA, A, rows, depth, 1);
  Matrix b(kTypes.elementB, B, columns, depth, 2);
  std::vector<float> expected;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      float sum = 0;
      for (int k = 0; k < depth; ++k)
        sum += a.at(i, k) * b.at(j, k);
      expected.push_back(sum);
    }
  TensorMap mapA = a.map(S, TileA::kWidth, TileA::kRows),
            mapB = b.map(S, TileB::kWidth, TileB::kRows);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    std::vector<float> c(expected.size(), -1);
    Launch<3, 3> launch{};
    launch.first.buffers[0] = reinterpret_cast<std::uint64_t>(&mapA);
    launch.first.buffers[1] = reinterpret_cast<std::uint64_t>(&mapB);
    launch.first.buffers[2] = reinterpret_cast<std::uint64_t>(c.data());
    launch.first.sizes[0] = rows;
    launch.first.sizes[1] = columns;
    launch.first.sizes[2] = depth;
    launch.count = 1;
    const emulated::BufferRange buffers[] = {rangeOf(a.memory, Access::read),
                                             rangeOf(b.memory, Access::read),
                                             rangeOf(c, Access::write)};
    emulated::LaunchOptions options{name, {}, 128, Kernel::kShared, seed};
    emulated::BlockMachine machine;
    Status status = machine.launch(options, entry, &launch, buffers);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(c, expected) << name << ", seed " << seed;
    EXPECT_EQ(machine.counts().products, 4u * 4 * 3);
  }
}

} // namespace

#define TESSERA_CHECK(name, inputs, n, a, b, swizzle, registers)               \
  TEST(Wgmma, name) {                                                          \
    check<Inputs::inputs, n, Major::a, Major::b, Swizzle::swizzle, registers>( \
        #name, product_##name##_emulated);                                     \
  }
TESSERA_WGMMA_CASES(TESSERA_CHECK)
#undef TESSERA_CHECK

namespace {

/// Fills both operands with ones, by ordinary stores or by cp.async, and
/// multiplies them.
struct Filled {
  const bf16 *ones;
  bool copies, fences;
  mutable float sum = 0;

  static void enter(Machine &machine, const void *arguments) {
    device::machine = &machine;
    static_cast<const Filled *>(arguments)->run();
  }
  void run() const {
    BoxTile<bf16, 64, 64> tile{sharedMemory()};
    for (int i = thread(); i < 64 * 8; i += 128) {
      bf16 *chunk = tile.at(i / 8, i % 8 * 8);
      if (copies) {
        copyAsync(chunk, ones);
        continue;
      }
      checkWrite(chunk, 8);
      std::copy_n(ones, 8, chunk);
    }
    commitCopies();
    waitCopies<0>();
    if (fences)
      fenceAsync();
    device::sync();
    float d[32] = {};
    wgmmaFence(d);
    wgmma<Inputs::bf16>(d, tile.kMajor(0), tile.kMajor(1));
    wgmmaCommit();
    wgmmaWait<0>(d);
    if (thread() == 77)
      sum = d[31];
  }
};

} // namespace

TEST(Wgmma, OperandsLieBehindTheFencesOfTheirWriters) {
  std::vector<Matrix::Line> ones(
      1, Matrix::Line{{0x3f803f803f803f80ull, 0x3f803f803f803f80ull}});
  const emulated::BufferRange buffers[] = {rangeOf(ones, Access::read)};
  for (bool copies : {false, true})
    for (bool fences : {false, true}) {
      Filled filled{reinterpret_cast<const bf16 *>(ones.data()), copies,
                    fences};
      emulated::BlockMachine machine;
      Status status = machine.launch({"filled", {}, 128, 8192, 1},
                                     Filled::enter, &filled, buffers);
      if (fences)
        EXPECT_TRUE(status.ok() && filled.sum == 16) << status.message();
      else
        EXPECT_NE(status.message().find("without fence.proxy.async"),
                  std::string::npos)
            << status.message();
    }
}

TEST(MatrixElement, EightBitNumbersAreThoseOfTheirFormats) {
  auto read = [](MatrixElement element, std::uint32_t code) {
    return emulated::readElement(element,
                                 reinterpret_cast<const std::byte *>(&code));
  };
  EXPECT_EQ(read(MatrixElement::e4m3, 0x38), 1.0f);
  EXPECT_EQ(read(MatrixElement::e4m3, 0x7e), 448.0f);
  EXPECT_EQ(read(MatrixElement::e4m3, 0x81), -0x1p-9f);
  EXPECT_EQ(read(MatrixElement::e4m3, 0x08), 0x1p-6f);
  EXPECT_TRUE(std::isnan(read(MatrixElement::e4m3, 0xff)));
  EXPECT_EQ(read(MatrixElement::e5m2, 0x3c), 1.0f);
  EXPECT_EQ(read(MatrixElement::e5m2, 0xfb), -57344.0f);
  EXPECT_EQ(read(MatrixElement::e5m2, 0x01), 0x1p-16f);
  EXPECT_TRUE(std::isinf(read(MatrixElement::e5m2, 0x7c)));
  EXPECT_EQ(read(MatrixElement::tf32, floatToBits(1.0f + 0x1p-11f)), 1.0f);
}

// The examples of the PTX ISA, "Canonical Layouts": element offsets of exact
// layouts, as strides of its nested shapes.
TEST(MatrixDescriptor, FindsTheChunksOfDocumentedLayouts) {
  auto descriptor = [](unsigned leading, unsigned stride, unsigned mode) {
    return emulated::MatrixDescriptor(std::uint64_t(leading / 16) << 16 |
                                      std::uint64_t(stride / 16) << 32 |
                                      std::uint64_t(mode) << 62);
  };
  // tf32, K-major, no swizzle: ((8,2),(4,4)):((4,32),(1,64))
  auto chunks = emulated::chunksOf(descriptor(64 * 4, 32 * 4, 0), false, 16);
  ASSERT_TRUE(chunks.ok());
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned c = 0; c < 2; ++c)
      EXPECT_EQ((*chunks)[2 * row + c],
                4 * (row % 8 * 4 + row / 8 * 32 + c * 64));
  // tf32, K-major, 32 bytes: ((8,2),(4,4)):((8,64),(1,4)), then exchanged
  chunks = emulated::chunksOf(descriptor(16, 64 * 4, 3), false, 16);
  ASSERT_TRUE(chunks.ok());
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned c = 0; c < 2; ++c)
      EXPECT_EQ((*chunks)[2 * row + c],
                emulated::swizzled(4 * (row % 8 * 8 + row / 8 * 64 + c * 4),
                                   Swizzle::b32));
  // bf16, MN-major, no swizzle: ((8,1,2),(8,2)):((1,8,64),(8,128))
  chunks = emulated::chunksOf(descriptor(128 * 2, 64 * 2, 0), true, 16);
  ASSERT_TRUE(chunks.ok());
  for (unsigned k = 0; k < 16; ++k)
    for (unsigned j = 0; j < 2; ++j)
      EXPECT_EQ((*chunks)[2 * k + j], 2 * (k % 8 * 8 + k / 8 * 128 + j * 64));
  // bf16, MN-major, 64 bytes: ((8,4,2),(8,2)):((1,8,256),(32,512))
  chunks = emulated::chunksOf(descriptor(256 * 2, 512 * 2, 2), true, 64);
  ASSERT_TRUE(chunks.ok());
  for (unsigned k = 0; k < 16; ++k)
    for (unsigned j = 0; j < 8; ++j)
      EXPECT_EQ((*chunks)[8 * k + j],
                emulated::swizzled(
                    2 * (j % 4 * 8 + j / 4 * 256 + k % 8 * 32 + k / 8 * 512),
                    Swizzle::b64));
}

TEST(MatrixDescriptor, RefusesLayoutsThatAreNotDocumented) {
  auto message = [](std::uint64_t bits, bool mnMajor, unsigned rows) {
    return emulated::chunksOf(emulated::MatrixDescriptor(bits), mnMajor, rows)
        .message();
  };
  const std::uint64_t wide = std::uint64_t(1) << 62;
  EXPECT_EQ(message(wide | 6, false, 64), ""); // 96 bytes into the row
  EXPECT_NE(message(wide | 7, false, 64).find("112 bytes after"),
            std::string::npos);
  EXPECT_NE(message(wide | 2, true, 64).find("32 bytes after"),
            std::string::npos);
  EXPECT_NE(message(wide, true, 96).find("96 rows is stored in blocks of 64"),
            std::string::npos);
  EXPECT_NE(
      message(wide | std::uint64_t(1) << 49, false, 64).find("base offset 1"),
      std::string::npos);
}
