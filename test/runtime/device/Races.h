// Kernels in two versions, one of them with a planted defect that hardware
// refuses, races on or leaves undefined.
#pragma once
#include "runtime/device/Device.cuh"
#include "runtime/device/Hopper.cuh"
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/emulated/TensorMap.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::device {

/// Device memory.
template <typename T> struct alignas(128) Memory {
  static constexpr int kCount = 16384 / sizeof(T);
  alignas(128) T at[kCount] = {};

  emulated::BufferRange range(Access access = Access::readWrite) const {
    return {reinterpret_cast<const std::byte *>(at), sizeof at, access};
  }
};

struct Planted {
  emulated::LaunchOptions options{"planted", {}, 64, 16384, 0};
  std::vector<emulated::BufferRange> buffers;
  std::function<void(bool isWrong)> kernel;
  /// Of the version that is right, and of one that gives a wrong result instead
  /// of an error.
  std::function<bool()> isRight = [] { return true; };
  std::function<void()> reset = [] {};

  /// Empty if nothing was noticed.
  std::string run(std::uint64_t seed, bool isWrong) const {
    struct Call {
      const Planted &planted;
      bool isWrong;
    } call{*this, isWrong};
    emulated::LaunchOptions launch = options;
    launch.seed = seed;
    reset();
    emulated::BlockMachine blocks;
    Status status = blocks.launch(
        launch,
        [](Machine &machine, const void *arguments) {
          device::machine = &machine;
          const auto &call = *static_cast<const Call *>(arguments);
          call.planted.kernel(call.isWrong);
        },
        &call, buffers);
    if (!status.ok())
      return status.message();
    return isRight() ? "" : "wrong";
  }

  /// The defect is noticed under every seed, by these words, and nothing is
  /// without it.
  void check(const char *words) const {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      EXPECT_EQ(run(seed, false), "") << "seed " << seed;
      std::string message = run(seed, true);
      EXPECT_NE(message.find(words), std::string::npos)
          << "seed " << seed << ": '" << message << "'";
    }
  }
};

//===--- what kernels here need -------------------------------------------===//

template <typename T = float> T *sharedAt(int i) {
  return reinterpret_cast<T *>(sharedMemory()) + i;
}
template <typename T> void put(T *to, T value) {
  checkWrite(to, 1);
  *to = value;
}
template <typename T> T get(const T *from) {
  checkRead(from, 1);
  return *from;
}
/// The last one of shared memory.
inline Barrier &barrierOf(int number = 0) {
  return reinterpret_cast<Barrier *>(sharedMemory() + 16384)[-1 - number];
}
inline void makeBarrier(int arrivals, int number = 0) {
  if (thread() == 0) {
    initBarrier(barrierOf(number), arrivals);
    fenceBarriers();
  }
  sync();
}

/// A box of 64 × 64, in 8 KiB.
inline TensorMap mapOf(const Memory<bf16> &memory) {
  TensorBoxes boxes;
  boxes.base = reinterpret_cast<std::uint64_t>(memory.at);
  boxes.sizes[0] = boxes.sizes[1] = boxes.box[0] = boxes.box[1] = 64;
  boxes.strides[0] = 128;
  boxes.swizzle = Swizzle::b128;
  TensorMap map;
  Status status = emulated::makeTensorMap(boxes, map);
  EXPECT_TRUE(status.ok()) << status.message();
  return map;
}

using Box = BoxTile<bf16, 64, 64>;

/// By the threads of a warpgroup; they are `of` all 128.
inline void fill(Box box, float value, int of = 128) {
  for (int i = thread() % of; i < 64 * 64; i += of)
    put(box.at(i / 64, i % 64), toBf16(value));
}

} // namespace tessera::device
