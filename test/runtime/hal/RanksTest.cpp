// Programs of several ranks, each a session of its own in a thread, against
// loops over all of them.
#include "runtime/artifact/Shares.h"
#include "runtime/comm/ThreadTransport.h"
#include "test/runtime/artifact/MeshArtifact.h"
#include "test/runtime/hal/Conformance.h"
#include "test/runtime/hal/cuda/FakeCuda.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int kRanks = 3;

/// meshArtifact with code that a CPU and a GPU load, though nothing launches
/// it, and two loops whose count is data: of a collective, and while one is
/// under way. With `advances`, addresses in the latter differ by iteration.
ArtifactT runnable(bool advances = true) {
  ArtifactT artifact = meshArtifact();
  for (auto &each : artifact.shares) {
    ArtifactT kernels = kernelArtifact();
    each->devices[0]->kernels = std::move(cpu(kernels).kernels);
    each->devices[0]->code = std::move(cpu(kernels).code);
    each->devices.push_back(
        std::make_unique<DeviceCodeT>(cudaCode(*each->devices[0])));
    // Zeros that arrive from nobody must be written.
    for (auto &code : each->devices) {
      auto &steps = code->programs[0]->steps;
      steps.insert(steps.begin(), std::make_unique<NodeT>(
                                      fill(arg(Space::arena, 256, 96), 0x7f)));
      const auto insert = [&](std::ptrdiff_t fromEnd, NodeT body) {
        const auto at = steps.insert(
            steps.end() - fromEnd,
            std::make_unique<NodeT>(fill(arg(Space::arena, 96, 4), 1)));
        steps.insert(at + 1,
                     std::make_unique<NodeT>(
                         loop(2, {std::move(body)}, arg(Space::arena, 96, 4))));
      };
      insert(2, fill(arg(Space::arena, 0, 16, {advances ? 16u : 0u}), 0));
      // What the last one does, which changes nothing a second time.
      const ArgT moved = arg(Space::arena, 256, 96, {0});
      CollectiveT most = collective(CollectiveKind::all_reduce, moved, moved);
      most.reduction = Reduction::max;
      insert(6, node(most, "test.together"));
    }
  }
  return artifact;
}

comm::WorldOptions quiet() {
  comm::WorldOptions options;
  options.timeout = std::chrono::seconds(20);
  options.report = [](const std::string &) {};
  return options;
}

/// Calls body(rank, world) in a thread for each rank.
void onRanks(int ranks, const std::function<void(int, comm::World &)> &body) {
  auto transports = comm::ThreadTransport::create(ranks, {});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto world = comm::World::over(
          std::move(transports[static_cast<std::size_t>(rank)]), quiet());
      body(rank, *world);
      (void)world->leave();
    });
  for (std::thread &thread : threads)
    thread.join();
}

hal::SessionOptions optionsOf(int rank, comm::World *world,
                              const char *device = "cpu") {
  hal::SessionOptions options;
  options.device = device;
  options.deviceOptions.threads = 1;
  options.mesh.rank = static_cast<std::uint32_t>(rank);
  options.mesh.world = world;
  return options;
}

struct Results {
  std::vector<float> y, moved;
  std::int32_t start = -1;
};

Status runRank(const ArtifactReader &artifact, int rank, comm::World &world,
               const std::vector<float> &whole, Results &results,
               const char *device = "cpu") {
  auto opened = hal::Session::open(artifact, optionsOf(rank, &world, device));
  if (!opened.ok())
    return opened.status();
  hal::Session &session = **opened;
  const Mesh mesh(artifact.root());
  const Coordinates at = mesh.coordinatesOf(static_cast<std::uint32_t>(rank));
  EXPECT_EQ(session.inputs("step").size(), 1u); // "mesh.offsets" is not ours
  const hal::TensorInfo &x = session.inputs("step")[0];
  std::vector<float> part(x.elements());
  copyToShare(*x.source, mesh, at, std::as_bytes(std::span(whole)),
              std::as_writable_bytes(std::span(part)));
  TESSERA_RETURN_IF_ERROR(
      session.writeInput("step", "x", std::span<const float>(part)));
  for (int repeat = 0; repeat < 3; ++repeat)
    TESSERA_RETURN_IF_ERROR(session.run("step"));
  results.y.resize(part.size());
  results.moved.resize(24);
  TESSERA_RETURN_IF_ERROR(session.readOutput(
      "step", "y", std::as_writable_bytes(std::span(results.y))));
  TESSERA_RETURN_IF_ERROR(session.readOutput(
      "step", "moved", std::as_writable_bytes(std::span(results.moved))));
  const auto start = session.readScalar<std::int32_t>("step", "start");
  if (!start.ok())
    return start.status();
  results.start = *start;
  return Status::success();
}

/// The environment variable TESSERA_LIBNCCL, as long as it lives.
class NcclNamed {
public:
  explicit NcclNamed(const char *library) {
    ::setenv("TESSERA_LIBNCCL", library, 1);
  }
  ~NcclNamed() { ::unsetenv("TESSERA_LIBNCCL"); }
};

