// What is particular to the CPU: choice and loading of code, equal bits for
// any number of threads, the profile, the search for NaN.
#include "runtime/artifact/Validate.h"
#include "runtime/hal/cpu/CodeObject.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/hal/host/FiniteCheck.h"
#include "runtime/hal/host/LoadedCode.h"
#include "test/runtime/hal/Conformance.h"

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <elf.h>

#include <nlohmann/json.hpp>

using namespace tessera;
using namespace tessera::test;

namespace {

hal::SessionOptions onCpu(unsigned threads) {
  hal::SessionOptions options;
  options.deviceOptions.threads = threads;
  return options;
}

/// iota → 1/(1+x) summed by blocks → total → y, over n elements.
ProgramT sumProgram(std::int64_t n) {
  const std::uint64_t bytes = floatBytes(n);
  const std::uint64_t partials = (bytes + 63) / 64 * 64;
  const auto blocks = static_cast<std::int64_t>(blocksOf(n));
  return program(
      "main", partials + (floatBytes(blocks) + 63) / 64 * 64, 64, {},
      {tensor("sum", ElementType::f32, {}, Role::metric, Space::io, 0)},
      {launch(kIota,
              {instance({arg(Space::arena, 0, bytes)}, blocksOf(n), {n})},
              "data"),
       launch(kPartialSums,
              {instance({arg(Space::arena, 0, bytes),
                         arg(Space::arena, partials, floatBytes(blocks))},
                        blocksOf(n), {n})},
              "h.0.reduce"),
       launch(kTotal,
              {instance({arg(Space::arena, partials, floatBytes(blocks)),
                         arg(Space::io, 0, 4)},
                        1, {blocks})},
              "loss")});
}

/// An artifact of several targets whose code is not looked at.
ArtifactT targets(std::vector<CodeObjectT> code) {
  ArtifactT artifact = emptyArtifact();
  cpu(artifact).code = owned<CodeObjectT>(std::move(code));
  return artifact;
}

std::string chosen(const ArtifactT &artifact, const CpuFeatures &cpu,
                   std::string_view forced = "") {
  const AlignedBytes bytes(pack(artifact));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "test.tsr");
  EXPECT_TRUE(reader.ok()) << reader.message();
  const auto code =
      hal::chooseCodeObject(*reader, *reader->device("cpu"), cpu, forced);
  return code.ok() ? (*code)->target()->str() : code.message();
}

} // namespace

TEST(CpuDevice, AnyThreadCountGivesTheSameBits) {
  std::vector<std::uint32_t> sums;
  for (const unsigned threads : {1, 2, 3, 7}) {
    Runner runner(oneProgram(sumProgram(1'000'003)), onCpu(threads));
    ASSERT_TRUE(runner.ok()) << runner.message();
    for (int repeat = 0; repeat < 3; ++repeat) {
      ASSERT_TRUE(runner->run("main").ok());
      sums.push_back(std::bit_cast<std::uint32_t>(
          *runner->readScalar<float>("main", "sum")));
    }
  }
  EXPECT_EQ(sums, std::vector<std::uint32_t>(sums.size(), sums[0]));
  // Harmonic number: ln n + γ.
  EXPECT_NEAR(std::bit_cast<float>(sums[0]),
              std::log(1'000'003.0) + 0.5772156649, 1e-4);
}

