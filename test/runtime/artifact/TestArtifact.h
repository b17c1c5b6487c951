// Builds small artifacts for tests, through the schema's own object API.
#pragma once
#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/artifact/Artifact_generated.h"
#include "runtime/artifact/ElementTypes.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace tessera::test {

using namespace tessera::artifact;

template <typename T>
std::vector<std::unique_ptr<T>> owned(std::vector<T> values) {
  std::vector<std::unique_ptr<T>> list;
  for (T &value : values)
    list.push_back(std::make_unique<T>(std::move(value)));
  return list;
}

inline ArgT arg(Space space, std::uint64_t offset, std::uint64_t bytes,
                std::vector<std::uint64_t> strides = {}) {
  ArgT arg;
  arg.space = space;
  arg.offset = offset;
  arg.bytes = bytes;
  arg.loop_strides = std::move(strides);
  return arg;
}

inline InstanceT instance(std::vector<ArgT> args, std::uint64_t blocks,
                          std::vector<std::int64_t> sizes = {}) {
  InstanceT instance;
  instance.args = owned(std::move(args));
  instance.blocks = blocks;
  instance.sizes = std::move(sizes);
  return instance;
}

template <typename Step> NodeT node(Step step, std::string origin) {
  NodeT node;
  node.step.Set(std::move(step));
  node.origin = std::move(origin);
  return node;
}

inline NodeT launch(std::uint32_t kernel, std::vector<InstanceT> instances,
                    std::string origin = "test.launch") {
  LaunchT launch;
  launch.kernel = kernel;
  launch.instances = owned(std::move(instances));
  return node(std::move(launch), std::move(origin));
}

inline NodeT loop(std::uint64_t trip, std::vector<NodeT> body) {
  LoopT loop;
  loop.trip = trip;
  loop.body = owned(std::move(body));
  return node(std::move(loop), "test.loop");
}

/// At most `trip` times; `count` is an i32.
inline NodeT loop(std::uint64_t trip, std::vector<NodeT> body, ArgT count) {
  NodeT made = loop(trip, std::move(body));
  made.step.AsLoop()->count = std::make_unique<ArgT>(std::move(count));
  return made;
}

inline NodeT copy(ArgT from, ArgT to) {
  CopyT copy;
  copy.from = std::make_unique<ArgT>(std::move(from));
  copy.to = std::make_unique<ArgT>(std::move(to));
  return node(std::move(copy), "test.copy");
}

inline NodeT fill(ArgT to, std::uint8_t value) {
  FillT fill;
  fill.to = std::make_unique<ArgT>(std::move(to));
  fill.value = value;
  return node(std::move(fill), "test.fill");
}

inline TensorT tensor(std::string name, ElementType type,
                      std::vector<std::int64_t> shape, Role role, Space space,
                      std::uint64_t offset) {
  TensorT tensor;
  tensor.name = std::move(name);
  tensor.type = type;
  tensor.role = role;
  tensor.space = space;
  tensor.offset = offset;
  tensor.bytes = elementBytes(type);
  for (const std::int64_t extent : shape)
    tensor.bytes *= static_cast<std::uint64_t>(extent);
  tensor.shape = std::move(shape);
  return tensor;
}

inline KernelT kernel(std::string name, std::vector<Access> access,
                      std::uint32_t dynamicSizes = 0,
                      std::uint64_t scratchBytes = 0) {
  KernelT kernel;
  kernel.name = std::move(name);
  kernel.access = std::move(access);
  kernel.dynamic_sizes = dynamicSizes;
  kernel.scratch_bytes = scratchBytes;
  return kernel;
}

inline ProgramT program(std::string name, std::uint64_t arenaBytes,
                        std::uint64_t ioBytes, std::vector<TensorT> inputs,
                        std::vector<TensorT> outputs,
                        std::vector<NodeT> steps) {
  ProgramT program;
  program.name = std::move(name);
  program.arena_bytes = arenaBytes;
  program.io_bytes = ioBytes;
  program.inputs = owned(std::move(inputs));
  program.outputs = owned(std::move(outputs));
  program.steps = owned(std::move(steps));
  return program;
}

/// The kind of device that tests' artifacts are for, unless they add others.
inline DeviceCodeT &cpu(ArtifactT &artifact) {
  return *artifact.shares[0]->devices[0];
}

/// That of rank 0; most artifacts have no other.
inline ShareT &share(ArtifactT &artifact) { return *artifact.shares[0]; }
inline const ShareT &share(const ArtifactT &artifact) {
  return *artifact.shares[0];
}

/// An artifact for a CPU, without state, kernels and programs.
inline ArtifactT emptyArtifact() {
  ArtifactT artifact;
  artifact.schema_version = kSchemaVersion;
  artifact.compiler_version = "0.0-test";
  artifact.program_hash = "0123456789abcdef";
  artifact.model_config = "{}";
  artifact.recipe = "seed: 1\n";
  artifact.rebuild_command = "tessera compile models/specs/test -o test.tsr";
  artifact.shares.push_back(std::make_unique<ShareT>());
  share(artifact).ranks = {0};
  share(artifact).devices.push_back(std::make_unique<DeviceCodeT>());
  cpu(artifact).device = "cpu";
  return artifact;
}

