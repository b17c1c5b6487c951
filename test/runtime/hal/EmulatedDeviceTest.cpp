// What only the emulated GPU does: choosing among architectures, seeds, poison,
// bounds, and errors that say where in the program they happened.
#include "test/runtime/hal/Conformance.h"

#include <cstdlib>

using namespace tessera;
using namespace tessera::test;

namespace {

hal::SessionOptions emulated(std::uint64_t seed = 0,
                             std::string device = "cuda-emu") {
  hal::SessionOptions options;
  options.device = std::move(device);
  options.deviceOptions.emulatorSeed = seed;
  return options;
}

ArtifactT withGpu(ArtifactT artifact) {
  share(artifact).devices.push_back(
      std::make_unique<DeviceCodeT>(emulatedCode(cpu(artifact))));
  return artifact;
}
DeviceCodeT &gpu(ArtifactT &artifact) { return *share(artifact).devices[1]; }

ProgramT iotaProgram(std::int64_t n, std::uint64_t argumentBytes) {
  return program(
      "main", 0, floatBytes(n), {},
      {tensor("y", ElementType::f32, {n}, Role::output, Space::io, 0)},
      {fill(arg(Space::io, 0, floatBytes(n)), 0),
       launch(kIota,
              {instance({arg(Space::io, 0, argumentBytes)}, blocksOf(n), {n})},
              "transformer.h.0.attn")});
}

/// Copies the arena, which nobody has written, to an output.
ProgramT peek(std::uint64_t bytes) {
  return program(
      "main", bytes, bytes, {},
      {tensor("y", ElementType::u8, {static_cast<std::int64_t>(bytes)},
              Role::output, Space::io, 0)},
      {copy(arg(Space::arena, 0, bytes), arg(Space::io, 0, bytes)),
       fill(arg(Space::arena, 0, bytes), 7)});
}

} // namespace

TEST(EmulatedDevice, SaysWhichCodeItRuns) {
  Runner runner(oneProgram(iotaProgram(100, 400)), emulated(5));
  ASSERT_TRUE(runner.ok()) << runner.message();
  EXPECT_EQ(runner->target(), "cuda-emu:sm_90a");
  EXPECT_EQ(runner->code().device()->str(), "cuda:sm_90a");
  EXPECT_EQ(runner->device().describe(), "a GPU emulated on the host, seed 5");
}

TEST(EmulatedDevice, ChoosesTheArchitectureAskedFor) {
  ArtifactT artifact = withGpu(oneProgram(iotaProgram(100, 400)));
  auto hopper = std::make_unique<DeviceCodeT>(gpu(artifact));
  hopper->device = "cuda:sm_90a";
  hopper->code[0]->target = "cuda-emu:sm_90a";
  share(artifact).devices.push_back(std::move(hopper));
  for (const auto &[device, target] :
       {std::pair("cuda-emu", "cuda-emu:sm_80"),
        std::pair("cuda-emu:sm_80", "cuda-emu:sm_80"),
        std::pair("cuda-emu:sm_90a", "cuda-emu:sm_90a")}) {
    Runner runner(artifact, emulated(0, device));
    ASSERT_TRUE(runner.ok()) << runner.message();
    EXPECT_EQ(runner->target(), target);
  }
  EXPECT_EQ(Runner(artifact, emulated(0, "cuda-emu:sm_75")).message(),
            "unknown device 'cuda-emu:sm_75': code is compiled for cpu, "
            "cuda:sm_80, cuda:sm_90a");
  EXPECT_EQ(Runner(artifact, emulated(0, "null:cuda:sm_75")).message(),
            "unknown device 'null:cuda:sm_75': code is compiled for cpu, "
            "cuda:sm_80, cuda:sm_90a");
}

TEST(EmulatedDevice, ArtifactsWithoutCodeForIt) {
  ArtifactT artifact = oneProgram(iotaProgram(100, 400));
  artifact.rebuild_command = "tessera compile m --target cpu:avx2 -o FILE";
  EXPECT_EQ(Runner(artifact, emulated(0, "cuda-emu:sm_80")).message(),
            "test.tsr: no code for the device 'cuda-emu:sm_80': the artifact "
            "has cpu; compile it for that too: tessera compile m --target "
            "cpu:avx2,cuda:sm_80 -o FILE");
  artifact = withGpu(std::move(artifact));
  gpu(artifact).code[0]->target = "cuda:sm_80";
  EXPECT_EQ(Runner(artifact, emulated()).message(),
            "test.tsr: its kernels for cuda:sm_80 were compiled without those "
            "for the emulated GPU; compile it again without --no-emulate: "
            "tessera compile m --target cpu:avx2 -o FILE");
  gpu(artifact).code[0]->target = "cuda-emu:sm_80";
  gpu(artifact).kernels[kScale]->name = "absent";
  EXPECT_EQ(Runner(artifact, emulated()).message(),
            "test.tsr: code object 'cuda-emu:sm_80': 'absent_emulated' is "
            "missing from it");
  hal::SessionOptions null = emulated(0, "null:cuda:sm_90a");
  EXPECT_NE(
      Runner(artifact, null)
          .message()
          .find("no code for the device 'null:cuda:sm_90a': the artifact has "
                "cpu, cuda:sm_80"),
      std::string::npos);
  null.device = "null:cuda:sm_80";
  EXPECT_TRUE(Runner(artifact, null).ok());
  share(artifact).devices.erase(share(artifact).devices.begin());
  EXPECT_NE(
      Runner(artifact, {})
          .message()
          .find("no code for the device 'cpu': the artifact has cuda:sm_80; "
                "compile it for that too"),
      std::string::npos);
}

