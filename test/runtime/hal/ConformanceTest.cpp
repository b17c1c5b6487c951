// What every device must do. Results are compared where the device has any;
// where not, the test still requires that the device accepts the program.
#include "test/runtime/hal/Conformance.h"

#include <algorithm>
#include <numeric>

using namespace tessera;
using namespace tessera::test;

namespace {

TensorT outputTensor(std::string name, ElementType type, std::int64_t count,
                     std::uint64_t offset) {
  return tensor(std::move(name), type, {count}, Role::output, Space::io,
                offset);
}
TensorT inputTensor(std::string name, ElementType type, std::int64_t count,
                    std::uint64_t offset) {
  return tensor(std::move(name), type, {count}, Role::input, Space::io, offset);
}

std::vector<float> iotaOf(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

} // namespace

TEST_P(Conformance, RaggedLaunch) {
  for (const std::int64_t n : {1, 63, 64, 65, 1000, 100'000}) {
    const std::uint64_t bytes = floatBytes(n);
    const auto steps = [&] {
      return std::vector<NodeT>{launch(
          kIota, {instance({arg(Space::io, 0, bytes)}, blocksOf(n), {n})})};
    };
    Runner runner(oneProgram(program(
                      "main", 0, bytes, {},
                      {outputTensor("x", ElementType::f32, n, 0)}, steps())),
                  options());
    ASSERT_TRUE(runner.ok()) << runner.message();
    ASSERT_TRUE(runner->run("main").ok());
    if (!GetParam().noResults) {
      ASSERT_EQ(output<float>(runner.get(), "x", n), iotaOf(n));
    }
  }
  SKIP_WITHOUT_RESULTS();
}

TEST_P(Conformance, EveryBlockRunsExactlyOnce) {
  constexpr std::int64_t blocks = 4001, bytes = 4 * blocks;
  Runner runner(oneProgram(program(
                    "main", 0, bytes, {},
                    {outputTensor("runs", ElementType::i32, blocks, 0)},
                    {fill(arg(Space::io, 0, bytes), 0),
                     launch(kCountRuns,
                            {instance({arg(Space::io, 0, bytes)}, blocks)})})),
                options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  for (int repeat = 0; repeat < GetParam().repeats; ++repeat) {
    ASSERT_TRUE(runner->run("main").ok());
    if (!GetParam().noResults) {
      ASSERT_EQ(output<std::int32_t>(runner.get(), "runs", blocks),
                std::vector<std::int32_t>(blocks, 1));
    }
  }
  SKIP_WITHOUT_RESULTS();
}

TEST_P(Conformance, InputsToOutputsThroughArenaAndInPlace) {
  constexpr std::int64_t n = 300;
  constexpr std::uint64_t bytes = 1200, slot = 1216;
  const auto scale = [&](Space from, std::uint64_t fromOffset, Space to,
                         std::uint64_t toOffset) {
    return launch(kScale, {instance({arg(from, fromOffset, bytes),
                                     arg(to, toOffset, bytes)},
                                    blocksOf(n), {n})});
  };
  Runner runner(
      oneProgram(program("main", slot, 2 * slot,
                         {inputTensor("x", ElementType::f32, n, 0)},
                         {outputTensor("y", ElementType::f32, n, slot)},
                         {scale(Space::io, 0, Space::arena, 0),
                          scale(Space::arena, 0, Space::arena, 0),
                          scale(Space::arena, 0, Space::io, slot)})),
      options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  const std::vector<float> x = iotaOf(n);
  ASSERT_TRUE(runner->writeInput<float>("main", "x", x).ok());
  ASSERT_TRUE(runner->run("main").ok());
  SKIP_WITHOUT_RESULTS();
  const std::vector<float> y = output<float>(runner.get(), "y", n);
  for (std::size_t i = 0; i < n; ++i)
    ASSERT_EQ(y[i], 8 * x[i] + 7);
}

// Four microbatches of 96 floats; two nested loops, both strides used, and an
// inner loop that starts anew in every outer iteration.
TEST_P(Conformance, NestedLoopsWithStrides) {
  constexpr std::int64_t row = 96, rowBytes = 384, outer = 3, inner = 4;
  const std::uint64_t all = outer * inner * rowBytes;
  const auto body = launch(
      kAccumulate,
      {instance({arg(Space::io, 0, rowBytes, {inner * rowBytes, rowBytes}),
                 arg(Space::io, all, rowBytes, {rowBytes, 0})},
                blocksOf(row), {row})},
      "h.*.sum");
  const auto clear = fill(arg(Space::io, all, rowBytes, {rowBytes}), 0);
  Runner runner(
      oneProgram(
          program("main", 0, all + outer * rowBytes,
                  {inputTensor("x", ElementType::f32, outer * inner * row, 0)},
                  {outputTensor("sums", ElementType::f32, outer * row, all)},
                  {loop(outer, {clear, loop(inner, {body})})})),
      options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  const std::vector<float> x = iotaOf(outer * inner * row);
  ASSERT_TRUE(runner->writeInput<float>("main", "x", x).ok());
  for (int repeat = 0; repeat < 2; ++repeat) // addresses return to the start
    ASSERT_TRUE(runner->run("main").ok());
  SKIP_WITHOUT_RESULTS();
  const auto sums = output<float>(runner.get(), "sums", outer * row);
  for (int o = 0; o < outer; ++o)
    for (int i = 0; i < row; ++i) {
      float expected = 0;
      for (int k = 0; k < inner; ++k)
        expected += x[(o * inner + k) * row + i];
      ASSERT_EQ(sums[o * row + i], expected) << o << " " << i;
    }
}

// A GPU's kernel brings them by a tensor map, which is another one in each
// iteration.
TEST_P(Conformance, BoxesOfTensors) {
  constexpr std::int64_t trips = 3, rows = 6, stride = 24, box = 64;
  const std::uint64_t matrix = rows * stride * 2, boxes = 4 * box * 2;
  Runner runner(
      oneProgram(program(
          "main", 0, trips * (matrix + boxes),
          {inputTensor("x", ElementType::i16, trips * rows * stride,
                       trips * boxes)},
          {outputTensor("y", ElementType::i16, trips * 4 * box, 0)},
          {loop(trips, {launch(kTakeBoxes,
                               {instance({arg(Space::io, trips * boxes, matrix,
                                              {matrix}),
                                          arg(Space::io, 0, boxes, {boxes})},
                                         4)})})})),
      options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  std::vector<std::int16_t> x(trips * rows * stride);
  std::iota(x.begin(), x.end(), std::int16_t(1));
  ASSERT_TRUE(runner->writeInput<std::int16_t>("main", "x", x).ok());
  for (int repeat = 0; repeat < 2; ++repeat)
    ASSERT_EQ(runner->run("main").message(), "");
  SKIP_WITHOUT_RESULTS();
  const auto y = output<std::int16_t>(runner.get(), "y", trips * 4 * box);
  for (std::int64_t i = 0; i < trips * 4 * box; ++i) {
    const std::int64_t b = i / box % 4, row = b / 2 * 4 + i % box / 16,
                       column = b % 2 * 16 + i % 16;
    const bool isThere = row < rows && column < 20;
    ASSERT_EQ(y[i],
              isThere ? x[(i / (4 * box) * rows + row) * stride + column] : 0)
        << i;
  }
}

TEST_P(Conformance, ManyInstancesInOneLaunch) {
  // Sizes from empty to many blocks, each with its own place.
  const std::vector<std::int64_t> sizes = {1, 0, 640, 65, 64, 5000, 3, 0, 1};
  std::vector<InstanceT> instances;
  std::vector<TensorT> outputs;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    instances.push_back(instance({arg(Space::io, offset, floatBytes(sizes[i]))},
                                 blocksOf(sizes[i]), {sizes[i]}));
    outputs.push_back(outputTensor("t" + std::to_string(i), ElementType::f32,
                                   sizes[i], offset));
    offset += (floatBytes(sizes[i]) + 63) / 64 * 64;
  }
  Runner runner(oneProgram(program("main", 0, offset, {}, outputs,
                                   {launch(kIota, instances)})),
                options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  ASSERT_TRUE(runner->run("main").ok());
  SKIP_WITHOUT_RESULTS();
  for (std::size_t i = 0; i < sizes.size(); ++i)
    ASSERT_EQ(output<float>(runner.get(), "t" + std::to_string(i), sizes[i]),
              iotaOf(sizes[i]))
        << i;
}

TEST_P(Conformance, ScratchIsPrivateAndAligned) {
  constexpr std::int64_t n = 64 * 500 + 17;
  const std::uint64_t slot = (floatBytes(n) + 63) / 64 * 64;
  Runner runner(
      oneProgram(program(
          "main", slot, slot, {}, {outputTensor("y", ElementType::f32, n, 0)},
          {launch(kIota, {instance({arg(Space::arena, 0, floatBytes(n))},
                                   blocksOf(n), {n})}),
           launch(kReverseBlocks,
                  {instance({arg(Space::arena, 0, floatBytes(n)),
                             arg(Space::io, 0, floatBytes(n))},
                            blocksOf(n), {n})})})),
      options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  for (int repeat = 0; repeat < 20; ++repeat)
    ASSERT_TRUE(runner->run("main").ok());
  SKIP_WITHOUT_RESULTS();
  EXPECT_GE(runner->memory().scratch, GetParam().threads * 64 * sizeof(float));
  const auto y = output<float>(runner.get(), "y", n);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t first = i / 64 * 64, last = std::min(first + 64, n) - 1;
    ASSERT_EQ(y[i], static_cast<float>(last - (i - first))) << i;
  }
}

TEST_P(Conformance, EveryThreadHasItsOwnScratch) {
  if (!GetParam().hasScratch)
    GTEST_SKIP() << "kernels of this device have no scratch";
  const std::int64_t threads = std::max(1u, GetParam().threads);
  const auto bytes = static_cast<std::uint64_t>(8 * threads);
  Runner runner(
      oneProgram(program(
          "main", 64, bytes, {},
          {outputTensor("scratch", ElementType::i64, threads, 0)},
          {fill(arg(Space::arena, 0, 8), 0),
           launch(
               kMeet,
               {instance({arg(Space::arena, 0, 8), arg(Space::io, 0, bytes)},
                         static_cast<std::uint64_t>(threads), {threads})})})),
      options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  ASSERT_TRUE(runner->run("main").ok());
  SKIP_WITHOUT_RESULTS();
  auto scratch = output<std::int64_t>(runner.get(), "scratch", threads);
  std::sort(scratch.begin(), scratch.end());
  for (std::size_t i = 0; i < scratch.size(); ++i) {
    EXPECT_EQ(scratch[i] % 64, 0);
    if (i > 0) {
      EXPECT_GE(scratch[i] - scratch[i - 1], 1000);
    }
  }
}

TEST_P(Conformance, Copies) {
  // Larger than a block of the parallel copy, ragged, unaligned; then a copy
  // onto itself, shifted, as memmove does it.
  constexpr std::int64_t n = (3 << 16) + 19;
  constexpr std::uint64_t bytes = 4 * n, slot = (bytes + 127) / 64 * 64;
  Runner runner(
      oneProgram(program(
          "main", 2 * slot, slot, {},
          {outputTensor("y", ElementType::u8, bytes, 0)},
          {fill(arg(Space::arena, slot, slot), 0),
           launch(kIota,
                  {instance({arg(Space::arena, 0, bytes)}, blocksOf(n), {n})}),
           copy(arg(Space::arena, 0, bytes), arg(Space::arena, slot, bytes)),
           copy(arg(Space::arena, slot, bytes),
                arg(Space::arena, slot + 5, bytes)),
           copy(arg(Space::arena, slot, bytes), arg(Space::io, 0, bytes))})),
      options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  ASSERT_TRUE(runner->run("main").ok());
  SKIP_WITHOUT_RESULTS();
  const auto y = output<std::uint8_t>(runner.get(), "y", bytes);
  const std::vector<float> x = iotaOf(n);
  const auto original = std::as_bytes(std::span(x));
  for (std::uint64_t i = 0; i < bytes; ++i)
    ASSERT_EQ(y[i], static_cast<std::uint8_t>(original[i < 5 ? i : i - 5]))
        << i;
}

TEST_P(Conformance, Fills) {
  constexpr std::uint64_t bytes = (3 << 18) + 77, first = 1001,
                          last = (2 << 18) + 3;
  Runner runner(
      oneProgram(program("main", 0, bytes, {},
                         {outputTensor("y", ElementType::u8, bytes, 0)},
                         {fill(arg(Space::io, 0, bytes), 0xaa),
                          fill(arg(Space::io, first, last - first), 0x11)})),
      options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  ASSERT_TRUE(runner->run("main").ok());
  SKIP_WITHOUT_RESULTS();
  const auto y = output<std::uint8_t>(runner.get(), "y", bytes);
  for (std::uint64_t i = 0; i < bytes; ++i)
    ASSERT_EQ(y[i], i >= first && i < last ? 0x11 : 0xaa) << i;
}

TEST_P(Conformance, StatePersistsAcrossPrograms) {
  constexpr std::int64_t n = 200;
  ArtifactT artifact = oneProgram(
      program("main", 0, 832, {}, {outputTensor("y", ElementType::f32, n, 0)},
              {launch(kScale, {instance({arg(Space::state, 64, 800),
                                         arg(Space::state, 64, 800)},
                                        blocksOf(n), {n})}),
               copy(arg(Space::state, 64, 800), arg(Space::io, 0, 800))}),
      1024);
  share(artifact).state = owned<TensorT>(
      {tensor("w", ElementType::f32, {n}, Role::parameter, Space::state, 64)});
  cpu(artifact).programs.push_back(std::make_unique<ProgramT>(program(
      "init", 0, 0, {}, {},
      {launch(kIota,
              {instance({arg(Space::state, 64, 800)}, blocksOf(n), {n})})})));
  Runner runner(artifact, options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  ASSERT_EQ(runner->state().size(), 1u);
  EXPECT_EQ(runner->state()[0].name, "w");
  EXPECT_EQ(runner->state()[0].elements(), 200u);
  for (const char *name : {"init", "main", "main"})
    ASSERT_TRUE(runner->run(name).ok());
  SKIP_WITHOUT_RESULTS();
  const auto y = output<float>(runner.get(), "y", n);
  for (int i = 0; i < n; ++i)
    ASSERT_EQ(y[i], 4.0f * static_cast<float>(i) + 3);
  // The host's view of the same bytes, whole and in part.
  std::vector<float> w(n);
  ASSERT_TRUE(
      runner->readState("w", std::as_writable_bytes(std::span(w))).ok());
  EXPECT_EQ(w, y);
  const float seven = 7;
  ASSERT_TRUE(
      runner->writeState("w", std::as_bytes(std::span(&seven, 1)), 4 * 10)
          .ok());
  ASSERT_TRUE(runner->run("main").ok());
  EXPECT_EQ(output<float>(runner.get(), "y", n)[10], 15.0f);
}

TEST_P(Conformance, BuffersStartAtZero) {
  constexpr std::int64_t n = 50'000;
  Runner runner(oneProgram(program("main", floatBytes(n), floatBytes(n), {},
                                   {outputTensor("y", ElementType::f32, n, 0)},
                                   {copy(arg(Space::state, 0, floatBytes(n)),
                                         arg(Space::io, 0, floatBytes(n)))}),
                           floatBytes(n)),
                options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  ASSERT_TRUE(runner->run("main").ok());
  EXPECT_EQ(output<float>(runner.get(), "y", n), std::vector<float>(n, 0.0f));
}

TEST_P(Conformance, PlannedBytesAddUp) {
  ArtifactT artifact = oneProgram(program("main", 100, 200, {}, {}, {}), 1000);
  cpu(artifact).programs.push_back(
      std::make_unique<ProgramT>(program("other", 5000, 50, {}, {}, {})));
  Runner runner(artifact, options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  const hal::MemoryPlan plan = runner->memory();
  EXPECT_EQ(plan.state, 1000u);
  EXPECT_EQ(plan.arena, 5000u); // shared, so the larger one
  EXPECT_EQ(plan.io, 250u);
  EXPECT_EQ(plan.peak(), 6250 + plan.scratch);
  hal::SessionOptions onlyMain = options();
  onlyMain.programs = {"main"};
  Runner small(artifact, onlyMain);
  ASSERT_TRUE(small.ok()) << small.message();
  EXPECT_EQ(small->memory().arena, 100u);
  EXPECT_EQ(small->memory().io, 200u);
  EXPECT_EQ(small->run("other").message(),
            "test.tsr: program 'other' was not prepared in this session");
}

TEST_P(Conformance, ErrorsNameWhatIsThere) {
  ArtifactT artifact =
      oneProgram(program("main", 0, 64,
                         {inputTensor("x", ElementType::f32, 4, 0)}, {}, {}),
                 64);
  share(artifact).state = owned<TensorT>(
      {tensor("w", ElementType::f32, {16}, Role::parameter, Space::state, 0)});
  Runner runner(artifact, options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  std::vector<float> four(4), five(5);
  std::vector<std::byte> much(65);
  EXPECT_EQ(runner->run("score").message(),
            "test.tsr: no program 'score': it has main");
  EXPECT_EQ(runner->writeInput<float>("main", "y", four).message(),
            "program 'main' has no input 'y': it has x");
  EXPECT_EQ(runner->writeInput<float>("main", "x", five).message(),
            "program 'main': input 'x' of f32[4] has 16 bytes, got 20");
  EXPECT_EQ(runner->readScalar<float>("main", "loss").message(),
            "program 'main' has no output 'loss': it has none");
  EXPECT_EQ(runner->readState("v", much).message(),
            "test.tsr: no state tensor 'v'");
  EXPECT_EQ(runner->readState("w", much).message(),
            "65 bytes at 0 leave w of 64 bytes");
  EXPECT_EQ(runner->writeState("w", std::span(much).first(8), ~0ull).message(),
            "8 bytes at 18446744073709551615 leave w of 64 bytes");
}

TEST_P(Conformance, RecordRefusesSmallBuffers) {
  ArtifactT artifact = oneProgram(program("main", 64, 64, {}, {}, {}), 64);
  share(artifact).devices.push_back(
      std::make_unique<DeviceCodeT>(cudaCode(cpu(artifact))));
  const AlignedBytes bytes(pack(artifact));
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "test.tsr");
  ASSERT_TRUE(reader.ok()) << reader.message();
  auto device =
      hal::createDevice(GetParam().device, {GetParam().threads, "", 0});
  ASSERT_TRUE(device.ok()) << device.message();
  const auto code = (*device)->choose(*reader);
  ASSERT_TRUE(code.ok()) << code.message();
  auto executable = (*device)->load(*reader, **code);
  ASSERT_TRUE(executable.ok()) << executable.message();
  auto enough = (*device)->allocate(64, "enough");
  auto small = (*device)->allocate(63, "too little");
  ASSERT_TRUE(enough.ok() && small.ok());
  hal::Buffer *good = enough->get(), *bad = small->get();
  const auto record = [&](const hal::Bindings &bindings) {
    return (*device)
        ->record(**executable, *findProgram(**code, "main"), bindings, {})
        .message();
  };
  EXPECT_EQ(record({good, good, good}), "");
  EXPECT_EQ(record({bad, good, good}),
            "a program needs 64 bytes of state, but 63 are bound");
  EXPECT_EQ(record({good, bad, good}),
            "a program needs 64 bytes of arena, but 63 are bound");
  EXPECT_EQ(record({good, good, nullptr}),
            "a program needs 64 bytes of io, but 0 are bound");
  std::vector<std::byte> two(2);
  EXPECT_EQ(good->write(63, two).message(),
            "2 bytes at 63 leave enough of 64 bytes");
  EXPECT_EQ(good->read(63, two).message(),
            "2 bytes at 63 leave enough of 64 bytes");
}

INSTANTIATE_TEST_SUITE_P(Devices, Conformance, testing::ValuesIn(kDevices),
                         [](const auto &info) {
                           return std::string(info.param.label);
                         });
