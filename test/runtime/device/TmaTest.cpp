// The copy engine on the emulated GPU: boxes of two to five dimensions, their
// edges, reductions, and the tensor maps that a driver would refuse.
#include "runtime/device/Device.cuh"
#include "runtime/device/Hopper.cuh"
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/emulated/TensorMap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

using namespace tessera;
using namespace tessera::device;

namespace {

using Kernel = std::function<void()>;

void enter(Machine &machine, const void *arguments) {
  device::machine = &machine;
  (*static_cast<const Kernel *>(arguments))();
}

struct alignas(128) Aligned {
  float at[32];
};

/// Floats in device memory.
struct Buffer {
  explicit Buffer(int count, float value = 0)
      : lines(static_cast<std::size_t>(count + 31) / 32), count(count) {
    std::fill_n(data(), count, value);
  }
  float *data() { return lines.data()->at; }
  emulated::BufferRange range(Access access) {
    return {reinterpret_cast<const std::byte *>(data()),
            static_cast<std::uint64_t>(count) * 4, access};
  }
  std::vector<Aligned> lines;
  int count;
};

struct Emulation {
  std::vector<emulated::BufferRange> buffers;
  emulated::LaunchOptions options{"test", {}, 32, 32768, 1};

  std::string operator()(const Kernel &kernel) {
    emulated::BlockMachine machine;
    return machine.launch(options, enter, &kernel, buffers).message();
  }
};

TensorMap make(const TensorBoxes &boxes) {
  TensorMap map;
  Status status = emulated::makeTensorMap(boxes, map);
  EXPECT_TRUE(status.ok()) << status.message();
  return map;
}

/// Of floats that lie densely, first dimension innermost.
TensorBoxes boxesOf(Buffer &buffer, std::vector<std::uint32_t> sizes,
                    std::vector<std::uint32_t> box,
                    Swizzle swizzle = Swizzle::none) {
  TensorBoxes boxes;
  boxes.element = MapElement::f32;
  boxes.rank = static_cast<std::uint32_t>(sizes.size());
  boxes.base = reinterpret_cast<std::uint64_t>(buffer.data());
  std::uint64_t stride = 4;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    boxes.sizes[d] = sizes[d];
    boxes.box[d] = box[d];
    stride *= sizes[d];
    if (d + 1 < sizes.size())
      boxes.strides[d] = stride;
  }
  boxes.swizzle = swizzle;
  return boxes;
}

float *tileOf() { return reinterpret_cast<float *>(sharedMemory()); }
Barrier &barrierOf() {
  return *reinterpret_cast<Barrier *>(sharedMemory() + 32000);
}

/// By thread 0: issues copies of `bytes` bytes and waits for them.
template <typename Issue> void loadAndWait(int bytes, Issue issue) {
  if (thread() == 0) {
    initBarrier(barrierOf(), 1);
    fenceBarriers();
    arriveExpecting(barrierOf(), bytes);
    issue(barrierOf());
    EXPECT_TRUE(std::isnan(tileOf()[0])); // not before the wait
  }
  device::sync();
  await(barrierOf(), 0);
}

} // namespace

TEST(Tma, BoxesOfThreeDimensionsHaveZerosOutOfBounds) {
  Buffer in(8 * 5 * 3);
  std::iota(in.data(), in.data() + in.count, 1.0f);
  TensorMap map = make(boxesOf(in, {8, 5, 3}, {4, 3, 2}));
  for (int x : {-2, 0, 6})
    for (int y : {-1, 4})
      for (int z : {-1, 1, 2, 7}) {
        Emulation run;
        run.buffers = {in.range(Access::read)};
        EXPECT_EQ(run([&] {
                    loadAndWait(4 * 3 * 2 * 4, [&](Barrier &barrier) {
                      acquireMap(map);
                      loadBox(tileOf(), map, barrier, x, y, z);
                    });
                    int i = thread();
                    if (i >= 24)
                      return;
                    int cx = x + i % 4, cy = y + i / 4 % 3, cz = z + i / 12;
                    bool inside = cx >= 0 && cx < 8 && cy >= 0 && cy < 5 &&
                                  cz >= 0 && cz < 3;
                    EXPECT_EQ(tileOf()[i],
                              inside ? in.data()[(cz * 5 + cy) * 8 + cx] : 0)
                        << i;
                  }),
                  "");
      }
}

