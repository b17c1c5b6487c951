// The emulated GPU held to its rules: what is right on a GPU works under every
// seed, and what is wrong is reported, with the thread that did it.
#include "runtime/hal/emulated/BlockMachine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

using namespace tessera;
using namespace tessera::emulated;
using device::Access;
using device::Machine;

namespace {

using Kernel = std::function<void(Machine &)>;

void enter(Machine &machine, const void *arguments) {
  (*static_cast<const Kernel *>(arguments))(machine);
}

struct Launch {
  LaunchOptions options{"test", {}, 64, 1024, 1};
  std::vector<BufferRange> buffers;
  LaunchCounts counts;

  std::string run(const Kernel &kernel) {
    BlockMachine machine;
    Status status = machine.launch(options, enter, &kernel, buffers);
    counts = machine.counts();
    return status.message();
  }
  void add(std::vector<float> &values, Access access) {
    buffers.push_back({reinterpret_cast<const std::byte *>(values.data()),
                       values.size() * sizeof(float), access});
  }
};

unsigned thread(Machine &m) { return m.threadIndex.x; }
float *floats(Machine &m) { return reinterpret_cast<float *>(m.shared); }
void sync(Machine &m) { m.barrier(0, m.blockSize.x); }

/// The neighbour's element by way of shared memory, with or without the
/// barrier that this needs.
Kernel neighbour(std::vector<float> &out, bool synchronizes) {
  return [&out, synchronizes](Machine &m) {
    m.writeShared(floats(m) + thread(m), 4, 4);
    floats(m)[thread(m)] = float(thread(m));
    if (synchronizes)
      sync(m);
    unsigned other = (thread(m) + 1) % m.blockSize.x;
    m.checkShared(floats(m) + other, 4, 4);
    out[m.blockIndex.x * m.blockSize.x + thread(m)] = floats(m)[other];
  };
}

} // namespace

TEST(BlockMachine, RunsEveryThreadOfEveryBlockUnderEverySeed) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    Launch launch;
    launch.options.grid = {3, 2, 2};
    launch.options.seed = seed;
    std::vector<int> runs(3 * 2 * 2 * 64);
    EXPECT_EQ(launch.run([&](Machine &m) {
      unsigned block =
          m.blockIndex.x + 3 * (m.blockIndex.y + 2 * m.blockIndex.z);
      ++runs[block * 64 + thread(m)];
    }),
              "");
    EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
    EXPECT_EQ(launch.counts.blocks, 12u);
  }
}

TEST(BlockMachine, BarrierMakesSharedMemoryVisible) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    Launch launch;
    launch.options.grid = {2, 1, 1};
    launch.options.seed = seed;
    std::vector<float> out(128, -1);
    EXPECT_EQ(launch.run(neighbour(out, true)), "");
    for (unsigned i = 0; i < 128; ++i)
      EXPECT_EQ(out[i], float((i % 64 + 1) % 64));
  }
}

TEST(BlockMachine, MissingBarrierIsReportedUnderEverySeed) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    Launch launch;
    launch.options.seed = seed;
    std::vector<float> out(64);
    std::string message = launch.run(neighbour(out, false));
    EXPECT_NE(message.find("nothing orders the two"), std::string::npos)
        << message;
  }
}

TEST(BlockMachine, UnwrittenSharedMemoryIsNaN) {
  Launch launch;
  EXPECT_EQ(launch.run([](Machine &m) {
    m.checkShared(floats(m), 4, 4);
    EXPECT_TRUE(std::isnan(floats(m)[0]));
  }),
            "");
}

TEST(BlockMachine, BarrierThatNotAllReachIsADeadlockWithNames) {
  Launch launch;
  EXPECT_EQ(launch
                .run([](Machine &m) {
                  if (thread(m) < 32)
                    sync(m);
                })
                .find("kernel 'test', block (0, 0, 0): deadlock of 32 threads: "
                      "thread 0 "
                      "waits for barrier 0 ("),
            0u);
}

TEST(BlockMachine, BarriersOfDifferentSizesAtOneIdAreRefused) {
  Launch launch;
  EXPECT_NE(launch
                .run([](Machine &m) {
                  m.barrier(1, thread(m) < 32 ? 32 : 64);
                  m.barrier(1, 64);
                })
                .find("barrier 1 is awaited by"),
            std::string::npos);
}

TEST(BlockMachine, ProducerArrivesAndConsumerWaits) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    Launch launch;
    launch.options.seed = seed;
    std::vector<float> out(32);
    EXPECT_EQ(launch.run([&](Machine &m) {
      if (thread(m) < 32) {
        floats(m)[thread(m)] = float(thread(m));
        m.arrive(1, 64);
        return;
      }
      m.barrier(1, 64);
      out[thread(m) - 32] = floats(m)[63 - thread(m)];
    }),
              "");
    for (unsigned i = 0; i < 32; ++i)
      EXPECT_EQ(out[i], float(31 - i));
  }
}

