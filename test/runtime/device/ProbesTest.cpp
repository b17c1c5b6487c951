// What an emulated GPU must not let by: each probe is a kernel that a GPU
// refuses, races on or leaves undefined, next to the same kernel done right.
// runtime/hal/emulated/README.md lists them by these numbers; those of wgmma
// are in WgmmaProbesTest.cpp.
#include "test/runtime/device/Races.h"

using namespace tessera;
using namespace tessera::device;

TEST(Probe, P1CopyIntoAStageThatIsRead) {
  Memory<float> in;
  Planted planted;
  planted.buffers = {in.range(Access::read)};
  planted.kernel = [&](bool isWrong) {
    constexpr int kStages = 2, kSteps = 6, kStage = 256;
    auto load = [&](int step) {
      if (step < kSteps)
        copyAsync(sharedAt(step % kStages * kStage + 4 * thread()),
                  in.at + step * kStage + 4 * thread());
      commitCopies();
    };
    load(0);
    for (int step = 0; step < kSteps; ++step) {
      if (isWrong) // others may still read what the last step had
        load(step + 1);
      waitCopies<0>();
      device::sync();
      if (!isWrong)
        load(step + 1);
      get(sharedAt(step % kStages * kStage + 4 * (thread() ^ 32)));
    }
    waitCopies<0>();
  };
  planted.check("nothing orders the two");
}

TEST(Probe, P4MoreRegistersThanTheBlockWasLaunchedWith) {
  Planted planted;
  planted.options.threads = 384;
  planted.kernel = [&](bool isWrong) {
    machine->enter({384, 1}); // 168 for each, 1024 of the chip's are unused
    if (thread() >= 256)
      isWrong ? releaseRegisters<32>() : releaseRegisters<24>();
    else
      acquireRegisters<240>();
  };
  planted.check("registers, of which");
}

TEST(Probe, P5BarrierInTwoBranchesOfOneWarp) {
  Planted planted;
  planted.kernel = [&](bool isWrong) {
    if (isWrong && thread() % 2)
      device::sync(1, 64);
    else
      device::sync(1, 64);
  };
  planted.check("lanes of one warp come to different barriers");
}

TEST(Probe, P6RaceThroughGlobalMemoryWithinABlock) {
  Memory<float> memory;
  Planted planted;
  planted.buffers = {memory.range()};
  planted.kernel = [&](bool isWrong) {
    put(memory.at + thread(), 1.0f);
    if (!isWrong)
      device::sync();
    get(memory.at + (thread() ^ 32));
  };
  planted.check("nothing orders the two");
}

TEST(Probe, P7LostUpdateInSharedMemory) {
  Planted planted;
  planted.options.threads = 256;
  planted.kernel = [&](bool isWrong) {
    if (thread() < 8)
      put(sharedAt(thread()), 0.0f);
    device::sync();
    if (lane() == 0) {
      float *sum = sharedAt(isWrong ? 0 : warp());
      put(sum, get(sum) + 1);
    }
    device::sync();
    get(sharedAt(0));
  };
  planted.check("nothing orders the two");
}

TEST(Probe, P8BlockReadsWhatAnotherWrites) {
  Memory<float> memory;
  Planted planted;
  planted.options.grid = {64, 1, 1};
  planted.buffers = {memory.range()};
  planted.kernel = [&](bool isWrong) {
    if (thread() != 0)
      return;
    float *mine = memory.at + blockNumber();
    get(isWrong ? memory.at + (blockNumber() + 1) % 64 : mine);
    put(mine, 1.0f);
  };
  planted.check("another block of the launch");
}

TEST(Probe, P8BlocksWriteOnePlace) {
  Memory<float> memory;
  Planted planted;
  planted.options.grid = {8, 1, 1};
  planted.buffers = {memory.range()};
  planted.kernel = [&](bool isWrong) {
    if (thread() == 0)
      put(memory.at + (isWrong ? 0 : blockNumber()), 7.0f);
  };
  planted.check("another block of the launch has written");
}

