// Which code a GPU takes, and what is checked of it before anything runs.
#include "runtime/hal/cuda/Code.h"
#include "test/runtime/hal/cuda/CudaTest.h"

using namespace tessera;
using namespace tessera::test;
using hal::cuda::fitness;
using hal::cuda::parseArchitecture;

namespace {

class CudaCode : public CudaTest {
protected:
  /// "" or why the artifact cannot be opened on the fake GPU.
  static std::string openError(const ArtifactT &artifact) {
    return Runner(artifact, cuda()).message();
  }
};

/// The artifact for one more architecture: the same code, called `target`.
void addCode(ArtifactT &artifact, const std::string &device,
             const std::string &target, const std::string &bytes) {
  DeviceCodeT code = gpu(artifact);
  code.device = device;
  code.code = owned<CodeObjectT>({codeObject(target, {}, bytes)});
  share(artifact).devices.push_back(
      std::make_unique<DeviceCodeT>(std::move(code)));
}

/// PTX as the fake driver compiles it.
std::string fakePtx() {
  return ".version 8.0\n// object: " TESSERA_TEST_GPU_KERNELS "\n";
}

} // namespace

TEST(CudaArchitecture, Parses) {
  const auto sm = [](std::string_view text) {
    return parseArchitecture(text, "cuda:sm_");
  };
  using hal::cuda::Architecture;
  EXPECT_EQ(sm("cuda:sm_80"), (Architecture{80, 0}));
  EXPECT_EQ(sm("cuda:sm_90a"), (Architecture{90, 'a'}));
  EXPECT_EQ(sm("cuda:sm_120f"), (Architecture{120, 'f'}));
  for (const char *wrong : {"", "cuda:sm_", "cuda:sm_a", "cuda:sm_80b",
                            "cuda:sm_90aa", "cuda:sm_-8", "cuda:sm_99999999999",
                            "ptx:compute_80", "cuda-emu:sm_80", "cpu:avx2"})
    EXPECT_FALSE(sm(wrong)) << wrong;
}

TEST(CudaArchitecture, MachineCodeRunsOnItsMajorVersionFromItsMinorOn) {
  for (const unsigned chip : {80, 86, 87, 89})
    EXPECT_GT(fitness("cuda:sm_80", chip), 0u) << chip;
  for (const unsigned chip : {70, 75, 90, 100, 120})
    EXPECT_EQ(fitness("cuda:sm_80", chip), 0u) << chip;
  EXPECT_EQ(fitness("cuda:sm_86", 80), 0u);
  EXPECT_GT(fitness("cuda:sm_86", 89), fitness("cuda:sm_80", 89));
}

TEST(CudaArchitecture, LettersBindToOneChipOrItsFamily) {
  EXPECT_GT(fitness("cuda:sm_90a", 90), fitness("cuda:sm_90", 90));
  EXPECT_EQ(fitness("cuda:sm_100a", 103), 0u);
  EXPECT_GT(fitness("cuda:sm_100f", 103), fitness("cuda:sm_100", 103));
  EXPECT_EQ(fitness("cuda:sm_100f", 120), 0u);
  EXPECT_EQ(fitness("ptx:compute_90a", 100), 0u);
  EXPECT_EQ(fitness("ptx:compute_100f", 120), 0u);
}

TEST(CudaArchitecture, PtxRunsOnAllThatIsLater) {
  for (const unsigned chip : {80, 90, 120})
    EXPECT_GT(fitness("ptx:compute_80", chip), 0u) << chip;
  EXPECT_EQ(fitness("ptx:compute_80", 75), 0u);
  EXPECT_GT(fitness("ptx:compute_90", 100), fitness("ptx:compute_80", 100));
  EXPECT_GT(fitness("cuda:sm_80", 89), fitness("ptx:compute_89", 89));
  for (const char *other : {"cpu:avx2", "cuda-emu:sm_80", "ptx:sm_80", ""})
    EXPECT_EQ(fitness(other, 80), 0u) << other;
}

TEST_F(CudaCode, TakesWhatFitsBest) {
  ArtifactT artifact = withCuda(oneProgram(iotaProgram(100)));
  addCode(artifact, "cuda:sm_90a", "cuda:sm_90a", emulatedObject());
  gpu(artifact).code.push_back(std::make_unique<CodeObjectT>(
      codeObject("ptx:compute_80", {}, fakePtx())));
  for (const auto &[capability, device, target] :
       {std::tuple("80", "cuda:sm_80", "cuda:sm_80"),
        std::tuple("89", "cuda:sm_80", "cuda:sm_80"),
        std::tuple("90", "cuda:sm_90a", "cuda:sm_90a"),
        std::tuple("100", "cuda:sm_80", "ptx:compute_80")}) {
    setting("CAPABILITY", capability);
    Runner runner(artifact, cuda());
    ASSERT_TRUE(runner.ok()) << runner.message();
    EXPECT_EQ(runner->code().device()->str(), device);
    EXPECT_EQ(runner->target(), target);
    ASSERT_TRUE(runner->run("main").ok());
    std::vector<float> y(100);
    ASSERT_TRUE(
        runner->readOutput("main", "y", std::as_writable_bytes(std::span(y)))
            .ok());
    EXPECT_EQ(y[99], 99);
  }
}

