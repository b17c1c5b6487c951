// Races of every kind that the device library can express, each next to the
// kernel that has none: within shared memory, between proxies, between blocks.
#include "test/runtime/device/Races.h"

#include <cmath>

using namespace tessera;
using namespace tessera::device;

//===--- shared memory ----------------------------------------------------===//

TEST(Race, OverwritesWhatOthersStillRead) {
  Planted planted;
  planted.kernel = [](bool isWrong) {
    for (int round = 0; round < 2; ++round) {
      put(sharedAt(thread()), float(round));
      device::sync();
      get(sharedAt(thread() ^ 32));
      if (!isWrong)
        device::sync();
    }
  };
  planted.check("nothing orders the two");
}

TEST(Race, TwoWarpsWriteOnePlace) {
  Planted planted;
  planted.kernel = [](bool isWrong) {
    if (lane() == 0)
      put(sharedAt(isWrong ? 0 : warp()), 1.0f);
  };
  planted.check("nothing orders the two");
}

// Shuffles order no memory.
TEST(Race, LanesOfOneWarpAfterAShuffle) {
  Planted planted;
  planted.kernel = [](bool isWrong) {
    put(sharedAt(thread()), 1.0f);
    shuffleXor(1.0f, 1);
    if (!isWrong)
      device::sync();
    get(sharedAt(thread() ^ 1));
  };
  planted.check("nothing orders the two");
}

TEST(Race, NamedBarrierWithoutTheWriter) {
  Planted planted;
  planted.options.threads = 96;
  planted.kernel = [](bool isWrong) {
    put(sharedAt(thread()), 1.0f);
    if (!isWrong)
      device::sync(1, 96);
    else if (warp() < 2)
      device::sync(1, 64);
    if (warp() == 0)
      get(sharedAt(64 + lane()));
  };
  planted.check("nothing orders the two");
}

TEST(Race, ReadsAfterArrivingInsteadOfWaiting) {
  Planted planted;
  planted.kernel = [](bool isWrong) {
    put(sharedAt(thread()), 1.0f);
    if (warp() == 0 && isWrong)
      arrive(1, 64);
    else
      device::sync(1, 64);
    get(sharedAt(thread() ^ 32));
  };
  planted.check("nothing orders the two");
}

TEST(Race, NeighbouringBytesAreApart) {
  Planted planted;
  planted.kernel = [](bool isWrong) {
    int at = isWrong ? thread() / 2 : thread();
    put(sharedAt<int8_t>(at), int8_t(1));
  };
  planted.check("nothing orders the two");
}

TEST(Race, ArrivesAtAnMbarrierBeforeItWrites) {
  Planted planted;
  planted.kernel = [](bool isWrong) {
    makeBarrier(32);
    if (warp() == 0) {
      if (isWrong)
        arrive(barrierOf());
      put(sharedAt(lane()), 1.0f);
      if (!isWrong)
        arrive(barrierOf());
    } else {
      await(barrierOf(), 0);
      get(sharedAt(lane()));
    }
  };
  planted.check("nothing orders the two");
}

TEST(Race, WaitsForThePhaseBefore) {
  Planted planted;
  planted.kernel = [](bool isWrong) {
    makeBarrier(64);
    arrive(barrierOf());
    await(barrierOf(), 0);
    if (warp() == 0)
      put(sharedAt(lane()), 1.0f);
    arrive(barrierOf());
    if (!isWrong || warp() == 0)
      await(barrierOf(), 1);
    get(sharedAt(lane()));
  };
  planted.check("nothing orders the two");
}

TEST(Race, ScratchUsedAgainWithoutABarrier) {
  Planted planted;
  planted.kernel = [](bool isWrong) {
    for (int round = 0; round < 2; ++round) {
      if (!isWrong)
        device::sync();
      if (lane() == 0)
        put(sharedAt(warp()), 1.0f);
      device::sync();
      get(sharedAt(0));
      get(sharedAt(1));
    }
  };
  planted.check("nothing orders the two");
}

TEST(Race, MatricesLoadedBeforeTheBarrier) {
  Planted planted;
  planted.kernel = [](bool isWrong) {
    const uint32_t ones[4] = {1, 1, 1, 1};
    uint32_t back[4];
    storeMatrices(sharedMemory() + 16 * thread(), ones);
    if (!isWrong)
      device::sync();
    loadMatrices(back, sharedMemory() + 16 * (thread() ^ 32));
  };
  planted.check("nothing orders the two");
}

//===--- asynchronous copies ----------------------------------------------===//

TEST(Race, CopyThatOnlyItsThreadHasWaitedFor) {
  Memory<float> in;
  Planted planted;
  planted.buffers = {in.range(Access::read)};
  planted.kernel = [&](bool isWrong) {
    copyAsync(sharedAt(4 * thread()), in.at + 4 * thread());
    commitCopies();
    waitCopies<0>();
    if (!isWrong)
      device::sync();
    get(sharedAt(4 * (thread() ^ 32)));
  };
  planted.check("memory at offset");
}