std::vector<float> someNumbers() {
  std::vector<float> numbers(32);
  for (int i = 0; i < 32; ++i)
    numbers[static_cast<std::size_t>(i)] = static_cast<float>(i * 7 % 13 - 4);
  return numbers;
}

} // namespace

/// A device, and the library that is NCCL.
class RanksOnDevices
    : public testing::TestWithParam<std::pair<const char *, const char *>> {};

TEST_P(RanksOnDevices, DoTogetherWhatLoopsDo) {
  const AlignedBytes bytes(pack(runnable()));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh.tsr");
  ASSERT_TRUE(reader.ok()) << reader.message();
  const std::vector<float> x = someNumbers();
  std::vector<Results> results(kRanks);
  FakeCuda::get().reset();
  const char *device = GetParam().first;
  const NcclNamed named(GetParam().second);
  onRanks(kRanks, [&](int rank, comm::World &world) {
    const Status status =
        runRank(*reader, rank, world, x,
                results[static_cast<std::size_t>(rank)], device);
    EXPECT_TRUE(status.ok()) << status.message();
  });
  EXPECT_EQ(FakeCuda::get().misuse(), "");
  // Three ranks have all of x, three times that is the sum, and three times
  // the sum what is scattered.
  const std::vector<std::size_t> rows = {3, 3, 2};
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(results[rank].start, static_cast<std::int32_t>(next / 4));
    for (const float y : results[rank].y)
      EXPECT_EQ(y, 9 * x[next++]);
    EXPECT_EQ(results[rank].y.size(), rows[rank] * 4);
  }
  // parts of rank r: from everybody the eight numbers that are r's, all alike.
  // What arrives at rank r + 1 are those of rank r, and zeros at rank 0.
  for (std::size_t i = 0; i < 24; ++i) {
    float expected = 0;
    for (std::size_t from : {0, 1})
      expected = std::max(expected, 3 * x[from * 8 + i % 8]);
    for (const Results &one : results)
      EXPECT_EQ(one.moved[i], expected) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Devices, RanksOnDevices,
    testing::Values(std::pair("cpu", "none"), std::pair("cuda-emu", "none"),
                    std::pair("cuda:0", "none"),
                    std::pair("cuda:0", TESSERA_FAKE_NCCL)),
    [](const auto &info) {
      std::string name = info.param.first;
      std::erase_if(name, [](char c) { return c == '-' || c == ':'; });
      return name + (*info.param.second == '/' ? "ByNccl" : "");
    });

// Who has GPUs and nothing between them is told so.
TEST(Ranks, GpusSayHowTheyReachOthers) {
  const NcclNamed none("none");
  const AlignedBytes bytes(pack(runnable()));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh.tsr");
  ASSERT_TRUE(reader.ok()) << reader.message();
  FakeCuda::get().reset();
  onRanks(kRanks, [&](int rank, comm::World &world) {
    const auto session =
        hal::Session::open(*reader, optionsOf(rank, &world, "cuda:0"));
    ASSERT_TRUE(session.ok()) << session.message();
    EXPECT_TRUE((*session)->device().describe().ends_with(
        "; collectives go through the host's memory"))
        << (*session)->device().describe();
  });
}

/// Opens and runs it once on each rank.
void runOnGpus(const ArtifactReader &artifact, const char *description) {
  FakeCuda::get().reset();
  onRanks(kRanks, [&](int rank, comm::World &world) {
    const auto session =
        hal::Session::open(artifact, optionsOf(rank, &world, "cuda:0"));
    ASSERT_TRUE(session.ok()) << session.message();
    EXPECT_TRUE((*session)->device().describe().ends_with(description))
        << (*session)->device().describe();
    const Status status = (*session)->run("step");
    EXPECT_TRUE(status.ok()) << status.message();
  });
  EXPECT_EQ(FakeCuda::get().misuse(), "");
}

// Loops of collectives too, whose count is data: the host reads nothing.
TEST(Ranks, GpusWithNcclRunOneGraph) {
  const NcclNamed fake(TESSERA_FAKE_NCCL);
  const AlignedBytes bytes(pack(runnable(/*advances=*/false)));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh.tsr");
  ASSERT_TRUE(reader.ok()) << reader.message();
  runOnGpus(*reader, "; collectives by NCCL");
  EXPECT_EQ(FakeCuda::get().calls("cuGraphLaunch"), unsigned(kRanks));
  EXPECT_EQ(FakeCuda::get().calls("cuMemcpyDtoHAsync_v2"), 0u);
}

