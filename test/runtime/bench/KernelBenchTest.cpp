// The kernel benchmark measures the right launches on the right data; the times
// themselves decide nothing here.
#include "runtime/bench/KernelBench.h"
#include "runtime/bench/KernelPlan.h"
#include "runtime/hal/Session.h"
#include "test/runtime/hal/Conformance.h"
#include "test/runtime/hal/cuda/FakeCuda.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

namespace tessera::test {
namespace {

constexpr std::int64_t kSize = 96, kTrips = 4;
constexpr std::uint64_t kBytes = 384, kY = kTrips * kBytes, kSum = kY + kBytes;

TensorT floats(std::string name, std::int64_t count, Role role,
               std::uint64_t offset) {
  return tensor(std::move(name), ElementType::f32, {count}, role, Space::io,
                offset);
}

// y = 2 x[0] + 1, then sum += x[i] for four rows, then y = 2 y + 1 and, of
// another size, its beginning once more.
ArtifactT sums() {
  const auto scale = [](std::uint64_t from, std::int64_t size) {
    const std::uint64_t bytes = floatBytes(size);
    return launch(kScale, {instance({arg(Space::io, from, bytes),
                                     arg(Space::io, kY, bytes)},
                                    blocksOf(size), {size})});
  };
  ArtifactT artifact = oneProgram(program(
      "main", 0, kSum + kBytes, {floats("x", kTrips * kSize, Role::input, 0)},
      {floats("y", kSize, Role::output, kY),
       floats("sum", kSize, Role::output, kSum)},
      {fill(arg(Space::io, kSum, kBytes), 0), scale(0, kSize),
       loop(kTrips, {launch(kAccumulate,
                            {instance({arg(Space::io, 0, kBytes, {kBytes}),
                                       arg(Space::io, kSum, kBytes, {0})},
                                      blocksOf(kSize), {kSize})},
                            "h.*.sum")}),
       scale(kY, kSize), scale(kY, 1)}));
  artifact.model_config = R"({"vocab_size": 7})";
  for (auto &kernel : cpu(artifact).kernels) {
    kernel->flops = 1'000;
    kernel->bytes = 2'000;
  }
  share(artifact).devices.push_back(
      std::make_unique<DeviceCodeT>(cudaCode(cpu(artifact))));
  return artifact;
}

class KernelBench : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override { FakeCuda::get().reset(); }
  void TearDown() override {
    EXPECT_EQ(FakeCuda::get().leaks(), "");
    EXPECT_EQ(FakeCuda::get().misuse(), "");
  }
  StatusOr<bench::KernelBenchResult>
  measure(bench::KernelBenchOptions options = {}) {
    options.device = GetParam();
    options.program = "main";
    options.repeats = 3;
    options.flushBytes = 1 << 20;
    return bench::benchKernels(*reader, options);
  }

  AlignedBytes bytes{pack(sums())};
  StatusOr<ArtifactReader> reader =
      ArtifactReader::fromBytes(bytes.span(), "test.tsr");
};

TEST_P(KernelBench, ThePlanDoesTheProgramsWorkWithOneLaunchOfEachManyTimes) {
  hal::SessionOptions options;
  options.device = GetParam();
  auto session = hal::Session::open(*reader, options);
  ASSERT_TRUE(session.ok()) << session.message();
  const bench::KernelPlan plan = bench::planKernels(
      (*session)->code(), *findProgram((*session)->code(), "main"),
      {"", /*repeats=*/8, /*flushBytes=*/4096});
  ASSERT_EQ(plan.problems.size(), 3u);
  const std::uint64_t launches[] = {2, kTrips, 1}, repeats[] = {8, 8, 8};
  const std::uint32_t steps[] = {2, 4, 7};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(plan.problems[i].launches, launches[i]) << i;
    EXPECT_EQ(plan.problems[i].repeats, repeats[i]) << i;
    EXPECT_EQ(plan.problems[i].step, steps[i]) << i;
  }
  EXPECT_EQ(plan.problems[1].origin, "h.*.sum");
  EXPECT_EQ(plan.events, 1u + 3 * 2 * 8 + 1);

