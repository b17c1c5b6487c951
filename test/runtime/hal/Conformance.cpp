#include "test/runtime/hal/Conformance.h"

#include "test/runtime/hal/cuda/FakeCuda.h"

#include <fstream>
#include <iterator>

namespace tessera::test {

const std::vector<DeviceUnderTest> kDevices = {
    {"Cpu1", "cpu", 1, nullptr},
    {"Cpu2", "cpu", 2, nullptr},
    {"Cpu7", "cpu", 7, nullptr}, // more threads than processors
    {"Null", "null", 0,
     "the null device checks programs but computes no results"},
    {"EmulatedGpu", "cuda-emu", 0, nullptr, 3, false},
    // With a driver that runs kernels on the emulated GPU.
    {"CudaGraph", "cuda:0", 0, nullptr, 3, false, "graph"},
    {"CudaStream", "cuda:0", 0, nullptr, 3, false, "stream"},
};

static std::string contentOf(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

const std::string &kernelObject() {
  static const std::string bytes = contentOf(TESSERA_TEST_KERNELS);
  return bytes;
}

const std::string &emulatedObject() {
  static const std::string bytes = contentOf(TESSERA_TEST_GPU_KERNELS);
  return bytes;
}

DeviceCodeT emulatedCode(const DeviceCodeT &from) {
  DeviceCodeT code = onGpu(from, "sm_80");
  for (auto &kernel : code.kernels) {
    kernel->gpu->threads = 64;
    kernel->gpu->shared_bytes = 64 * sizeof(float);
  }
  TensorMapT map;
  map.type = ElementType::bf16;
  map.sizes = {20, 6};
  map.strides = {48};
  map.box = {16, 4};
  code.kernels[kTakeBoxes]->gpu->maps = owned<TensorMapT>({map});
  code.code =
      owned<CodeObjectT>({codeObject("cuda-emu:sm_80", {}, emulatedObject())});
  return code;
}

DeviceCodeT cudaCode(const DeviceCodeT &from) {
  DeviceCodeT code = emulatedCode(from);
  code.code.push_back(std::make_unique<CodeObjectT>(
      codeObject("cuda:sm_80", {}, emulatedObject())));
  return code;
}

ArtifactT kernelArtifact(std::uint64_t stateBytes) {
  constexpr Access in = Access::read, out = Access::write,
                   both = Access::read_write;
  ArtifactT artifact = emptyArtifact();
  share(artifact).state_bytes = stateBytes;
  cpu(artifact).kernels = owned<KernelT>({
      kernel("iota", {out}, 1),
      kernel("scale", {in, out}, 1),
      kernel("accumulate", {in, both}, 1),
      kernel("partial_sums", {in, out}, 1),
      kernel("total", {in, out}, 1),
      kernel("reverse_blocks", {in, out}, 1, 64 * sizeof(float)),
      kernel("count_runs", {both}),
      kernel("nan_below_five", {in, out}, 1),
      kernel("meet", {both, out}, 1, 1000),
      kernel("take_boxes", {in, out}),
  });
  for (auto &kernel : cpu(artifact).kernels)
    kernel->element_types.assign(kernel->access.size(), ElementType::f32);
  cpu(artifact).kernels[kCountRuns]->element_types = {ElementType::i32};
  cpu(artifact).kernels[kMeet]->element_types = {ElementType::i64,
                                                 ElementType::i64};
  cpu(artifact).kernels[kTakeBoxes]->element_types = {ElementType::bf16,
                                                      ElementType::bf16};
  cpu(artifact).code =
      owned<CodeObjectT>({codeObject("cpu:baseline", {}, kernelObject())});
  return artifact;
}

ArtifactT oneProgram(ProgramT program, std::uint64_t stateBytes) {
  ArtifactT artifact = kernelArtifact(stateBytes);
  cpu(artifact).programs = owned<ProgramT>({std::move(program)});
  return artifact;
}

namespace {

StatusOr<std::unique_ptr<hal::Session>>
openSession(std::span<const std::byte> bytes,
            const hal::SessionOptions &options) {
  auto reader = ArtifactReader::fromBytes(bytes, "test.tsr");
  if (!reader.ok())
    return reader.status();
  return hal::Session::open(*reader, options);
}

std::string packFor(const std::string &device, const ArtifactT &artifact) {
  const bool isGpu = device == "cuda-emu" || device.starts_with("cuda:");
  if (!isGpu || share(artifact).devices.size() > 1)
    return pack(artifact);
  ArtifactT both = artifact;
  DeviceCodeT code = cudaCode(*share(artifact).devices[0]);
  if (device == "cuda-emu") { // bulk copies are not of sm_80
    code.device = "cuda:sm_90a";
    code.code = owned<CodeObjectT>(
        {codeObject("cuda-emu:sm_90a", {}, emulatedObject())});
  }
  share(both).devices.push_back(std::make_unique<DeviceCodeT>(std::move(code)));
  return pack(both);
}

} // namespace

Runner::Runner(const ArtifactT &artifact, const hal::SessionOptions &options)
    : bytes(packFor(options.device, artifact)),
      session(openSession(bytes.span(), options)) {}

hal::SessionOptions Conformance::options() const {
  hal::SessionOptions options;
  options.device = GetParam().device;
  options.deviceOptions.threads = GetParam().threads;
  options.deviceOptions.cudaMode = GetParam().cudaMode;
  return options;
}

void Conformance::SetUp() { FakeCuda::get().reset(); }

void Conformance::TearDown() {
  EXPECT_EQ(FakeCuda::get().leaks(), "");
  EXPECT_EQ(FakeCuda::get().misuse(), "");
}

} // namespace tessera::test