// Where NCCL needs the host, a loop is outside of graphs: one to the first
// loop, one for each of its two iterations, and likewise for the second.
TEST(Ranks, GpusWithNcclOverTheHostCountThere) {
  const NcclNamed fake(TESSERA_FAKE_NCCL);
  ::setenv("TESSERA_FAKE_CUDA_HOST_COLLECTIVES", "1", 1);
  const AlignedBytes bytes(pack(runnable(/*advances=*/false)));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh.tsr");
  ASSERT_TRUE(reader.ok()) << reader.message();
  runOnGpus(*reader, "; collectives by NCCL; the host reads counts of loops: "
                     "collectives call functions of the host");
  ::unsetenv("TESSERA_FAKE_CUDA_HOST_COLLECTIVES");
  EXPECT_EQ(FakeCuda::get().calls("cuGraphLaunch"), unsigned(7 * kRanks));
  EXPECT_EQ(FakeCuda::get().calls("cuMemcpyDtoHAsync_v2"),
            unsigned(2 * kRanks));
}

TEST(Ranks, AChannelForEachListOfAxes) {
  ArtifactT artifact = meshArtifact();
  artifact.mesh.push_back(std::make_unique<MeshAxisT>(meshAxis("more", 1)));
  for (auto &each : artifact.shares)
    each->devices[0]->programs[0]->steps[1]->step.AsCollective()->axes = {1, 0};
  const AlignedBytes bytes(pack(artifact));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh.tsr");
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(hal::channelsOf(reader->root()),
            (std::set<hal::AxisList>{{0}, {1, 0}}));
}

TEST(Ranks, RefusedWithoutAWorld) {
  const AlignedBytes bytes(pack(runnable()));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh.tsr");
  ASSERT_TRUE(reader.ok()) << reader.message();
  const auto alone = hal::Session::open(*reader, optionsOf(1, nullptr));
  EXPECT_EQ(alone.message(),
            "program 'step': has collectives but there is only one rank: start "
            "as many ranks as it was compiled for, for example with mpirun");
  const auto beyond = hal::Session::open(*reader, optionsOf(3, nullptr));
  EXPECT_EQ(beyond.message(),
            "mesh.tsr: rank 3 is not among the 3 that it was compiled for");
  // What runs nothing checks any rank's plan.
  const auto checked =
      hal::Session::open(*reader, optionsOf(2, nullptr, "null"));
  EXPECT_TRUE(checked.ok()) << checked.message();
}

TEST(Ranks, RefusedInAnotherWorld) {
  const AlignedBytes bytes(pack(runnable()));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh.tsr");
  ASSERT_TRUE(reader.ok()) << reader.message();
  onRanks(2, [&](int rank, comm::World &world) {
    const auto session = hal::Session::open(*reader, optionsOf(rank, &world));
    EXPECT_EQ(
        session.message(),
        "mesh.tsr: compiled for 3 ranks, started with 2: run it as mpirun "
        "-n 3, or compile it for another mesh");
  });
  onRanks(3, [&](int rank, comm::World &world) {
    const auto session =
        hal::Session::open(*reader, optionsOf((rank + 1) % 3, &world));
    EXPECT_NE(session.message().find("of its world is to be rank"),
              std::string::npos)
        << session.message();
  });
}

// A rank that does something else: the run ends everywhere and says what.
TEST(Ranks, ErrorsOfAChannelEndTheRun) {
  ArtifactT artifact = runnable();
  CollectiveT &odd = *artifact.shares[1]
                          ->devices[0]
                          ->programs[0]
                          ->steps[2]
                          ->step.AsCollective();
  odd.reduction = Reduction::max;
  const AlignedBytes bytes(pack(artifact));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh.tsr");
  ASSERT_TRUE(reader.ok()) << reader.message();
  std::vector<Results> results(kRanks);
  onRanks(kRanks, [&](int rank, comm::World &world) {
    const Status status = runRank(*reader, rank, world, someNumbers(),
                                  results[static_cast<std::size_t>(rank)]);
    EXPECT_NE(status.message().find("program 'step': step 2 (test.together)"),
              std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("all_reduce"), std::string::npos)
        << status.message();
  });
}

// The plan check knows what is under way.
TEST(Ranks, PlansThatTouchWhatIsUnderWay) {
  const auto errorWith = [](NodeT between) {
    ArtifactT artifact = meshArtifact();
    for (auto &each : artifact.shares) {
      auto &steps = each->devices[0]->programs[0]->steps;
      steps.insert(steps.begin() + 6, std::make_unique<NodeT>(between));
    }
    const AlignedBytes bytes(pack(artifact));
    const auto reader = ArtifactReader::fromBytes(bytes.span(), "mesh.tsr");
    EXPECT_TRUE(reader.ok()) << reader.message();
    return hal::Session::open(*reader, optionsOf(0, nullptr, "null")).message();
  };
  EXPECT_NE(errorWith(fill(arg(Space::arena, 320, 32), 0))
                .find("writes bytes 320 to 352 of the arena, which the "
                      "collective with ticket 7 still uses"),
            std::string::npos);
  EXPECT_NE(errorWith(copy(arg(Space::arena, 256, 4), arg(Space::io, 192, 4)))
                .find("reads bytes 256 to 260"),
            std::string::npos);
  EXPECT_EQ(errorWith(copy(arg(Space::arena, 0, 4), arg(Space::io, 192, 4))),
            "");
}