TEST(CpuDevice, TakesTheFirstCodeThatFits) {
  const ArtifactT artifact = targets({
      codeObject("cuda:sm_90a", {}, "x"),
      codeObject("cpu:amx", {"avx512f", "avx512_bf16", "amx_tile", "amx_bf16"},
                 "x"),
      codeObject("cpu:avx512bf16", {"avx512f", "avx512_bf16"}, "x"),
      codeObject("cpu:avx512", {"avx512f"}, "x"),
      codeObject("cpu:avx2", {"avx2", "fma"}, "x"),
  });
  const auto all = CpuFeatures::of(CpuFeatures::knownNames());
  EXPECT_EQ(chosen(artifact, all), "cpu:amx");
  // A kernel of the system that lets nobody use AMX's registers.
  EXPECT_EQ(chosen(artifact, all.without("amx_tile").without("amx_bf16")),
            "cpu:avx512bf16");
  EXPECT_EQ(chosen(artifact, CpuFeatures::of({"avx512f", "avx2", "fma"})),
            "cpu:avx512");
  EXPECT_EQ(chosen(artifact, CpuFeatures::of({"avx2", "fma"})), "cpu:avx2");
  EXPECT_EQ(chosen(artifact, all, "cpu:avx2"), "cpu:avx2");
  EXPECT_EQ(chosen(artifact, all, "avx512"), "cpu:avx512");
}

TEST(CpuDevice, WrongProcessorIsToldWhatItMisses) {
  const ArtifactT artifact =
      targets({codeObject("cpu:avx512", {"avx512f", "avx512bw"}, "x"),
               codeObject("cpu:avx2", {"avx2", "fma"}, "x")});
  const auto old = CpuFeatures::of({"avx2"});
  EXPECT_EQ(chosen(artifact, old),
            "test.tsr: no code for this processor (" + CpuFeatures::brand() +
                "), which lacks features: cpu:avx512 needs avx512f, avx512bw; "
                "cpu:avx2 needs fma; rebuild it for a target that fits: "
                "tessera compile models/specs/test -o test.tsr");
  EXPECT_NE(
      chosen(artifact, old, "avx512")
          .find("lacks features: cpu:avx512 needs avx512f, avx512bw; rebuild"),
      std::string::npos);
  EXPECT_EQ(chosen(artifact, old, "neon"),
            "test.tsr: no code for the target 'neon': the artifact has "
            "cpu:avx512, cpu:avx2");
  EXPECT_EQ(chosen(targets({codeObject("cuda:sm_80", {}, "x")}), old),
            "test.tsr: no code for a CPU: the artifact has cuda:sm_80");
}

TEST(CpuDevice, EnvironmentForcesTheTarget) {
  ArtifactT artifact = oneProgram(sumProgram(10));
  cpu(artifact).code.push_back(std::make_unique<CodeObjectT>(
      codeObject("cpu:other", {}, kernelObject())));
  EXPECT_EQ(Runner(artifact, onCpu(1))->target(), "cpu:baseline");
  ::setenv("TESSERA_CPU", "other", 1);
  EXPECT_EQ(Runner(artifact, onCpu(1))->target(), "cpu:other");
  hal::SessionOptions explicitly = onCpu(1);
  explicitly.deviceOptions.cpuTarget = "cpu:baseline";
  EXPECT_EQ(Runner(artifact, explicitly)->target(), "cpu:baseline");
  ::unsetenv("TESSERA_CPU");
}

TEST(CpuDevice, TwoArtifactsKeepTheirOwnCode) {
  // The loader must not take the second object for the first.
  const ArtifactT artifact = oneProgram(sumProgram(1000));
  Runner first(artifact, onCpu(1)), second(artifact, onCpu(1));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(first->run("main").ok() && second->run("main").ok());
  EXPECT_EQ(*first->readScalar<float>("main", "sum"),
            *second->readScalar<float>("main", "sum"));
  for (int i = 0; i < 100; ++i) {
    const std::span<const char> elf(kernelObject());
    auto a = hal::LoadedCode::load(std::as_bytes(elf), "a");
    auto b = hal::LoadedCode::load(std::as_bytes(elf), "b");
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_NE(*a->function<hal::KernelFunction>("iota"),
              *b->function<hal::KernelFunction>("iota"));
  }
}