TEST(EmulatedDevice, AccessesOutsideOfTheArgumentAreErrors) {
  Runner runner(oneProgram(iotaProgram(100, 396)), emulated());
  ASSERT_TRUE(runner.ok()) << runner.message();
  const std::string error = runner->run("main").message();
  EXPECT_EQ(error.find("program 'main': step 1 (transformer.h.0.attn): kernel "
                       "'iota', block (1, 0, 0)"),
            0u)
      << error;
  EXPECT_NE(error.find("write of 4 bytes at offset 396 of buffer 0, which has "
                       "396 bytes"),
            std::string::npos)
      << error;
}

TEST(EmulatedDevice, TheArenaIsPoisonedBeforeEachRun) {
  Runner runner(oneProgram(peek(640)), emulated());
  ASSERT_TRUE(runner.ok()) << runner.message();
  for (int repeat = 0; repeat < 2; ++repeat) {
    ASSERT_TRUE(runner->run("main").ok());
    std::vector<std::uint8_t> bytes(640);
    ASSERT_TRUE(
        runner
            ->readOutput("main", "y", std::as_writable_bytes(std::span(bytes)))
            .ok());
    EXPECT_EQ(bytes, std::vector<std::uint8_t>(640, 0xff));
  }
}

TEST(EmulatedDevice, FindsWhatIsNotFinite) {
  hal::SessionOptions options = emulated();
  options.recordOptions.checkFinite = true;
  options.recordOptions.profile = true;
  const auto y =
      tensor("y", ElementType::f32, {128}, Role::output, Space::io, 0);
  Runner runner(
      oneProgram(program(
          "main", 512, 512, {}, {y},
          {launch(kIota, {instance({arg(Space::arena, 0, 512)}, 2, {128})},
                  "a"),
           launch(kNanBelowFive,
                  {instance({arg(Space::arena, 0, 512), arg(Space::io, 0, 512)},
                            2, {128})},
                  "loss")})),
      options);
  ASSERT_TRUE(runner.ok()) << runner.message();
  EXPECT_EQ(runner->run("main").message(),
            "program 'main': step 1 (loss): kernel 'nan_below_five' wrote NaN "
            "at element 0 of argument 1 (f32), instance 0");
  ASSERT_EQ(runner->profiles().size(), 1u);
  EXPECT_EQ(runner->profiles()[0]->steps()[0].runs, 1u);
  EXPECT_GT(runner->profiles()[0]->steps()[0].nanoseconds, 0u);
}

TEST(EmulatedDevice, TheSeedComesFromTheEnvironment) {
  const ArtifactT artifact = oneProgram(iotaProgram(100, 400));
  ::setenv("TESSERA_EMU_SEED", "77", 1);
  EXPECT_EQ(Runner(artifact, emulated())->device().describe(),
            "a GPU emulated on the host, seed 77");
  EXPECT_EQ(Runner(artifact, emulated(3))->device().describe(),
            "a GPU emulated on the host, seed 3");
  for (const char *wrong : {"", "x", "7x", "-1", "99999999999999999999"}) {
    ::setenv("TESSERA_EMU_SEED", wrong, 1);
    EXPECT_EQ(Runner(artifact, emulated()).message(),
              "TESSERA_EMU_SEED is '" + std::string(wrong) +
                  "'; expected an integer of at most 64 bits");
  }
  ::unsetenv("TESSERA_EMU_SEED");
}

TEST(EmulatedDevice, TheNumericsComeFromTheEnvironment) {
  const ArtifactT artifact = oneProgram(iotaProgram(100, 400));
  ::setenv("TESSERA_EMU_NUMERICS", "hardware:5", 1);
  EXPECT_EQ(Runner(artifact, emulated(3))->device().describe(),
            "a GPU emulated on the host, seed 3, numerics of hardware, seed 5");
  ::setenv("TESSERA_EMU_NUMERICS", "fast", 1);
  EXPECT_EQ(Runner(artifact, emulated()).message(),
            "TESSERA_EMU_NUMERICS is 'fast'; expected exact, hardware or "
            "hardware:SEED, an integer of at most 64 bits");
  hal::SessionOptions options = emulated();
  options.deviceOptions.emulatorNumerics = "exact";
  EXPECT_EQ(Runner(artifact, options)->device().describe(),
            "a GPU emulated on the host, seed 0");
  ::unsetenv("TESSERA_EMU_NUMERICS");
}