TEST(Probe, P9StoresThenABulkCopyWithoutAProxyFence) {
  Memory<bf16> in;
  TensorMap map = mapOf(in);
  Planted planted;
  planted.options.threads = 128;
  planted.buffers = {in.range(Access::read)};
  planted.kernel = [&](bool isWrong) {
    Box box{sharedMemory()};
    fill(box, 5);
    if (!isWrong)
      fenceAsync();
    makeBarrier(1);
    if (thread() == 0) {
      acquireMap(map);
      arriveExpecting(barrierOf(), Box::kBytes);
      loadBox(box.base, map, barrierOf(), 0, 0);
    }
    await(barrierOf(), 0);
    get(box.at(thread() % 64, 7));
  };
  planted.check("has written without fence.proxy.async");
}

TEST(Probe, P10MapInMemoryThatNobodyAcquired) {
  Memory<bf16> in;
  TensorMap map = mapOf(in);
  Planted planted;
  planted.buffers = {in.range(Access::read)};
  planted.kernel = [&](bool isWrong) {
    makeBarrier(1);
    if (thread() == 0) {
      if (!isWrong)
        acquireMap(map);
      arriveExpecting(barrierOf(), Box::kBytes);
      loadBox(sharedMemory(), map, barrierOf(), 0, 0);
    }
    await(barrierOf(), 0);
  };
  planted.check("no acquireMap before it");
}

// One thread's acquireMap takes nothing from another's.
TEST(Probe, P10MapThatTwoThreadsAcquire) {
  Memory<bf16> in;
  TensorMap map = mapOf(in);
  Planted planted;
  planted.buffers = {in.range(Access::read)};
  planted.kernel = [&](bool isWrong) {
    auto pass = [](int accesses) { // so that others run meanwhile
      for (int i = 0; i < accesses; ++i)
        put(sharedAt(3000 + thread()), 1.0f);
    };
    makeBarrier(1);
    if (thread() == 32) {
      pass(100);
      acquireMap(map);
    }
    if (thread() == 0) {
      if (!isWrong)
        acquireMap(map);
      pass(1000);
      arriveExpecting(barrierOf(), Box::kBytes);
      loadBox(sharedMemory(), map, barrierOf(), 0, 0);
    }
    await(barrierOf(), 0);
  };
  planted.check("no acquireMap before it");
}

// As __grid_constant__ it needs no fence.
TEST(Probe, P10MapAmongTheParameters) {
  Memory<bf16> in;
  struct Arguments {
    TensorMap map;
  } arguments{mapOf(in)};
  emulated::LaunchOptions options{"parameter", {}, 32, 16384, 1};
  options.argumentBytes = sizeof arguments;
  const emulated::BufferRange buffers[] = {in.range(Access::read)};
  emulated::BlockMachine blocks;
  Status status = blocks.launch(
      options,
      [](Machine &machine, const void *arguments) {
        device::machine = &machine;
        makeBarrier(1);
        if (thread() == 0) {
          arriveExpecting(barrierOf(), Box::kBytes);
          loadBox(sharedMemory(),
                  static_cast<const Arguments *>(arguments)->map, barrierOf(),
                  0, 0);
        }
        await(barrierOf(), 0);
      },
      &arguments, buffers);
  EXPECT_EQ(status.message(), "");
}

TEST(Probe, P11LimitsOfTheChip) {
  auto message = [](const char *architecture, std::size_t bytes,
                    unsigned threads, unsigned registers) {
    Planted planted;
    planted.options.chip = *emulated::chipOf(architecture);
    planted.options.sharedBytes = bytes;
    planted.options.threads = threads;
    planted.options.registers = registers;
    planted.kernel = [](bool) {};
    return planted.run(1, false);
  };
  EXPECT_EQ(message("sm_90a", 220 << 10, 128, 168), "");
  EXPECT_NE(message("sm_80", 220 << 10, 128, 168)
                .find("bytes of shared memory are more than the 166912"),
            std::string::npos);
  EXPECT_NE(message("sm_89", 100 << 10, 128, 168), "");
  EXPECT_EQ(message("sm_80", 0, 512, 128), "");
  EXPECT_NE(message("sm_80", 0, 512, 129).find("of 129 registers need more"),
            std::string::npos);
  EXPECT_FALSE(emulated::chipOf("sm_12345").ok());
}