TEST(CpuDevice, MissingKernelIsNamed) {
  ArtifactT artifact = oneProgram(sumProgram(10));
  cpu(artifact).kernels[0]->name = "absent";
  EXPECT_EQ(Runner(artifact, onCpu(1)).message(),
            "test.tsr: code object 'cpu:baseline': 'absent' is missing "
            "from it");
  cpu(artifact).kernels[0]->name = "malloc"; // a symbol of another library
  EXPECT_EQ(Runner(artifact, onCpu(1)).message(),
            "test.tsr: code object 'cpu:baseline': 'malloc' is missing "
            "from it");
}

// Of the file: where the last loaded segment ends.
static std::size_t endOfSegments(const std::string &elf) {
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof(header));
  std::size_t end = 0;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, elf.data() + header.e_phoff + i * sizeof(segment),
                sizeof(segment));
    if (segment.p_type == PT_LOAD)
      end = std::max<std::size_t>(end, segment.p_offset + segment.p_filesz);
  }
  return end;
}

TEST(CpuDevice, DamagedElfIsRefusedBeforeTheLoaderSeesIt) {
  const auto error = [](std::string elf) {
    ArtifactT artifact = oneProgram(sumProgram(10));
    cpu(artifact).code[0]->elf.assign(elf.begin(), elf.end());
    return Runner(artifact, onCpu(1)).message();
  };
  const std::string prefix = "test.tsr: code object 'cpu:baseline': ";
  std::string elf = kernelObject();
  EXPECT_EQ(error("ELF"), prefix + "3 bytes are too few for an ELF header");
  EXPECT_EQ(error(std::string(4096, 'x')),
            prefix + "not a 64-bit ELF shared object");
  // What follows the segments, such as section headers, is not needed.
  const std::size_t needed = endOfSegments(elf);
  ASSERT_LE(needed, elf.size());
  for (std::size_t length = 64; length < needed; length += 97)
    EXPECT_NE(error(elf.substr(0, length)), "") << length;
  std::string other = elf;
  other[18] = 0x28; // e_machine: 32-bit ARM
  EXPECT_NE(error(other).find("code for ELF machine 40, but this is machine"),
            std::string::npos);
  std::string headers = elf;
  headers[32 + 7] = 0x7f; // e_phoff
  EXPECT_EQ(error(headers), prefix + "its program headers leave the object");
}