TEST(Tma, RanksUpToFive) {
  Buffer in(4 * 3 * 2 * 2 * 2);
  std::iota(in.data(), in.data() + in.count, 0.0f);
  TensorMap one = make(boxesOf(in, {96}, {8}));
  TensorMap four = make(boxesOf(in, {4, 3, 2, 4}, {4, 1, 1, 1}));
  TensorMap five = make(boxesOf(in, {4, 3, 2, 2, 2}, {4, 1, 1, 1, 1}));
  Emulation run;
  run.buffers = {in.range(Access::read)};
  EXPECT_EQ(run([&] {
              loadAndWait(32 + 16 + 16, [&](Barrier &barrier) {
                for (const TensorMap *map : {&one, &four, &five})
                  acquireMap(*map);
                loadBox(tileOf(), one, barrier, 90);
                loadBox(tileOf() + 32, four, barrier, 0, 1, 1, 3);
                loadBox(tileOf() + 64, five, barrier, 0, 2, 1, 0, 1);
              });
              EXPECT_EQ(tileOf()[5], 95);
              EXPECT_EQ(tileOf()[6], 0);
              EXPECT_EQ(tileOf()[32], 4 * (1 + 3 * (1 + 2 * 3)));
              EXPECT_EQ(tileOf()[64], 4 * (2 + 3 * (1 + 2 * (0 + 2 * 1))));
            }),
            "");
}

// The box lies as `swizzle` of Async.cuh places its chunks.
template <Swizzle S> static void checkSwizzle() {
  constexpr int kWidth = kSpan<S> / 4, kRows = 32;
  Buffer in(kWidth * kRows), out(kWidth * kRows, -1);
  std::iota(in.data(), in.data() + in.count, 0.0f);
  auto shape = [](Buffer &buffer) {
    return make(boxesOf(buffer, {kWidth, kRows}, {kWidth, kRows}, S));
  };
  TensorMap from = shape(in), to = shape(out);
  Emulation run;
  run.buffers = {in.range(Access::read), out.range(Access::write)};
  EXPECT_EQ(run([&] {
              loadAndWait(kSpan<S> * kRows, [&](Barrier &barrier) {
                acquireMap(from);
                loadBox(tileOf(), from, barrier, 0, 0);
              });
              int row = thread();
              for (int chunk = 0; chunk < kWidth / 4; ++chunk)
                EXPECT_EQ(tileOf()[4 * swizzle<kSpan<S>>(row, chunk)],
                          in.data()[row * kWidth + chunk * 4]);
              if (thread() == 0) {
                acquireMap(to);
                storeBox(to, tileOf(), 0, 0);
                commitStores();
                waitStores<0>();
              }
            }),
            "");
  EXPECT_EQ(std::vector<float>(in.data(), in.data() + in.count),
            std::vector<float>(out.data(), out.data() + out.count));
}

TEST(Tma, ChunksLieWhereTheSwizzleSays) {
  checkSwizzle<Swizzle::b32>();
  checkSwizzle<Swizzle::b64>();
  checkSwizzle<Swizzle::b128>();
}

TEST(Tma, StoresAreClippedAndReductionsAdd) {
  for (bool adds : {false, true}) {
    Buffer out(12 * 6, 100);
    TensorMap map = make(boxesOf(out, {12, 6}, {8, 4}));
    Emulation run;
    run.buffers = {out.range(Access::readWrite)};
    EXPECT_EQ(run([&] {
                checkWrite(tileOf() + thread(), 1);
                tileOf()[thread()] = static_cast<float>(thread());
                fenceAsync();
                device::sync();
                if (thread() != 0)
                  return;
                acquireMap(map);
                if (adds)
                  addBox(map, tileOf(), 8, 4);
                else
                  storeBox(map, tileOf(), 8, 4);
                commitStores();
                waitStoresRead<0>();
              }),
              "");
    for (int y = 0; y < 6; ++y)
      for (int x = 0; x < 12; ++x) {
        float sent = static_cast<float>((y - 4) * 8 + x - 8);
        float expected = y < 4 || x < 8 ? 100 : adds ? 100 + sent : sent;
        EXPECT_EQ(out.data()[y * 12 + x], expected) << x << " " << y;
      }
  }
}

TEST(Tma, BytesComeGoAndAdd) {
  Buffer in(64, 3), out(64, 1), sums(64, 1);
  Emulation run;
  run.buffers = {in.range(Access::read), out.range(Access::write),
                 sums.range(Access::readWrite)};
  EXPECT_EQ(run([&] {
              loadAndWait(256, [&](Barrier &barrier) {
                loadBytes(tileOf(), in.data(), 256, barrier);
              });
              if (thread() != 0)
                return;
              storeBytes(out.data(), tileOf(), 128);
              commitStores();
              addBytes(sums.data(), tileOf(), 256);
              commitStores();
              waitStores<1>();
              EXPECT_EQ(out.data()[31], 3);
              EXPECT_EQ(sums.data()[0], 1); // not before its wait
              waitStores<0>();
              EXPECT_EQ(sums.data()[0], 4);
            }),
            "");
  EXPECT_EQ(out.data()[32], 1);
  EXPECT_EQ(sums.data()[63], 4);
}