  auto io = (*session)->allocate(plan.program->io_bytes(), "io");
  ASSERT_TRUE(io.ok()) << io.message();
  std::vector<float> x(kTrips * kSize), y(kSize), sum(kSize);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i % 11);
  ASSERT_TRUE((*io)->write(0, std::as_bytes(std::span(x))).ok());
  hal::RecordOptions profiled;
  profiled.profile = true;
  profiled.traceEvents = plan.events;
  auto list = (*session)->record(*plan.program, **io, profiled);
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_TRUE((*list)->run().ok());
  const hal::Profile &profile = *(*list)->profile();
  EXPECT_EQ(profile.events().size(), plan.events);
  for (const bench::Problem &problem : plan.problems) {
    EXPECT_EQ(profile.steps()[problem.step].runs, problem.repeats);
    EXPECT_EQ(profile.steps()[problem.step].what,
              toView(problem.kernel->name()));
    EXPECT_EQ(profile.steps()[problem.step - 1].what, "fill");
  }
  ASSERT_TRUE((*io)->read(kY, std::as_writable_bytes(std::span(y))).ok());
  ASSERT_TRUE((*io)->read(kSum, std::as_writable_bytes(std::span(sum))).ok());
  for (std::int64_t i = 0; i < kSize; ++i) {
    float expected = 0; // 8 runs over 4 rows: each is added twice
    for (std::int64_t row = 0; row < kTrips; ++row)
      expected += 2 * x[row * kSize + i];
    ASSERT_EQ(sum[i], expected) << i;
    float scaled = 2 * (2 * x[i] + 1) + 1; // once in the program's own place
    for (int run = 0; run < (i == 0 ? 8 : 0); ++run)
      scaled = 2 * scaled + 1; // in place, on the first element alone
    ASSERT_EQ(y[i], scaled) << i;
  }
}

TEST_P(KernelBench, EveryKernelWithItsRoof) {
  const auto result = measure();
  ASSERT_TRUE(result.ok()) << result.message();
  const bool emulated = GetParam() == std::string_view("cuda-emu");
  EXPECT_EQ(result->emulated, emulated);
  EXPECT_EQ(result->copyBytesPerSecond > 0, !emulated);
  EXPECT_EQ(result->kernels.size(), 3u);
  double last = 1e9;
  for (const bench::KernelTime &kernel : result->kernels) {
    EXPECT_LE(kernel.all(), last);
    last = kernel.all();
    EXPECT_EQ(kernel.flops, 1'000);
    EXPECT_EQ(kernel.bytes, 2'000);
    EXPECT_GT(kernel.seconds, 0);
    const double memory =
        emulated ? 0 : kernel.bytes / result->copyBytesPerSecond;
    EXPECT_GE(kernel.roofSeconds, memory);
    EXPECT_EQ(kernel.boundByMemory, kernel.roofSeconds == memory);
  }
  const std::string table = bench::kernelBenchTable(*result);
  EXPECT_EQ(table.find("these times say nothing of a GPU") != table.npos,
            emulated)
      << table;
  const auto json = nlohmann::json::parse(bench::kernelBenchJson(*result));
  EXPECT_EQ(json["kernels"].size(), 3u);
  EXPECT_EQ(json["emulated"], emulated);
  EXPECT_EQ(json["program"], "main");
}

TEST_P(KernelBench, FilterTakesSomeAndNamesNone) {
  bench::KernelBenchOptions options;
  options.filter = "accum";
  const auto result = measure(options);
  ASSERT_TRUE(result.ok()) << result.message();
  ASSERT_EQ(result->kernels.size(), 1u);
  EXPECT_EQ(result->kernels[0].name, "accumulate");
  EXPECT_EQ(result->kernels[0].launches, 4u);
  options.filter = "matmul";
  EXPECT_EQ(measure(options).message(),
            "no kernel of program 'main' has 'matmul' in its name; tessera "
            "inspect --kernels lists them");
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelBench,
                         testing::Values("cpu", "cuda-emu", "cuda:0"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

TEST(KernelBenchDevice, IsOneThatThereAreKernelsFor) {
  FakeCuda::get().reset();
  bench::KernelBenchOptions options;
  options.program = "main";
  options.repeats = 1;
  options.flushBytes = 1 << 20;
  ArtifactT artifact = sums();
  for (const char *expected : {"cuda:", "cpu:"}) {
    AlignedBytes bytes(pack(artifact));
    const auto reader = ArtifactReader::fromBytes(bytes.span(), "test.tsr");
    const auto result = bench::benchKernels(*reader, options);
    ASSERT_TRUE(result.ok()) << result.message();
    EXPECT_TRUE(result->target.starts_with(expected)) << result->target;
    share(artifact).devices.pop_back();
  }
}

TEST(KernelBenchErrors, TheNullDeviceHasNoTimes) {
  AlignedBytes bytes(pack(sums()));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "test.tsr");
  bench::KernelBenchOptions options;
  options.device = "null";
  options.program = "main";
  EXPECT_EQ(bench::benchKernels(*reader, options).message(),
            "the null device runs no kernels; choose another --device");
}

TEST(Chips, AreFoundByTheDriversNames) {
  const hardware::Chip *chip =
      hardware::findChip("cuda:0: NVIDIA H200, compute");
  ASSERT_TRUE(chip);
  EXPECT_EQ(chip->peaks.bf16, 989e12);
  EXPECT_EQ(chip->peaks.fp32, 67e12);
  EXPECT_EQ(hardware::findChip("NVIDIA H100 PCIe")->peaks.tf32, 378e12);
  EXPECT_EQ(hardware::findChip("NVIDIA A100-SXM4-80GB")->name, "A100");
  EXPECT_EQ(hardware::findChip("GeForce 256"), nullptr);
}

} // namespace
} // namespace tessera::test