TEST_F(CudaCode, NothingFits) {
  const ArtifactT artifact = withCuda(oneProgram(iotaProgram(100)));
  setting("CAPABILITY", "90");
  EXPECT_EQ(openError(artifact),
            "test.tsr: no code for the device 'cuda:0, Fake GPU of compute "
            "capability 9.0': the artifact has cpu, cuda:sm_80; compile it for "
            "that too: tessera compile models/specs/test --target "
            "cpu,cuda:sm_90a -o test.tsr");
  setting("CAPABILITY", "75");
  EXPECT_EQ(openError(artifact),
            "cuda:0, Fake GPU of compute capability 7.5: kernels need compute "
            "capability 8.0 or later");
}

TEST_F(CudaCode, KernelsInObjectsOfTheirOwn) {
  ArtifactT artifact = withCuda(oneProgram(iotaProgram(100)));
  DeviceCodeT &code = gpu(artifact);
  code.code.pop_back();
  for (std::uint32_t i = 0; i < code.kernels.size(); ++i) {
    CodeObjectT object = codeObject("cuda:sm_80", {}, emulatedObject());
    object.kernels = {i};
    code.code.push_back(std::make_unique<CodeObjectT>(std::move(object)));
  }
  Runner runner(artifact, cuda());
  ASSERT_TRUE(runner.ok()) << runner.message();
  EXPECT_EQ(fake.calls("cuModuleLoadDataEx"), code.kernels.size());
  EXPECT_EQ(fake.calls("cuModuleGetFunction"), code.kernels.size());
  EXPECT_TRUE(runner->run("main").ok());
}

TEST_F(CudaCode, CodeThatIsNone) {
  ArtifactT artifact = withCuda(oneProgram(iotaProgram(100)));
  CodeObjectT &object = *gpu(artifact).code.back();
  const auto set = [&](std::string_view bytes) {
    object.elf.assign(bytes.begin(), bytes.end());
  };
  set("no cubin");
  EXPECT_EQ(openError(artifact),
            "test.tsr: code object 'cuda:sm_80': cuModuleLoadDataEx: fake "
            "result 200 (CUDA_ERROR_200); the driver is for CUDA 13.0: if the "
            "code was compiled with a later one, update the driver");
  set(".version 8.0\n");
  EXPECT_EQ(openError(artifact),
            "test.tsr: code object 'cuda:sm_80': cuModuleLoadDataEx: fake "
            "result 218 (CUDA_ERROR_218): ptxas fatal: no object");
  set(emulatedObject());
  gpu(artifact).kernels[kScale]->name = "absent";
  EXPECT_EQ(openError(artifact), "test.tsr: code object 'cuda:sm_80', kernel "
                                 "'absent': 'tessera_absent' is missing from "
                                 "it");
}

TEST_F(CudaCode, KernelsThatTheGpuCannotRun) {
  ArtifactT artifact = withCuda(oneProgram(iotaProgram(100)));
  GpuKernelT &kernel = *gpu(artifact).kernels[kReverseBlocks]->gpu;
  kernel.threads = 512;
  setting("THREADS", "256");
  EXPECT_EQ(openError(artifact),
            "test.tsr: code object 'cuda:sm_80', kernel 'reverse_blocks': it "
            "is launched with 512 threads a block, but cuda:0 runs its code "
            "with at most 256");
  kernel.threads = 64;
  kernel.shared_bytes = 164 << 10;
  EXPECT_EQ(openError(artifact),
            "test.tsr: code object 'cuda:sm_80', kernel 'reverse_blocks': it "
            "needs 167936 bytes of shared memory a block, but cuda:0 (Fake "
            "GPU) has 166912");
  kernel.shared_bytes = 162 << 10;
  setting("STATIC_SHARED", "2048");
  EXPECT_TRUE(isLineWith(openError(artifact), "needs 167936 bytes of shared"));
}

TEST_F(CudaCode, AsksForMuchSharedMemory) {
  constexpr std::int64_t n = 1024; // no gap between the two
  ArtifactT artifact = withCuda(oneProgram(
      program("main", 0, 2 * floatBytes(n), {},
              {tensor("y", ElementType::f32, {n}, Role::output, Space::io,
                      floatBytes(n))},
              {launch(kReverseBlocks,
                      {instance({arg(Space::io, 0, floatBytes(n)),
                                 arg(Space::io, floatBytes(n), floatBytes(n))},
                                blocksOf(n), {n})})})));
  // Without the attribute, the fake driver refuses a launch as the real one
  // does.
  for (const auto &[bytes, asks] :
       {std::pair(48 << 10, 0u), std::pair((48 << 10) + 16, 1u),
        std::pair(163 << 10, 1u)}) {
    fake.reset();
    gpu(artifact).kernels[kReverseBlocks]->gpu->shared_bytes =
        static_cast<std::uint32_t>(bytes);
    Runner runner(artifact, cuda());
    ASSERT_TRUE(runner.ok()) << runner.message();
    EXPECT_EQ(fake.calls("cuFuncSetAttribute"), asks) << bytes;
    EXPECT_TRUE(runner->run("main").ok());
  }
}