TEST(Race, CopyIntoWhatItsOwnThreadReadsBeforeTheWait) {
  Memory<float> in;
  Planted planted;
  planted.buffers = {in.range(Access::read)};
  planted.kernel = [&](bool isWrong) {
    copyAsync(sharedAt(4 * thread()), in.at + 4 * thread());
    commitCopies();
    if (!isWrong)
      waitCopies<0>();
    get(sharedAt(4 * thread()));
    waitCopies<0>();
  };
  planted.check("is in flight");
}

TEST(Race, BulkCopyReadByThreadsThatMetBeforeTheWait) {
  Memory<float> in;
  Planted planted;
  planted.buffers = {in.range(Access::read)};
  planted.kernel = [&](bool isWrong) {
    makeBarrier(1);
    if (thread() == 0) {
      arriveExpecting(barrierOf(), 256);
      loadBytes(sharedMemory(), in.at, 256, barrierOf());
      if (!isWrong)
        await(barrierOf(), 0);
    }
    device::sync();
    get(sharedAt(thread()));
    if (thread() == 0)
      await(barrierOf(), 0);
  };
  planted.check("memory at offset");
}

TEST(Race, OverwritesWhatABulkStoreReads) {
  Memory<float> out;
  Planted planted;
  planted.buffers = {out.range()};
  planted.kernel = [&](bool isWrong) {
    put(sharedAt(thread()), 1.0f);
    fenceAsync();
    device::sync();
    if (thread() == 0) {
      storeBytes(out.at, sharedMemory(), 256);
      commitStores();
      if (!isWrong)
        waitStoresRead<0>();
    }
    device::sync();
    put(sharedAt(thread()), 2.0f);
    if (thread() == 0)
      waitStoresRead<0>();
  };
  planted.check("a bulk store of thread 0 has read");
}

TEST(Race, ReadsGlobalMemoryBeforeABulkStoreIsThere) {
  Memory<float> out;
  Planted planted;
  planted.buffers = {out.range()};
  planted.kernel = [&](bool isWrong) {
    put(sharedAt(thread()), 1.0f);
    fenceAsync();
    device::sync();
    if (thread() == 0) {
      storeBytes(out.at, sharedMemory(), 256);
      commitStores();
      if (isWrong)
        waitStoresRead<0>();
      else
        waitStores<0>();
    }
    device::sync();
    get(out.at + thread());
  };
  planted.check("a bulk store of thread 0 has written");
}

TEST(Race, OverwritesOperandsOfAProductInFlight) {
  Planted planted;
  planted.options.threads = 256;
  planted.kernel = [](bool isWrong) {
    Box box{sharedMemory()};
    if (thread() < 128)
      fill(box, 1);
    fenceAsync();
    device::sync();
    float d[32] = {};
    if (thread() < 128) {
      wgmmaFence(d);
      wgmma<Inputs::bf16>(d, box.kMajor(0), box.kMajor(1));
      wgmmaCommit();
      if (!isWrong)
        wgmmaWait<0>(d);
    }
    device::sync();
    if (thread() >= 128)
      fill(box, 2);
    if (thread() < 128 && isWrong)
      wgmmaWait<0>(d);
  };
  planted.check("a wgmma of warp");
}

//===--- proxies ----------------------------------------------------------===//

TEST(Race, FenceAfterTheBarrierInsteadOfBefore) {
  Memory<float> out;
  Planted planted;
  planted.buffers = {out.range()};
  planted.kernel = [&](bool isWrong) {
    put(sharedAt(thread()), 1.0f);
    if (!isWrong)
      fenceAsync();
    device::sync();
    if (thread() == 0) {
      storeBytes(out.at, sharedMemory(), 256);
      commitStores();
      waitStoresRead<0>();
    } else {
      fenceAsync();
    }
  };
  planted.check("without fence.proxy.async");
}

TEST(Race, StmatrixThenABulkStoreWithoutAFence) {
  Memory<float> out;
  Planted planted;
  planted.options.threads = 32;
  planted.buffers = {out.range()};
  planted.kernel = [&](bool isWrong) {
    const uint32_t ones[4] = {1, 1, 1, 1};
    storeMatrices(sharedMemory() + 16 * lane(), ones);
    if (!isWrong)
      fenceAsync();
    device::sync();
    if (thread() == 0) {
      storeBytes(out.at, sharedMemory(), 512);
      commitStores();
      waitStoresRead<0>();
    }
  };
  planted.check("without fence.proxy.async");
}

TEST(Race, CpAsyncThenWgmmaWithoutAFence) {
  Memory<bf16> in;
  Planted planted;
  planted.options.threads = 128;
  planted.buffers = {in.range(Access::read)};
  planted.kernel = [&](bool isWrong) {
    Box box{sharedMemory()};
    for (int i = thread(); i < 64 * 8; i += 128)
      copyAsync(box.at(i / 8, i % 8 * 8), in.at + 8 * i);
    commitCopies();
    waitCopies<0>();
    if (!isWrong)
      fenceAsync();
    device::sync();
    float d[32] = {};
    wgmmaFence(d);
    wgmma<Inputs::bf16>(d, box.kMajor(0), box.kMajor(1));
    wgmmaCommit();
    wgmmaWait<0>(d);
  };
  planted.check("without fence.proxy.async");
}