TEST(Tma, StmatrixIsTheReverseOfLdmatrix) {
  Emulation run;
  EXPECT_EQ(run([&] {
              const uint32_t l = static_cast<uint32_t>(lane());
              const uint32_t mine[4] = {l, l + 100, l << 16, ~l};
              unsigned char *row = sharedMemory() + 16 * lane();
              for (int way = 0; way < 2; ++way) {
                uint32_t back[4];
                if (way == 0)
                  storeMatrices(row, mine);
                else
                  storeMatrices<true>(row, mine);
                device::sync();
                if (way == 0)
                  loadMatrices(back, row);
                else
                  loadMatrices<true>(back, row);
                for (int i = 0; i < 4; ++i)
                  EXPECT_EQ(back[i], mine[i]);
                device::sync();
              }
            }),
            "");
}

TEST(Tma, AccessesAreCheckedWhereTheyAreIssued) {
  Buffer in(64);
  TensorMap beyond = make(boxesOf(in, {16, 8}, {8, 8})), broken = {};
  Emulation run;
  run.buffers = {in.range(Access::read)};
  auto message = [&](auto issue) {
    return run([&] { loadAndWait(256, issue); });
  };
  auto expectPart = [](const std::string &message, const char *part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expectPart(message([&](Barrier &barrier) {
               acquireMap(beyond);
               loadBox(tileOf(), beyond, barrier, 0, 0);
             }),
             "thread 0: read of 32 bytes at offset 256 of buffer 0");
  expectPart(message([&](Barrier &barrier) {
               acquireMap(broken);
               loadBox(tileOf(), broken, barrier, 0, 0);
             }),
             "these 128 bytes are not a tensor map");
  expectPart(message([&](Barrier &barrier) {
               acquireMap(beyond);
               loadBox(tileOf(), beyond, barrier, 0, 0, 0);
             }),
             "a box of 3 dimensions by a tensor map of 2");
  expectPart(message([&](Barrier &barrier) {
               acquireMap(beyond);
               loadBox(tileOf() + 4, beyond, barrier, 0, -8);
             }),
             "not aligned to 128");
  expectPart(message([&](Barrier &barrier) {
               loadBytes(tileOf(), in.data(), 24, barrier);
             }),
             "multiples of 16 are possible");
  expectPart(message([&](Barrier &barrier) {
               loadBytes(tileOf(), in.data(), 128, barrier);
             }),
             "0 arrivals and 128 bytes are missing");
}

TEST(TensorMap, RefusesWhatTheDriverRefuses) {
  Buffer in(1024);
  auto message = [&](auto change) {
    TensorBoxes boxes = boxesOf(in, {32, 8, 4}, {32, 8, 1}, Swizzle::b128);
    change(boxes);
    TensorMap map;
    return emulated::makeTensorMap(boxes, map).message();
  };
  EXPECT_EQ(message([](TensorBoxes &) {}), "");
  EXPECT_EQ(message([](TensorBoxes &b) { b.rank = 6; }),
            "tensor map: rank 6; 1 to 5 are possible");
  EXPECT_NE(message([](TensorBoxes &b) {
              b.base += 8;
            }).find("is not a multiple of 16"),
            std::string::npos);
  EXPECT_EQ(message([](TensorBoxes &b) { b.strides[1] = 1032; }),
            "tensor map: dimension 2 has a stride of 1032 bytes; positive "
            "multiples of 16 below 2^40 are possible");
  EXPECT_EQ(message([](TensorBoxes &b) { b.box[1] = 257; }),
            "tensor map: a box has 257 elements in dimension 1; 1 to 256 are "
            "possible");
  EXPECT_EQ(message([](TensorBoxes &b) { b.sizes[2] = 0; }),
            "tensor map: dimension 2 has 0 elements; 1 to 2^32 are possible");
  EXPECT_EQ(message([](TensorBoxes &b) { b.box[0] = 64; }),
            "tensor map: a row of a box has 256 bytes; with this swizzle it "
            "must have 128");
  EXPECT_EQ(message([](TensorBoxes &b) {
              b.box[0] = 3;
              b.swizzle = Swizzle::none;
            }),
            "tensor map: a row of a box has 12 bytes, which is no multiple of "
            "16");
}