TEST(Probe, P11InstructionsOfAnotherChip) {
  Memory<float> in;
  for (const char *architecture : {"sm_80", "sm_90a"}) {
    Planted planted;
    planted.options.chip = *emulated::chipOf(architecture);
    planted.buffers = {in.range(Access::read)};
    planted.kernel = [&](bool) {
      makeBarrier(1);
      if (thread() == 0) {
        arriveExpecting(barrierOf(), 128);
        loadBytes(sharedMemory(), in.at, 128, barrierOf());
      }
      await(barrierOf(), 0);
    };
    EXPECT_EQ(planted.run(1, false).empty(),
              std::string(architecture) == "sm_90a");
  }
}

TEST(Probe, P12PollingAFlagWithoutFences) {
  Planted planted;
  planted.kernel = [&](bool isWrong) {
    if (thread() == 0)
      put(sharedAt(0), 0.0f);
    makeBarrier(1);
    if (thread() == 32) {
      put(sharedAt(1), 9.0f);
      if (isWrong)
        put(sharedAt(0), 1.0f);
      else
        arrive(barrierOf());
    }
    if (thread() == 0) {
      if (isWrong)
        while (get(sharedAt(0)) != 1)
          continue;
      else
        await(barrierOf(), 0);
      EXPECT_EQ(get(sharedAt(1)), 9);
    }
  };
  planted.check("nothing orders the two");
}

TEST(Probe, P13DataOverAnMbarrier) {
  Planted planted;
  planted.kernel = [&](bool isWrong) {
    makeBarrier(64);
    arrive(barrierOf());
    await(barrierOf(), 0);
    device::sync();
    if (thread() == 0)
      put(reinterpret_cast<float *>(&barrierOf()) - (isWrong ? 0 : 1), 1.0f);
    device::sync();
    arrive(barrierOf());
    await(barrierOf(), 1);
  };
  planted.check("which is an mbarrier");
}

TEST(Probe, P13MbarrierMadeTwice) {
  Planted planted;
  planted.kernel = [&](bool isWrong) {
    makeBarrier(64);
    arrive(barrierOf());
    await(barrierOf(), 0);
    device::sync();
    if (isWrong)
      makeBarrier(64);
  };
  planted.check("is initialized twice");
}

TEST(Probe, P14StageReleasedBeforeItIsRead) {
  Memory<float> in;
  Planted planted;
  planted.buffers = {in.range(Access::read)};
  planted.kernel = [&](bool isWrong) {
    makeBarrier(1, 0);  // full
    makeBarrier(32, 1); // empty
    for (int round = 0; round < 3; ++round) {
      if (thread() == 0) {
        await(barrierOf(1), round % 2 ^ 1);
        arriveExpecting(barrierOf(0), 128);
        loadBytes(sharedMemory(), in.at, 128, barrierOf(0));
      }
      if (thread() < 32)
        continue;
      await(barrierOf(0), round % 2);
      if (isWrong)
        arrive(barrierOf(1));
      get(sharedAt(lane()));
      if (!isWrong)
        arrive(barrierOf(1));
    }
  };
  planted.check("memory at offset");
}

TEST(Probe, P18UnalignedVector) {
  Planted planted;
  planted.kernel = [&](bool isWrong) {
    auto *at = reinterpret_cast<Packet<float, 4> *>(
        sharedAt(4 * thread() + (isWrong ? 1 : 0)));
    checkWrite(at, 1);
  };
  planted.check("not aligned to 16");
}

// Stricter than a GPU, on which bar.sync 0 does not wait for threads that have
// ended.
TEST(Probe, P19BarrierAfterAWarpHasLeft) {
  Planted planted;
  planted.kernel = [&](bool isWrong) {
    if (isWrong && warp() == 0)
      return;
    device::sync();
  };
  planted.check("deadlock of 32 threads");
}