TEST(BlockMachine, ExchangeGivesEachLaneAllLanes) {
  Launch launch;
  std::vector<unsigned> sums(64);
  EXPECT_EQ(launch.run([&](Machine &m) {
    for (unsigned round = 0; round < 3; ++round) {
      unsigned mine = thread(m) + round, lanes[32];
      std::memcpy(lanes, m.exchange(~0u, &mine, 4, "shuffle"), sizeof lanes);
      for (unsigned value : lanes)
        sums[thread(m)] += value;
    }
  }),
            "");
  for (unsigned i = 0; i < 64; ++i)
    EXPECT_EQ(sums[i], 3 * (i / 32 * 32 * 32 + 31 * 16) + 32 * 3) << i;
}

TEST(BlockMachine, LanesInDifferentCollectivesAreReported) {
  Launch launch;
  std::string message = launch.run([](Machine &m) {
    unsigned mine = 0;
    m.exchange(~0u, &mine, 4, thread(m) % 2 ? "shuffle" : "mma");
  });
  EXPECT_NE(message.find("lanes of one warp meet in"), std::string::npos)
      << message;
}

// Whatever lay there is gone at once; what comes may be there at once.
TEST(BlockMachine, AsynchronousCopiesLandBetweenIssueAndWait) {
  std::vector<float> in(64);
  for (unsigned i = 0; i < 64; ++i)
    in[i] = float(i);
  unsigned early = 0;
  Launch launch;
  launch.add(in, Access::read);
  EXPECT_EQ(launch.run([&](Machine &m) {
    float *mine = floats(m) + 4 * (thread(m) % 16);
    if (thread(m) >= 16)
      return;
    m.copyAsync(mine, &in[4 * thread(m)], 16, 12);
    m.commitCopies();
    m.commitCopies(); // an empty group
    m.waitCopies(2);
    early += !std::isnan(mine[0]);
    m.waitCopies(1);
    EXPECT_EQ(mine[2], 4.0f * float(thread(m)) + 2);
    EXPECT_EQ(mine[3], 0.0f); // beyond what was valid
  }),
            "");
  EXPECT_GT(early, 0u);
  EXPECT_LT(early, 16u);
}

TEST(BlockMachine, MemoryBarrierWaitsForArrivalsAndBytes) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    Launch launch;
    launch.options.seed = seed;
    int after = 0;
    EXPECT_EQ(launch.run([&](Machine &m) {
      void *barrier = m.shared + 512;
      if (thread(m) == 0)
        m.initBarrier(barrier, 2);
      sync(m);
      for (unsigned phase = 0; phase < 4; ++phase) {
        if (thread(m) == 1) {
          m.arriveBarrier(barrier, 16);
          m.completeBytes(barrier, 16);
        }
        if (thread(m) == 2)
          m.arriveBarrier(barrier, 0);
        m.waitBarrier(barrier, phase % 2);
        sync(m); // nobody may be two phases behind
      }
      ++after;
    }),
              "");
    EXPECT_EQ(after, 64);
  }
}

TEST(BlockMachine, MemoryBarrierWithoutItsBytesIsADeadlock) {
  Launch launch;
  std::string message = launch.run([](Machine &m) {
    if (thread(m) == 0) {
      m.initBarrier(m.shared, 1);
      m.arriveBarrier(m.shared, 128);
      m.waitBarrier(m.shared, 0);
    }
  });
  EXPECT_NE(message.find("0 arrivals and 128 bytes are missing"),
            std::string::npos)
      << message;
}

TEST(BlockMachine, AccessesOutsideOfBuffersAreReportedWithOffset) {
  std::vector<float> in(16);
  Launch launch;
  launch.add(in, Access::read);
  EXPECT_EQ(launch.run([&](Machine &m) {
    if (thread(m) == 5)
      m.checkGlobal(in.data() + 14, 16, 4, Access::read);
  }),
            "kernel 'test', block (0, 0, 0), thread 5: read of 16 bytes at "
            "offset 56 of buffer 0, which has 64 bytes and may not be accessed "
            "so");
  EXPECT_NE(launch
                .run([&](Machine &m) {
                  m.checkGlobal(in.data(), 4, 4, Access::write);
                })
                .find("write of 4 bytes"),
            std::string::npos);
  EXPECT_NE(launch
                .run([&](Machine &m) {
                  m.checkGlobal(in.data() + 1, 8, 8, Access::read);
                })
                .find("is not aligned to 8"),
            std::string::npos);
}

TEST(BlockMachine, SharedMemoryHasBounds) {
  Launch launch;
  EXPECT_NE(
      launch.run([](Machine &m) { m.checkShared(m.shared + 1020, 8, 4); })
          .find(
              "8 bytes at offset 1020 of shared memory, which has 1024 bytes"),
      std::string::npos);
}

TEST(BlockMachine, RefusesShapesThatNoGpuHas) {
  Launch launch;
  launch.options.threads = 48;
  EXPECT_NE(launch.run([](Machine &) {}).find("multiple of 32, not 48"),
            std::string::npos);
  launch.options.threads = 64;
  launch.options.sharedBytes = 1 << 20;
  EXPECT_NE(
      launch.run([](Machine &) {}).find("bytes of shared memory are more"),
      std::string::npos);
}
