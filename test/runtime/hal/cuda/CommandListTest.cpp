// Command lists on a GPU: as graphs, in a stream, step by step.
#include "runtime/hal/Profile.h"
#include "test/runtime/hal/cuda/CudaTest.h"

#include <cmath>

using namespace tessera;
using namespace tessera::test;

namespace {

class CudaCommands : public CudaTest {};

constexpr std::int64_t kCount = 1000;
constexpr std::uint64_t kSlot = 4032; // of 1000 floats

/// Every kind of step: loops, several instances that move with them, copies
/// (one onto itself), fills, state.
ArtifactT everything() {
  const std::uint64_t bytes = floatBytes(kCount);
  const auto one = [&](std::vector<ArgT> args) {
    return instance(std::move(args), blocksOf(kCount), {kCount});
  };
  ArtifactT artifact = oneProgram(
      program(
          "main", 2 * kSlot, 12 * kSlot,
          {tensor("x", ElementType::f32, {3, kCount}, Role::input, Space::io,
                  0)},
          {tensor("y", ElementType::f32, {6 * kSlot / 4}, Role::output,
                  Space::io, 6 * kSlot)},
          {fill(arg(Space::arena, 0, 2 * kSlot), 0),
           loop(3, {launch(kAccumulate,
                           {one({arg(Space::io, 0, bytes, {bytes}),
                                 arg(Space::arena, 0, bytes, {0})}),
                            one({arg(Space::io, 64, bytes, {bytes}),
                                 arg(Space::arena, kSlot, bytes, {0})}),
                            one({arg(Space::io, 0, bytes, {bytes}),
                                 arg(Space::state, 0, bytes, {0})})}),
                    launch(kScale,
                           {one({arg(Space::arena, 0, bytes, {0}),
                                 arg(Space::io, 6 * kSlot, bytes, {kSlot})}),
                            one({arg(Space::arena, kSlot, bytes, {0}),
                                 arg(Space::io, 9 * kSlot, bytes, {kSlot})})},
                           "h.*.scale")}),
           copy(arg(Space::io, 6 * kSlot, 2 * kSlot),
                arg(Space::io, 6 * kSlot + 64, 2 * kSlot))}),
      kSlot);
  share(artifact).state = owned<TensorT>({tensor(
      "w", ElementType::f32, {kCount}, Role::parameter, Space::state, 0)});
  return artifact;
}

/// What `everything` leaves in y and w after two runs.
std::vector<float> resultsOf(hal::Session &session) {
  std::vector<float> x(3 * kCount), y(6 * kSlot / 4), w(kCount);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(static_cast<float>(i));
  for (int run = 0; run < 2; ++run) {
    EXPECT_TRUE(session.writeInput<float>("main", "x", x).ok());
    const Status status = session.run("main");
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(
      session.readOutput("main", "y", std::as_writable_bytes(std::span(y)))
          .ok());
  EXPECT_TRUE(
      session.readState("w", std::as_writable_bytes(std::span(w))).ok());
  y.insert(y.end(), w.begin(), w.end());
  return y;
}

std::vector<float> resultsOn(const hal::SessionOptions &options) {
  Runner runner(everything(), options);
  EXPECT_TRUE(runner.ok()) << runner.message();
  return runner.ok() ? resultsOf(runner.get()) : std::vector<float>();
}

} // namespace

TEST_F(CudaCommands, TheSameBitsAsOnTheCpu) {
  hal::SessionOptions cpuOptions;
  cpuOptions.deviceOptions.threads = 1;
  const std::vector<float> expected = resultsOn(cpuOptions);
  EXPECT_NE(expected[0], 0);
  for (const char *mode : {"graph", "stream", "step"})
    EXPECT_EQ(resultsOn(cuda(mode)), expected) << mode;
  hal::SessionOptions slow = cuda();
  slow.recordOptions.profile = true;
  EXPECT_EQ(resultsOn(slow), expected);
  slow.recordOptions.checkFinite = true;
  EXPECT_EQ(resultsOn(slow), expected);
}

TEST_F(CudaCommands, ARunOfAGraphIsOneLaunchAndOneWait) {
  Runner runner(everything(), cuda());
  ASSERT_TRUE(runner.ok()) << runner.message();
  fake.reset();
  ASSERT_TRUE(runner->run("main").ok());
  ASSERT_TRUE(runner->run("main").ok());
  EXPECT_EQ(fake.calls("cuGraphLaunch"), 2u);
  EXPECT_EQ(fake.calls("cuStreamSynchronize"), 2u);
  for (const char *none :
       {"cuLaunchKernel", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async",
        "cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2", "cuGraphInstantiateWithFlags"})
    EXPECT_EQ(fake.calls(none), 0u) << none;
}

TEST_F(CudaCommands, InAStreamStepsAreCallsWithoutAWaitBetween) {
  for (const auto &[mode, waits] :
       {std::pair("stream", 1u), std::pair("step", 9u)}) {
    Runner runner(everything(), cuda(mode));
    ASSERT_TRUE(runner.ok()) << runner.message();
    fake.reset();
    ASSERT_TRUE(runner->run("main").ok());
    EXPECT_EQ(fake.calls("cuLaunchKernel"), 6u);
    EXPECT_EQ(fake.calls("cuMemcpyDtoDAsync_v2"), 2u); // by way of a bounce
    EXPECT_EQ(fake.calls("cuMemsetD8Async"), 1u);
    EXPECT_EQ(fake.calls("cuStreamSynchronize"), waits) << mode;
    EXPECT_EQ(fake.calls("cuGraphLaunch"), 0u);
    EXPECT_EQ(fake.calls("cuMemAlloc_v2"), 0u);
  }
}

TEST_F(CudaCommands, TheEnvironmentChoosesHow) {
  environment("TESSERA_CUDA", "stream");
  Runner runner(everything(), cuda());
  ASSERT_TRUE(runner.ok()) << runner.message();
  EXPECT_EQ(fake.calls("cuStreamBeginCapture_v2"), 0u);
  Runner graph(everything(), cuda("graph")); // what the program asks for wins
  EXPECT_EQ(fake.calls("cuStreamBeginCapture_v2"), 1u);
}

TEST_F(CudaCommands, LongProgramsAreNoGraphs) {
  for (const auto &[trip, graphs] :
       {std::pair(50'000u, 1u), std::pair(50'001u, 0u)}) {
    fake.reset();
    Runner runner(
        oneProgram(program(
            "main", 0, 128, {},
            {tensor("y", ElementType::u8, {128}, Role::output, Space::io, 0)},
            {loop(trip, {fill(arg(Space::io, 0, 64, {0}), 3),
                         fill(arg(Space::io, 64, 64, {0}), 4)})})),
        cuda());
    ASSERT_TRUE(runner.ok()) << runner.message();
    EXPECT_EQ(fake.calls("cuStreamBeginCapture_v2"), graphs);
    ASSERT_TRUE(runner->run("main").ok());
    std::vector<std::byte> y(128);
    ASSERT_TRUE(runner->readOutput("main", "y", y).ok());
    EXPECT_EQ(y[127], std::byte(4));
  }
}

// A loop that the GPU counts is in the graph once.
TEST_F(CudaCommands, LongLoopsWithCountsAreGraphs) {
  const auto artifact = [](std::uint64_t step) {
    return oneProgram(program("main", 64, 64 + 60'000 * step, {}, {},
                              {fill(arg(Space::arena, 0, 4), 0),
                               loop(60'000,
                                    {fill(arg(Space::io, 0, 8, {step}), 3),
                                     fill(arg(Space::io, 8, 8, {step}), 4)},
                                    arg(Space::arena, 0, 4))}));
  };
  for (const std::uint64_t step : {0, 8}) {
    fake.reset();
    Runner runner(artifact(step), cuda());
    ASSERT_TRUE(runner.ok()) << runner.message();
    ASSERT_TRUE(runner->run("main").ok());
    EXPECT_EQ(fake.calls("cuGraphLaunch"), step == 0 ? 1u : 0u);
    EXPECT_EQ(fake.calls("cuMemcpyDtoHAsync_v2"), step == 0 ? 0u : 1u);
  }
}

/// In each of two iterations, counts[i] times but at most four, adds one to
/// each of y[i]; then marks a byte after it. With `advances`, one to each of
/// the first counts[i] numbers of y[i] instead.
ArtifactT countedLoops(bool advances) {
  const std::uint64_t step = advances ? 4 : 0;
  const ArgT one = arg(Space::io, 128, 4 * 4, {0, 0});
  return oneProgram(program(
      "main", 64, 448,
      {tensor("ones", ElementType::f32, {4}, Role::input, Space::io, 128),
       tensor("counts", ElementType::i32, {2}, Role::input, Space::io, 192)},
      {tensor("y", ElementType::f32, {2 * 16}, Role::output, Space::io, 256)},
      {fill(arg(Space::io, 256, 128), 0),
       loop(2, {copy(arg(Space::io, 192, 4, {4}), arg(Space::arena, 0, 4, {0})),
                loop(4,
                     {launch(kAccumulate, {instance({one, arg(Space::io, 256,
                                                              16, {64, step})},
                                                    1, {advances ? 1 : 4})})},
                     arg(Space::arena, 0, 4, {0})),
                fill(arg(Space::io, 256 + 48, 4, {64}), 9)})}));
}

/// Runs it with those counts and compares y.
void checkCounts(hal::Session &session, bool advances, int first, int second) {
  const std::int32_t counts[] = {first, second};
  const float ones[] = {1, 1, 1, 1};
  ASSERT_TRUE(session.writeInput<std::int32_t>("main", "counts", counts).ok());
  ASSERT_TRUE(session.writeInput<float>("main", "ones", ones).ok());
  const Status status = session.run("main");
  ASSERT_TRUE(status.ok()) << status.message();
  std::vector<float> y(32);
  ASSERT_TRUE(
      session.readOutput("main", "y", std::as_writable_bytes(std::span(y)))
          .ok());
  for (std::size_t outer = 0; outer < 2; ++outer) {
    const int count = std::clamp(counts[outer], 0, 4);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(y[16 * outer + std::size_t(i)],
                static_cast<float>(advances ? (i < count ? 1 : 0) : count))
          << outer << " " << i;
    EXPECT_NE(y[16 * outer + 12], 0);
  }
}

// As many iterations as the numbers say that the GPU has computed by then, in
// one launch: the host reads nothing.
TEST_F(CudaCommands, LoopsWithCountsAreNodesOfOneGraph) {
  for (const char *mode : {"graph", "stream", "step"}) {
    Runner runner(countedLoops(false), cuda(mode));
    ASSERT_TRUE(runner.ok()) << runner.message();
    const bool isGraph = std::string_view(mode) == "graph";
    for (const auto &[first, second] :
         {std::pair(0, 3), std::pair(4, 1), std::pair(-1, 9)}) {
      checkCounts(runner.get(), false, first, second);
      fake.reset();
      ASSERT_TRUE(runner->run("main").ok());
      EXPECT_EQ(fake.calls("cuGraphLaunch"), isGraph ? 1u : 0u);
      EXPECT_EQ(fake.calls("cuMemcpyDtoHAsync_v2"), isGraph ? 0u : 2u);
      EXPECT_EQ(fake.calls("cuLaunchKernel") == 0, isGraph);
    }
    EXPECT_EQ(runner->device().describe().find("counts of loops"),
              std::string::npos);
  }
}

// Then there is one graph for each iteration that there may be, and three
// around the loops, and the device says why.
TEST_F(CudaCommands, TheHostCountsWhereTheGpuCannot) {
  const auto check = [&](bool advances, const char *why) {
    fake.reset();
    Runner runner(countedLoops(advances), cuda("graph"));
    ASSERT_TRUE(runner.ok()) << runner.message();
    EXPECT_EQ(fake.calls("cuStreamBeginCapture_v2"), 3u + 8);
    EXPECT_EQ(fake.calls("cuStreamBeginCaptureToGraph"), 0u);
    EXPECT_TRUE(runner->device().describe().ends_with(why))
        << runner->device().describe();
    for (const auto &[first, second] :
         {std::pair(0, 3), std::pair(4, 1), std::pair(-1, 9)}) {
      const unsigned before = fake.calls("cuGraphLaunch");
      checkCounts(runner.get(), advances, first, second);
      EXPECT_EQ(fake.calls("cuGraphLaunch") - before,
                3u + unsigned(std::clamp(first, 0, 4)) +
                    unsigned(std::clamp(second, 0, 4)));
    }
  };
  check(true, "; the host reads counts of loops: addresses advance with the "
              "iterations");
  setting("VERSION", "12030");
  check(false, "; the host reads counts of loops: graphs of the driver, for "
               "CUDA 12.3, have no loops before 12.4");
}

TEST_F(CudaCommands, CopiesOntoThemselvesInPieces) {
  // Larger than the bounce, up and down.
  constexpr std::uint64_t bytes = (40 << 20) + 3, shift = 1000;
  for (const auto &[from, to] :
       {std::pair(std::uint64_t(0), shift), std::pair(shift, 0ul)}) {
    ArtifactT artifact =
        oneProgram(program("main", 0, 0, {}, {},
                           {copy(arg(Space::state, from, bytes),
                                 arg(Space::state, to, bytes))}),
                   bytes + shift);
    share(artifact).state = owned<TensorT>({tensor(
        "w", ElementType::u8, {static_cast<std::int64_t>(bytes + shift)},
        Role::parameter, Space::state, 0)});
    Runner runner(artifact, cuda());
    ASSERT_TRUE(runner.ok()) << runner.message();
    std::vector<std::byte> before(bytes + shift), after(bytes + shift);
    for (std::size_t i = 0; i < before.size(); ++i)
      before[i] = std::byte(i * 2654435761u >> 24);
    ASSERT_TRUE(runner->writeState("w", before).ok());
    ASSERT_TRUE(runner->run("main").ok());
    ASSERT_TRUE(runner->readState("w", after).ok());
    std::memmove(before.data() + to, before.data() + from, bytes);
    EXPECT_TRUE(before == after) << from << " to " << to;
  }
}

TEST_F(CudaCommands, ProfilesEveryStep) {
  // More steps than there are events.
  constexpr std::uint64_t trip = 300;
  hal::SessionOptions options = cuda();
  options.recordOptions.profile = true;
  options.recordOptions.traceEvents = 1000;
  Runner runner(
      oneProgram(program(
          "main", 0, 64, {}, {},
          {loop(trip, {fill(arg(Space::io, 0, 64, {0}), 3),
                       launch(kCountRuns,
                              {instance({arg(Space::io, 0, 4, {0})}, 1)})})})),
      options);
  ASSERT_TRUE(runner.ok()) << runner.message();
  fake.reset();
  ASSERT_TRUE(runner->run("main").ok());
  ASSERT_EQ(runner->profiles().size(), 1u);
  const hal::Profile &profile = *runner->profiles()[0];
  ASSERT_EQ(profile.steps().size(), 2u);
  for (const hal::ProfiledStep &step : profile.steps())
    EXPECT_EQ(step.runs, trip);
  EXPECT_EQ(profile.steps()[1].what, "count_runs");
  EXPECT_GT(profile.steps()[1].nanoseconds, 0u);
  // In order, none before the one in front of it has ended.
  ASSERT_EQ(profile.events().size(), 2 * trip);
  const auto &events = profile.events();
  for (std::size_t i = 1; i < events.size(); ++i)
    ASSERT_GE(events[i].start + 1000,
              events[i - 1].start + events[i - 1].duration)
        << i;
  EXPECT_EQ(fake.calls("cuEventCreate"), 0u);
}

TEST_F(CudaCommands, FindsWhatIsNotFinite) {
  // Behind the first piece of a copy to the host.
  constexpr std::int64_t n = (5 << 20) / 4, bad = n - 3;
  const std::uint64_t bytes = floatBytes(n);
  hal::SessionOptions options = cuda();
  options.recordOptions.checkFinite = true;
  Runner runner(
      oneProgram(program(
          "main", bytes, bytes,
          {tensor("x", ElementType::f32, {n}, Role::input, Space::io, 0)}, {},
          {fill(arg(Space::arena, 0, bytes), 0),
           launch(kAccumulate,
                  {instance(
                      {arg(Space::io, 0, bytes), arg(Space::arena, 0, bytes)},
                      blocksOf(n), {n})},
                  "loss")})),
      options);
  ASSERT_TRUE(runner.ok()) << runner.message();
  std::vector<float> x(n, 1.0f);
  ASSERT_TRUE(runner->writeInput<float>("main", "x", x).ok());
  EXPECT_EQ(runner->run("main").message(), "");
  x[bad] = -INFINITY;
  ASSERT_TRUE(runner->writeInput<float>("main", "x", x).ok());
  EXPECT_EQ(runner->run("main").message(),
            "program 'main': step 1 (loss): kernel 'accumulate' wrote infinity "
            "at element 1310717 of argument 1 "
            "(f32), instance 0");
}

TEST_F(CudaCommands, WhatNobodyWroteIsNoResult) {
  // As on the CPU, the check starts from zeros: an old NaN in the arena is not
  // this run's.
  hal::SessionOptions options = cuda();
  options.recordOptions.checkFinite = true;
  ArtifactT artifact = oneProgram(program(
      "main", 256, 0, {}, {},
      {launch(kIota, {instance({arg(Space::arena, 0, 256)}, 1, {32})})}));
  cpu(artifact).programs.push_back(std::make_unique<ProgramT>(program(
      "other", 256, 0, {}, {}, {fill(arg(Space::arena, 0, 256), 0xff)})));
  Runner runner(artifact, options);
  ASSERT_TRUE(runner.ok()) << runner.message();
  ASSERT_TRUE(runner->run("other").ok());
  EXPECT_EQ(runner->run("main").message(), "");
}