TEST(CpuDevice, ProfileCountsRunsAndTime) {
  hal::SessionOptions options = onCpu(2);
  options.recordOptions.profile = true;
  options.recordOptions.traceEvents = 4;
  ArtifactT artifact = oneProgram(sumProgram(100'000));
  cpu(artifact).kernels[kPartialSums]->flops = 200'000;
  Runner runner(artifact, options);
  ASSERT_TRUE(runner.ok()) << runner.message();
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(runner->run("main").ok());
  const auto profiles = runner->profiles();
  ASSERT_EQ(profiles.size(), 1u);
  const hal::Profile &profile = *profiles[0];
  ASSERT_EQ(profile.steps().size(), 3u);
  for (const hal::ProfiledStep &step : profile.steps()) {
    EXPECT_EQ(step.runs, 2u);
    EXPECT_GT(step.nanoseconds, 0u);
  }
  EXPECT_EQ(profile.events().size(), 4u);
  EXPECT_EQ(profile.droppedEvents(), 2u);
  const std::string table = profile.table();
  EXPECT_NE(table.find("partial_sums (h.0.reduce)"), std::string::npos)
      << table;
  const auto trace = nlohmann::json::parse(hal::chromeTrace(profiles));
  EXPECT_EQ(trace["traceEvents"].size(), 5u); // with the track's name
  EXPECT_EQ(trace["traceEvents"][2]["name"], "partial_sums");
  EXPECT_EQ(trace["traceEvents"][2]["args"]["origin"], "h.0.reduce");
  EXPECT_EQ(trace["otherData"]["droppedEvents"], 2);
}

TEST(CpuDevice, FiniteCheckNamesStepAndElement) {
  constexpr std::int64_t n = 100;
  const auto chain = [&](std::uint64_t offset, std::string origin) {
    return launch(
        kNanBelowFive,
        {instance({arg(Space::arena, offset, 400), arg(Space::arena, 448, 400)},
                  blocksOf(n), {n})},
        std::move(origin));
  };
  ArtifactT artifact = oneProgram(program(
      "main", 896, 0, {}, {},
      {launch(kIota, {instance({arg(Space::arena, 0, 400)}, blocksOf(n), {n})}),
       loop(3, {launch(kScale, {instance({arg(Space::arena, 0, 400, {0}),
                                          arg(Space::arena, 0, 400, {0})},
                                         blocksOf(n), {n})})}),
       chain(0, "h.3.mlp"), chain(0, "h.4.mlp")}));
  Runner unchecked(artifact, onCpu(1));
  ASSERT_TRUE(unchecked.ok()) << unchecked.message();
  EXPECT_TRUE(unchecked->run("main").ok());
  hal::SessionOptions options = onCpu(2);
  options.recordOptions.checkFinite = true;
  // After scaling x becomes 8x + 7 ≥ 7: all finite.
  Runner checked(artifact, options);
  ASSERT_TRUE(checked.ok()) << checked.message();
  EXPECT_EQ(checked->run("main").message(), "");
  // Without the loop, x starts at 0.
  cpu(artifact).programs[0]->steps.erase(
      cpu(artifact).programs[0]->steps.begin() + 1);
  Runner bad(artifact, options);
  ASSERT_TRUE(bad.ok()) << bad.message();
  for (int repeat = 0; repeat < 2; ++repeat)
    EXPECT_EQ(bad->run("main").message(),
              "program 'main': step 1 (h.3.mlp): kernel 'nan_below_five' wrote "
              "NaN at element 0 of argument 1 (f32), instance 0");
}

TEST(FiniteCheck, EveryFormat) {
  const auto first = [](auto value, ElementType type) {
    decltype(value) values[3] = {0, 1, value};
    return hal::findNotFinite(std::as_bytes(std::span(values)), type);
  };
  EXPECT_TRUE(first(NAN, ElementType::f32)->isNan);
  EXPECT_FALSE(first(-INFINITY, ElementType::f32)->isNan);
  EXPECT_EQ(first(double(NAN), ElementType::f64)->index, 2u);
  EXPECT_TRUE(first(std::uint16_t(0xffc0), ElementType::bf16)->isNan);
  EXPECT_FALSE(first(std::uint16_t(0xff80), ElementType::bf16)->isNan);
  EXPECT_TRUE(first(std::uint16_t(0x7c01), ElementType::f16)->isNan);
  EXPECT_FALSE(first(3.4e38f, ElementType::f32).has_value());
  EXPECT_FALSE(first(std::uint16_t(0x7f7f), ElementType::bf16).has_value());
  EXPECT_FALSE(first(std::int32_t(-1), ElementType::i32).has_value());
}

TEST(ThreadPool, CoversEveryRangeAcrossIdlePauses) {
  for (const unsigned threads : {1, 2, 5}) {
    auto pool = hal::ThreadPool::create(threads);
    ASSERT_TRUE(pool.ok()) << pool.message();
    EXPECT_EQ((*pool)->threads(), threads);
    std::vector<std::atomic<int>> hits(1003);
    std::atomic<unsigned> largest{0};
    constexpr int launches = 2000;
    for (int i = 0; i < launches; ++i) {
      const auto blocks = static_cast<std::uint32_t>(i % 1004);
      (*pool)->parallelFor(blocks, [&](std::uint32_t begin, std::uint32_t end,
                                       unsigned thread) {
        for (; begin < end; ++begin)
          hits[begin].fetch_add(1, std::memory_order_relaxed);
        unsigned seen = largest.load();
        while (seen < thread && !largest.compare_exchange_weak(seen, thread))
          ;
      });
      if (i % 400 == 0) // long enough that the threads fall asleep
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_LT(largest.load(), threads);
    for (int block = 0; block < 1003; ++block) {
      int expected = 0;
      for (int i = 0; i < launches; ++i)
        expected += i % 1004 > block;
      ASSERT_EQ(hits[block].load(), expected) << block;
    }
  }
}

/// One launch that ends only if `threads` threads are in it at once.
void launchOnAll(hal::ThreadPool &pool, unsigned threads) {
  std::atomic<unsigned> inside{0};
  pool.parallelFor(threads, [&](uint32_t begin, uint32_t end, unsigned) {
    ASSERT_EQ(end, begin + 1);
    inside.fetch_add(1);
    while (inside.load() < threads)
      std::this_thread::yield();
  });
}

TEST(ThreadPool, AllThreadsTakePart) {
  auto pool = hal::ThreadPool::create(4);
  ASSERT_TRUE(pool.ok()) << pool.message();
  for (int repeat = 0; repeat < 20; ++repeat)
    launchOnAll(**pool, 4);
}

// Two pools of four threads of which each has half: alone, a pool uses all
// four; while the other computes, its first two, and all blocks are done.
TEST(ThreadPool, TakesItsPartOfSharedProcessors) {
  auto share = std::make_shared<hal::ProcessorShare>(2);
  auto first = hal::ThreadPool::create(4, {share, 0, 2}),
       second = hal::ThreadPool::create(4, {share, 1, 2});
  ASSERT_TRUE(first.ok() && second.ok());
  launchOnAll(**first, 4);
  std::atomic<bool> begun{false}, isOver{false};
  std::thread other([&] {
    (*second)->parallelFor(2, [&](uint32_t, uint32_t, unsigned) {
      begun = true;
      while (!isOver)
        std::this_thread::yield();
    });
  });
  while (!begun)
    std::this_thread::yield();
  std::atomic<unsigned> seen{0}, blocks{0};
  for (int launch = 0; launch < 50; ++launch)
    (*first)->parallelFor(16, [&](uint32_t begin, uint32_t end, unsigned at) {
      seen |= 1u << at;
      blocks += end - begin;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  EXPECT_EQ(seen.load() & ~3u, 0u);
  EXPECT_EQ(blocks, 50u * 16);
  isOver = true;
  other.join();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  launchOnAll(**first, 4);
}

// What a program's host does between two launches does not end its computing.
TEST(ProcessorShare, BridgesTheTimeBetweenLaunches) {
  hal::ProcessorShare share(2);
  EXPECT_FALSE(share.begin(0));
  EXPECT_TRUE(share.begin(1));
  share.end(1);
  const auto ended = std::chrono::steady_clock::now();
  const bool isBusy = share.begin(0);
  const auto passed = std::chrono::steady_clock::now() - ended;
  EXPECT_TRUE(isBusy || passed > std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(share.begin(0));
}

TEST(ThreadPool, RefusesAbsurdCounts) {
  EXPECT_EQ(hal::ThreadPool::create(0).message(),
            "cannot run on 0 threads: use 1 to 4096");
  EXPECT_EQ(hal::ThreadPool::create(5000).message(),
            "cannot run on 5000 threads: use 1 to 4096");
  EXPECT_GE(hal::availableProcessors(), 1u);
}

TEST(CpuDevice, TooMuchMemoryIsAnErrorNotACrash) {
  ArtifactT artifact = oneProgram(program("main", 0, 0, {}, {}, {}));
  share(artifact).state_bytes = kMaxSpaceBytes;
  EXPECT_EQ(Runner(artifact, onCpu(1)).message(),
            "cannot allocate 70368744177664 bytes for the state: Cannot "
            "allocate memory");
}

TEST(Devices, UnknownNameListsTheKnown) {
  EXPECT_EQ(hal::createDevice("tpu", {}).message(),
            "unknown device 'tpu': this runtime has cpu, cuda, cuda-emu, null");
}
