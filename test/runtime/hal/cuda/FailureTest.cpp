// What goes wrong on a GPU: memory that is not there, kernels that fault, and
// every call of the driver failing once.
#include "runtime/hal/Profile.h"
#include "runtime/hal/cuda/Api.h"
#include "test/runtime/hal/cuda/CudaTest.h"

#include <algorithm>

using namespace tessera;
using namespace tessera::test;

namespace {

class CudaFailure : public CudaTest {};

constexpr std::int64_t kCount = 200;

/// iota reads past its buffer's end if `count` is more than 200.
ArtifactT iotaOf(std::int64_t count) {
  return oneProgram(program(
      "main", 0, 832, {},
      {tensor("y", ElementType::f32, {kCount}, Role::output, Space::io, 0)},
      {fill(arg(Space::io, 0, 800), 0),
       launch(kIota,
              {instance({arg(Space::io, 0, 800)}, blocksOf(count), {count})},
              "transformer.h.0.attn")}));
}

/// Uses every function of the driver: state, an arena, several instances,
/// tensor maps, a loop whose count is data, a copy onto itself; written, run,
/// read.
Status useAll(const hal::SessionOptions &options) {
  const std::uint64_t bytes = floatBytes(kCount), slot = 832;
  const auto one = [&](Space space, std::uint64_t offset) {
    return instance({arg(space, offset, bytes)}, blocksOf(kCount), {kCount});
  };
  static const ArtifactT artifact = [&] {
    ArtifactT made = oneProgram(
        program("main", 2 * slot, 2 * slot,
                {tensor("x", ElementType::f32, {kCount}, Role::input, Space::io,
                        0)},
                {tensor("y", ElementType::f32, {kCount}, Role::output,
                        Space::io, slot)},
                {fill(arg(Space::arena, 0, 2 * slot), 0),
                 launch(kTakeBoxes, {instance({arg(Space::arena, 0, 288),
                                               arg(Space::arena, slot, 512)},
                                              4)}),
                 loop(2, {fill(arg(Space::arena, 0, 288, {0}), 1)},
                      arg(Space::arena, 0, 4)),
                 launch(kIota, {one(Space::arena, 0), one(Space::io, slot)}),
                 copy(arg(Space::io, slot, bytes),
                      arg(Space::io, slot + 4, bytes))}),
        slot);
    made = withCuda(made);
    gpu(made).kernels[kIota]->gpu->shared_bytes = 60 << 10;
    return made;
  }();
  Runner runner(artifact, options);
  if (!runner.ok())
    return Status::error("{}", runner.message());
  std::vector<float> x(kCount, 1.0f), y(kCount);
  TESSERA_RETURN_IF_ERROR(runner->writeInput<float>("main", "x", x));
  TESSERA_RETURN_IF_ERROR(runner->run("main"));
  TESSERA_RETURN_IF_ERROR(
      runner->readOutput("main", "y", std::as_writable_bytes(std::span(y))));
  EXPECT_EQ(y[10], 9);
  return Status::success();
}

const std::vector<const char *> kFunctions = {
#define NAME(member, symbol, parameters) #symbol,
    TESSERA_CUDA_FUNCTIONS(NAME) TESSERA_CUDA_LOOP_FUNCTIONS(NAME)
#undef NAME
};

/// Those whose failure nobody can act on: they end something, or begin to, or
/// describe an error.
bool isIgnored(std::string_view function) {
  return function.find("Destroy") != function.npos ||
         function.find("Free") != function.npos ||
         function.find("Release") != function.npos ||
         function.find("Unload") != function.npos ||
         function.find("GetError") != function.npos ||
         function.starts_with("cuCtxP");
}

/// The parameter: how steps reach the GPU; with a profile if it begins with P.
class CudaCalls : public CudaTest,
                  public testing::WithParamInterface<const char *> {
protected:
  static hal::SessionOptions options() {
    std::string mode = GetParam();
    const bool profiled = mode[0] == 'P';
    hal::SessionOptions options = cuda(mode.substr(profiled));
    options.recordOptions.profile = profiled;
    return options;
  }
  /// Fails each call of `function` in turn; how many there are.
  unsigned failEach(const char *function, int result);
};

unsigned CudaCalls::failEach(const char *function, int result) {
  fake.reset();
  EXPECT_TRUE(useAll(options()).ok());
  const unsigned calls = fake.calls(function);
  // The last wait is the device's before it goes.
  const bool endsWithIt = function == std::string_view("cuStreamSynchronize");
  for (unsigned call = 1; call <= calls - endsWithIt; ++call) {
    fake.reset();
    setting("FAIL", fmt::format("{}:{}:{}", function, call, result));
    const Status status = useAll(options());
    const std::string where = fmt::format("call {} of {}", call, function);
    EXPECT_FALSE(status.ok()) << where;
    if (result == hal::cuda::kOutOfMemory &&
        std::string_view(function) == "cuMemAlloc_v2")
      EXPECT_TRUE(isLineWith(status.message(), "are free")) << where;
    else
      EXPECT_TRUE(isLineWith(status.message(), function)) << where;
    EXPECT_EQ(fake.leaks(), "") << where;
    EXPECT_EQ(fake.misuse(), "") << where;
  }
  setting("FAIL", "");
  return calls;
}

} // namespace