//===--- blocks -----------------------------------------------------------===//

TEST(Race, RowsOfBlocksOverlapByOne) {
  Memory<float> out;
  Planted planted;
  planted.options.grid = {4, 1, 1};
  planted.buffers = {out.range()};
  planted.kernel = [&](bool isWrong) {
    for (int i = thread(); i < 64 + (isWrong ? 1 : 0); i += 64)
      put(out.at + 64 * blockNumber() + i, 1.0f);
  };
  planted.check("another block of the launch has written");
}

TEST(Race, CpAsyncOfWhatAnotherBlockWrites) {
  Memory<float> memory;
  Planted planted;
  planted.options.grid = {2, 1, 1};
  planted.buffers = {memory.range()};
  planted.kernel = [&](bool isWrong) {
    put(memory.at + 64 * blockNumber() + thread(), 1.0f);
    device::sync();
    int64_t from = isWrong ? blockNumber() ^ 1 : blockNumber();
    if (thread() < 16)
      copyAsync(sharedAt(4 * thread()), memory.at + 64 * from + 4 * thread());
    commitCopies();
    waitCopies<0>();
  };
  planted.check("another block of the launch");
}

TEST(Race, BulkCopyOfWhatAnotherBlockWrites) {
  Memory<float> memory;
  Planted planted;
  planted.options.grid = {2, 1, 1};
  planted.buffers = {memory.range()};
  planted.kernel = [&](bool isWrong) {
    makeBarrier(1);
    if (thread() == 0) {
      arriveExpecting(barrierOf(), 256);
      loadBytes(sharedMemory(), memory.at + 64 * (blockNumber() ^ 1), 256,
                barrierOf());
    }
    await(barrierOf(), 0);
    if (isWrong)
      put(memory.at + 64 * blockNumber() + thread(), 1.0f);
  };
  planted.check("another block of the launch");
}

TEST(Race, SumsThatAnotherBlockAddsTo) {
  Memory<float> sums;
  Planted planted;
  planted.options.grid = {2, 1, 1};
  planted.buffers = {sums.range()};
  planted.kernel = [&](bool isWrong) {
    put(sharedAt(thread()), 1.0f);
    fenceAsync();
    device::sync();
    if (thread() != 0)
      return;
    addBytes(sums.at, sharedAt(0), 256);
    commitStores();
    waitStores<0>();
    if (isWrong)
      get(sums.at);
  };
  planted.check("another block of the launch has");
}

// Whether its reader runs before or after the other block.
TEST(Race, SumsThatOneOfTwoBlocksReads) {
  Memory<float> sums;
  Planted planted;
  planted.options.grid = {2, 1, 1};
  planted.buffers = {sums.range()};
  planted.kernel = [&](bool isWrong) {
    put(sharedAt(thread()), 1.0f);
    fenceAsync();
    device::sync();
    if (thread() != 0)
      return;
    addBytes(sums.at, sharedAt(0), 256);
    commitStores();
    waitStores<0>();
    if (isWrong && blockNumber() == 0)
      get(sums.at);
  };
  planted.check("another block of the launch has");
}

TEST(Race, SumsReadBeforeAllOfABlocksAddersHaveWaited) {
  Memory<float> sums;
  Planted planted;
  planted.options.threads = 128;
  planted.buffers = {sums.range()};
  planted.kernel = [&](bool isWrong) {
    put(sharedAt(thread()), 1.0f);
    fenceAsync();
    device::sync();
    if (lane() == 0) {
      addBytes(sums.at, sharedAt(0), 256);
      commitStores();
      if (isWrong && warp() == 2)
        waitStoresRead<0>();
      else
        waitStores<0>();
    }
    device::sync();
    get(sums.at);
  };
  planted.check("a bulk store of thread 64 has written; nothing orders");
}

TEST(Race, OneBufferUnderTwoNames) {
  Memory<float> memory;
  Planted planted;
  planted.options.grid = {2, 1, 1};
  planted.buffers = {memory.range(Access::read), memory.range(Access::write)};
  planted.kernel = [&](bool isWrong) {
    float *mine = memory.at + 64 * blockNumber() + thread();
    get(isWrong ? memory.at + thread() : mine);
    put(mine, 1.0f);
  };
  planted.check("another block of the launch");
}

//===--- what is right ----------------------------------------------------===//

// Blocks may read what none of them writes, in any order, and a block its own
// memory. No seed reports them.
TEST(Race, NoneWhereBlocksOnlyRead) {
  Memory<float> memory;
  Planted planted;
  planted.options.grid = {8, 1, 1};
  planted.buffers = {memory.range()};
  planted.kernel = [&](bool) {
    get(memory.at + thread());
    put(memory.at + 64 + 64 * blockNumber() + thread(), 1.0f);
    device::sync();
    get(memory.at + 64 + 64 * blockNumber() + (thread() ^ 32));
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    EXPECT_EQ(planted.run(seed, false), "") << seed;
}