inline CodeObjectT codeObject(std::string target,
                              std::vector<std::string> features,
                              std::string_view elf) {
  CodeObjectT code;
  code.target = std::move(target);
  code.features = std::move(features);
  code.elf.assign(elf.begin(), elf.end());
  return code;
}

/// The FlatBuffer of `artifact`.
inline std::string pack(const ArtifactT &artifact) {
  flatbuffers::FlatBufferBuilder builder;
  FinishArtifactBuffer(builder, Artifact::Pack(builder, &artifact));
  return {reinterpret_cast<const char *>(builder.GetBufferPointer()),
          builder.GetSize()};
}

/// Bytes at an address that ArtifactReader::fromBytes accepts.
class AlignedBytes {
public:
  explicit AlignedBytes(std::string_view bytes)
      : words(bytes.size() / sizeof(Word) + 1), length(bytes.size()) {
    if (!bytes.empty())
      std::memcpy(words.data(), bytes.data(), bytes.size());
  }
  std::span<const std::byte> span() const {
    return {reinterpret_cast<const std::byte *>(words.data()), length};
  }
  std::span<std::byte> span() {
    return {reinterpret_cast<std::byte *>(words.data()), length};
  }

private:
  struct alignas(64) Word {
    std::byte bytes[64];
  };
  std::vector<Word> words;
  std::size_t length;
};

/// The same programs and kernels for a CUDA architecture, each kernel in a
/// cubin of its own and all in one object for the emulator.
inline DeviceCodeT onGpu(const DeviceCodeT &from, const std::string &arch) {
  DeviceCodeT device = from;
  device.device = "cuda:" + arch;
  device.code.clear();
  for (std::uint32_t i = 0; i < device.kernels.size(); ++i) {
    GpuKernelT gpu;
    gpu.threads = 128;
    gpu.shared_bytes = 1024;
    gpu.source = "// " + device.kernels[i]->name + "\n";
    device.kernels[i]->gpu = std::make_unique<GpuKernelT>(gpu);
    device.kernels[i]->scratch_bytes = 0;
    CodeObjectT cubin = codeObject("cuda:" + arch, {}, "not a cubin");
    cubin.kernels = {i};
    device.code.push_back(std::make_unique<CodeObjectT>(cubin));
  }
  device.code.push_back(std::make_unique<CodeObjectT>(
      codeObject("cuda-emu:" + arch, {}, "not an ELF either")));
  return device;
}

/// An artifact that uses every table of the schema, for a CPU and a GPU; its
/// code is no ELF.
/// Program "train_step" adds up rows of `tokens` in a loop.
inline ArtifactT smallArtifact() {
  ArtifactT artifact = emptyArtifact();
  share(artifact).state_bytes = 192;
  share(artifact).state = owned<TensorT>(
      {tensor("w", ElementType::f32, {4, 4}, Role::parameter, Space::state, 0),
       tensor("w.exp_avg", ElementType::f32, {16}, Role::optimizer,
              Space::state, 64),
       tensor("step", ElementType::i64, {1}, Role::counter, Space::state,
              128)});
  share(artifact).state[0]->decay = true;
  cpu(artifact).kernels = owned<KernelT>(
      {kernel("add_row", {Access::read, Access::read_write}, 1, 64),
       kernel("update", {Access::read_write, Access::write}, 0, 0)});
  cpu(artifact).kernels[1]->element_types = {ElementType::f32,
                                             ElementType::f32};
  cpu(artifact).code = owned<CodeObjectT>(
      {codeObject("cpu:avx512", {"avx512f", "avx512bw"}, "not an ELF"),
       codeObject("cpu:avx2", {"avx2", "fma"}, "not an ELF either")});
  SourceT source;
  source.name = "00-import.mlir";
  source.text = "module {}\n";
  artifact.sources = owned<SourceT>({source});
  cpu(artifact).programs = owned<ProgramT>({program(
      "train_step", 128, 384,
      {tensor("tokens", ElementType::i32, {4, 16}, Role::input, Space::io, 0)},
      {tensor("loss", ElementType::f32, {}, Role::metric, Space::io, 256),
       tensor("row", ElementType::i32, {16}, Role::output, Space::io, 320)},
      {fill(arg(Space::arena, 0, 64), 0),
       loop(4, {launch(0,
                       {instance({arg(Space::io, 0, 64, {64}),
                                  arg(Space::arena, 0, 64, {0})},
                                 1, {16})},
                       "h.0.sum")}),
       launch(1, {instance({arg(Space::state, 0, 64), arg(Space::io, 256, 4)},
                           1)}),
       copy(arg(Space::arena, 0, 64), arg(Space::io, 320, 64))})});
  share(artifact).devices.push_back(
      std::make_unique<DeviceCodeT>(onGpu(cpu(artifact), "sm_80")));
  return artifact;
}

} // namespace tessera::test