TEST(Probe, P20StoresThenABulkCopyOfTheSameGlobalMemory) {
  Memory<float> memory;
  Planted planted;
  planted.buffers = {memory.range()};
  planted.kernel = [&](bool isWrong) {
    put(sharedAt(thread()), 3.0f);
    fenceAsync();
    makeBarrier(1);
    if (isWrong)
      put(memory.at + thread(), 3.0f);
    else if (thread() == 0) { // by the proxy that reads it
      storeBytes(memory.at, sharedMemory(), 256);
      commitStores();
      waitStores<0>();
    }
    device::sync();
    if (thread() == 0) {
      arriveExpecting(barrierOf(), 256);
      loadBytes(sharedMemory(), memory.at, 256, barrierOf());
    }
    await(barrierOf(), 0);
    EXPECT_EQ(get(sharedAt(thread())), 3);
  };
  planted.check(
      "global memory at offset 0, which thread 0 has written without");
}

TEST(Probe, P21RegistersThatNobodyWrote) {
  std::vector<float> sums(64);
  Planted planted;
  planted.kernel = [&](bool isWrong) {
    Tile<float, Fragments<32, 32, 2, 1>> tile;
    if (!isWrong)
      tile = splat<Fragments<32, 32, 2, 1>>(0.0f);
    float sum = 0;
    for (float value : tile.at)
      sum += value;
    sums[thread()] = sum;
  };
  planted.isRight = [&] { return sums == std::vector<float>(64); };
  planted.check("wrong");
}

TEST(Probe, P22RegistersThatTheCompilerChose) {
  Planted planted;
  planted.options.threads = 384;
  planted.kernel = [&](bool isWrong) {
    isWrong ? machine->enter({384}) : machine->enter({384, 1});
    if (thread() >= 256)
      releaseRegisters<24>();
    else
      acquireRegisters<240>();
  };
  planted.check("setmaxnreg in a kernel whose launch bounds");
}

TEST(Probe, P23CopiesThatHalfOfTheThreadsWaitFor) {
  Memory<float> in;
  Planted planted;
  planted.buffers = {in.range(Access::read)};
  planted.kernel = [&](bool isWrong) {
    copyAsync(sharedAt(4 * thread()), in.at + 4 * thread());
    commitCopies();
    if (!isWrong || thread() < 32)
      waitCopies<0>();
    device::sync();
    get(sharedAt(4 * (thread() ^ 32)));
    device::sync();
    waitCopies<0>();
  };
  planted.check("is in flight");
}

// A group without copies may stay open.
TEST(Probe, P25ThreadThatEndsBeforeItsCopiesHaveLanded) {
  for (bool isCommitted : {false, true}) {
    Memory<float> in;
    Planted planted;
    planted.options.grid = {2, 1, 1};
    planted.buffers = {in.range(Access::read)};
    planted.kernel = [&](bool isWrong) {
      copyAsync(sharedAt(4 * thread()), in.at + 4 * thread());
      if (!isWrong || isCommitted)
        commitCopies();
      if (!isWrong) {
        waitCopies<0>();
        commitCopies();
      }
    };
    planted.check("ends with 1 cp.async that it has not waited for");
  }
}

TEST(Probe, P24BlocksAddWithoutAtomics) {
  Memory<float> memory;
  Planted planted;
  planted.options.grid = {16, 1, 1};
  planted.buffers = {memory.range()};
  planted.reset = [&] { memory = {}; };
  planted.kernel = [&](bool isWrong) {
    if (isWrong) {
      float *mine = memory.at + thread();
      put(mine, get(mine) + 1);
      return;
    }
    put(sharedAt(thread()), 1.0f);
    fenceAsync();
    device::sync();
    if (thread() == 0) {
      addBytes(memory.at, sharedAt(0), 256);
      commitStores();
      waitStoresRead<0>();
    }
  };
  planted.isRight = [&] { return memory.at[63] == 16; };
  planted.check("which another block of the launch has written");
}