TEST_P(CudaCalls, EachFailsInALineAndLeavesNothingBehind) {
  unsigned cases = 0, functions = 0;
  for (const char *function : kFunctions) {
    if (isIgnored(function))
      continue;
    const unsigned calls = failEach(function, 1); // invalid value
    functions += calls > 0;
    cases += calls;
  }
  RecordProperty("cases", static_cast<int>(cases));
  EXPECT_GE(functions, 24u);
  EXPECT_GE(cases, 60u);
  for (const char *function : {"cuMemAlloc_v2", "cuMemHostAlloc"})
    EXPECT_GT(failEach(function, hal::cuda::kOutOfMemory), 0u);
  for (const char *function : {"cuStreamSynchronize", "cuEventSynchronize"})
    EXPECT_GT(failEach(function, hal::cuda::kIllegalAddress), 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, CudaCalls,
                         testing::Values("graph", "stream", "step", "Pstream"));

TEST_F(CudaFailure, NoContext) {
  setting("FAIL", "cuCtxPushCurrent_v2:1:709");
  EXPECT_EQ(hal::createDevice("cuda:0", {}).message(),
            "cuda:0: cuCtxPushCurrent_v2: fake result 709 (CUDA_ERROR_709)");
}

TEST_F(CudaFailure, EveryFunctionIsUsed) {
  fake.reset();
  ASSERT_TRUE(useAll(cuda("graph")).ok());
  hal::SessionOptions profiled = cuda("graph");
  profiled.recordOptions.profile = true;
  ASSERT_TRUE(useAll(profiled).ok());
  setting("VERSION", "12030"); // without loops in graphs
  ASSERT_TRUE(useAll(cuda("graph")).ok());
  for (const char *function : kFunctions)
    if (std::string_view(function).find("GetError") == std::string::npos) {
      // Collectives use the one that is missing here: ../RanksTest.cpp.
      if (function != std::string_view("cuStreamWaitEvent"))
        EXPECT_GT(fake.calls(function), 0u) << function;
    }
}

TEST_F(CudaFailure, MorePlannedThanThereIs) {
  setting("MEMORY", "1000000");
  ArtifactT artifact =
      oneProgram(program("main", 400'000, 400'000, {}, {}, {}), 400'000);
  EXPECT_EQ(Runner(artifact, cuda()).message(),
            "cuda:0 (Fake GPU): 1.1 MiB of memory are planned, but 1.0 MiB of "
            "1.0 MiB are free: compile for a smaller batch or with recompute, "
            "or take a GPU with more memory");
  EXPECT_EQ(fake.calls("cuMemAlloc_v2"), 0u);
  // Programs that are not prepared do not count.
  artifact = oneProgram(program("main", 0, 64, {}, {}, {}));
  cpu(artifact).programs.push_back(
      std::make_unique<ProgramT>(program("other", 4'000'000, 64, {}, {}, {})));
  hal::SessionOptions options = cuda();
  options.programs = {"main"};
  EXPECT_EQ(Runner(artifact, options).message(), "");
}

TEST_F(CudaFailure, MemoryThatSomebodyElseTook) {
  setting("MEMORY", "3000000");
  auto device = hal::createDevice("cuda:0", {});
  ASSERT_TRUE(device.ok()) << device.message();
  auto first = (*device)->allocate(2'000'000, "the state");
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_EQ((*device)->allocate(2'000'000, "the arena").message(),
            "cuda:0: cannot allocate 1.9 MiB for the arena: 1.0 MiB of 2.9 MiB "
            "are free");
}

TEST_F(CudaFailure, BuffersOfAnySize) {
  auto device = hal::createDevice("cuda:0", {});
  ASSERT_TRUE(device.ok()) << device.message();
  for (const std::size_t bytes :
       {0ul, 1ul, 4ul << 20, (4ul << 20) + 1, (21ul << 20) + 3}) {
    auto buffer = (*device)->allocate(bytes, "it");
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    EXPECT_EQ((*buffer)->bytes(), bytes);
    EXPECT_EQ((*buffer)->host(), nullptr);
    std::vector<std::byte> sent(bytes), got(bytes, std::byte(7));
    ASSERT_TRUE((*buffer)->read(0, got).ok());
    EXPECT_TRUE(got == sent) << "not zero at first: " << bytes;
    for (std::size_t i = 0; i < bytes; ++i)
      sent[i] = std::byte(i * 2654435761u >> 24);
    // In two calls, which must not get into each other's way.
    const std::span<const std::byte> all = sent;
    ASSERT_TRUE((*buffer)->write(0, all.first(bytes / 3)).ok());
    ASSERT_TRUE((*buffer)->write(bytes / 3, all.subspan(bytes / 3)).ok());
    ASSERT_TRUE((*buffer)->read(0, got).ok());
    EXPECT_TRUE(got == sent) << bytes;
    if (bytes < 100)
      continue;
    ASSERT_TRUE((*buffer)->read(77, std::span(got).first(9)).ok());
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + 9, sent.begin() + 77));
  }
}

TEST_F(CudaFailure, AKernelThatFaults) {
  // Past the guard of the whole allocation, where a GPU faults too.
  const ArtifactT artifact = iotaOf(100'000);
  const std::string sticky =
      "fake result 700 (CUDA_ERROR_700); the GPU takes no more calls from "
      "this process: start it again";
  for (const char *mode : {"graph", "stream"}) {
    fake.reset();
    Runner runner(artifact, cuda(mode));
    ASSERT_TRUE(runner.ok()) << runner.message();
    EXPECT_EQ(runner->run("main").message(),
              "program 'main': cuStreamSynchronize: " + sticky +
                  "; with TESSERA_CUDA=step it says which step fails");
    // And so does whatever comes after.
    EXPECT_TRUE(isLineWith(runner->run("main").message(), sticky));
    std::vector<float> y(kCount);
    EXPECT_TRUE(isLineWith(
        runner->readOutput("main", "y", std::as_writable_bytes(std::span(y)))
            .message(),
        "cuda:0: cannot read the io of program 'main': "));
  }
  fake.reset();
  Runner runner(artifact, cuda("step"));
  ASSERT_TRUE(runner.ok()) << runner.message();
  EXPECT_EQ(runner->run("main").message(),
            "program 'main': step 1 (transformer.h.0.attn): kernel 'iota': "
            "cuStreamSynchronize: " +
                sticky);
}

TEST_F(CudaFailure, AProfileGoesOnAfterAFailedRun) {
  hal::SessionOptions options = cuda();
  options.recordOptions.profile = true;
  Runner runner(iotaOf(kCount), options);
  ASSERT_TRUE(runner.ok()) << runner.message();
  fake.reset();
  setting("FAIL", "cuLaunchKernel:1:1");
  EXPECT_FALSE(runner->run("main").ok());
  setting("FAIL", "");
  ASSERT_TRUE(runner->run("main").ok());
  for (const hal::ProfiledStep &step : runner->profiles()[0]->steps())
    EXPECT_EQ(step.runs, 1u) << step.what;
}

TEST_F(CudaFailure, ALaunchThatTheDriverRefuses) {
  setting("FAIL", "cuLaunchKernel:1:701");
  EXPECT_EQ(Runner(iotaOf(kCount), cuda()).message(),
            "program 'main': step 1 (transformer.h.0.attn): kernel 'iota': "
            "cuLaunchKernel: fake result 701 (CUDA_ERROR_701)");
}
