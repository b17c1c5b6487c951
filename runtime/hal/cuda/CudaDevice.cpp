#include "runtime/hal/cuda/CudaDevice.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/hal/cuda/CudaCommandList.h"
#include "runtime/hal/cuda/KernelUses.h"
#include "runtime/hal/cuda/Products.h"

#include <charconv>
#include <cstdlib>

namespace tessera::hal {
namespace cuda {
namespace {

class CudaBuffer : public Buffer {
public:
  CudaBuffer(std::shared_ptr<Gpu> gpu, Owned<Address> memory,
             std::uint64_t length, std::string_view what)
      : gpu(std::move(gpu)), memory(std::move(memory)), length(length),
        what(what) {}
  std::uint64_t bytes() const override { return length; }
  Status write(std::uint64_t offset, std::span<const std::byte> from) override {
    TESSERA_RETURN_IF_ERROR(checkRange(offset, from.size(), length, what));
    return named("write", gpu->upload(memory.get() + offset, from));
  }
  Status read(std::uint64_t offset, std::span<std::byte> to) const override {
    TESSERA_RETURN_IF_ERROR(checkRange(offset, to.size(), length, what));
    return named("read", gpu->download(to, memory.get() + offset));
  }
  /// Where it begins, for the host to compute with.
  std::byte *address() const {
    return reinterpret_cast<std::byte *>( // NOLINT(performance-no-int-to-ptr)
        static_cast<std::uintptr_t>(memory.get()));
  }

private:
  Status named(std::string_view action, Status status) const {
    if (status.ok())
      return status;
    return Status::error("{}: cannot {} {}: {}", gpu->name(), action, what,
                         status.message());
  }

  std::shared_ptr<Gpu> gpu;
  Owned<Address> memory;
  std::uint64_t length;
  std::string what;
};

class CudaExecutable : public Executable {
public:
  CudaExecutable(const ArtifactReader &artifact,
                 const artifact::DeviceCode &code, LoadedModules modules,
                 Products products)
      : artifact(artifact), code(code), modules(std::move(modules)),
        products(std::move(products)) {}
  std::string_view target() const override { return modules.target; }
  std::uint64_t scratchBytes() const override {
    return products.workspaceBytes();
  }

  ArtifactReader artifact;
  const artifact::DeviceCode &code;
  LoadedModules modules;
  Products products;
};

class CudaDevice : public Device {
public:
  CudaDevice(std::shared_ptr<Gpu> gpu, Mode mode, const Tuning &tuning)
      : gpu(std::move(gpu)), mode(mode), tuning(tuning) {}
  std::string_view name() const override { return gpu->name(); }
  std::string describe() const override {
    return gpu->describe() + chosen + together + counting;
  }
  Status checkFree(std::uint64_t bytes) const override {
    return gpu->checkFree(bytes);
  }
  StatusOr<std::unique_ptr<Buffer>> allocate(std::uint64_t bytes,
                                             std::string_view what) override;
  StatusOr<const artifact::DeviceCode *>
  choose(const ArtifactReader &artifact) const override {
    return chooseCode(artifact, *gpu);
  }
  StatusOr<std::unique_ptr<Executable>>
  load(const ArtifactReader &artifact,
       const artifact::DeviceCode &code) override;
  StatusOr<std::unique_ptr<CommandList>>
  record(Executable &executable, const artifact::Program &program,
         const Bindings &bindings, const RecordOptions &options) override;

private:
  std::shared_ptr<Gpu> gpu;
  Mode mode;
  Tuning tuning;
  std::string chosen;                 // in what was loaded last
  std::unique_ptr<NcclChannels> nccl; // of the ranks, once programs need it
  std::string together;               // how they reach one another
  std::string counting;               // why the host reads counts of loops
};

StatusOr<std::unique_ptr<Buffer>> CudaDevice::allocate(std::uint64_t bytes,
                                                       std::string_view what) {
  auto memory = gpu->allocate(bytes, what);
  if (!memory.ok())
    return memory.status();
  return std::unique_ptr<Buffer>(
      std::make_unique<CudaBuffer>(gpu, memory.take(), bytes, what));
}

StatusOr<std::unique_ptr<Executable>>
CudaDevice::load(const ArtifactReader &artifact,
                 const artifact::DeviceCode &code) {
  auto modules = loadCode(artifact, code, gpu);
  if (!modules.ok())
    return modules.status();
  Products products = Products::choose(artifact, code, *modules, gpu, tuning);
  chosen = products.describe().empty() ? "" : "; " + products.describe();
  return std::unique_ptr<Executable>(std::make_unique<CudaExecutable>(
      artifact, code, modules.take(), std::move(products)));
}

std::byte *addressOf(const Buffer *buffer) {
  return buffer ? static_cast<const CudaBuffer *>(buffer)->address() : nullptr;
}

StatusOr<std::unique_ptr<CommandList>>
CudaDevice::record(Executable &executable, const artifact::Program &program,
                   const Bindings &bindings, const RecordOptions &options) {
  auto &loaded = static_cast<CudaExecutable &>(executable);
  TESSERA_RETURN_IF_ERROR(
      checkBindings(loaded.artifact.share(), program, bindings));
  const SpaceAddresses spaces = {addressOf(bindings.state),
                                 addressOf(bindings.arena),
                                 addressOf(bindings.io)};
  Commands commands = flatten(loaded.code, program, spaces);
  if (bindings.channels && !nccl) {
    auto opened = NcclChannels::open(*bindings.channels, gpu);
    if (!opened.ok())
      return opened.status();
    nccl = opened.take();
  }
  auto collectives =
      GpuCollectives::prepare(commands, bindings.channels, nccl.get(), gpu);
  if (!collectives.ok())
    return Status::error("program '{}': {}", artifact::toView(program.name()),
                         collectives.message());
  if (!commands.collectives.empty())
    together = collectives->describe();
  useVariants(commands, loaded.code, loaded.modules.kernels);
  auto list = CudaCommandList::record(
      artifact::toView(program.name()), std::move(commands), collectives.take(),
      loaded.modules.kernels, gpu,
      std::span<const std::byte>(spaces.arena, program.arena_bytes()), mode,
      options);
  if (!list.ok())
    return list.status();
  if (const std::string &why = (*list)->whyCountsOnHost(); !why.empty())
    counting = fmt::format("; the host reads counts of loops: {}", why);
  return std::unique_ptr<CommandList>(list.take());
}

StatusOr<Mode> parseMode(const DeviceOptions &options) {
  constexpr std::string_view names[] = {"graph", "stream", "step"};
  std::string_view mode = options.cudaMode;
  if (const char *environment = std::getenv("TESSERA_CUDA");
      mode.empty() && environment)
    mode = environment;
  if (mode.empty())
    return Mode::graph;
  for (std::size_t i = 0; i < std::size(names); ++i)
    if (mode == names[i])
      return static_cast<Mode>(i);
  return Status::error("TESSERA_CUDA is '{}': use graph, stream or step", mode);
}

StatusOr<int> parseOrdinal(std::string_view which) {
  int ordinal = 0;
  const auto [stopped, error] =
      std::from_chars(which.begin(), which.end(), ordinal);
  if (!which.empty() &&
      (error != std::errc() || stopped != which.end() || ordinal < 0))
    return Status::error("unknown device 'cuda:{}': a GPU has a number, as "
                         "cuda:0",
                         which);
  return ordinal;
}

} // namespace
} // namespace cuda

Status checkCudaDevice(std::string_view which) {
  auto ordinal = cuda::parseOrdinal(which);
  return ordinal.ok() ? cuda::Gpu::check(*ordinal) : ordinal.status();
}

StatusOr<std::unique_ptr<Device>>
createCudaDevice(std::string_view which, const DeviceOptions &options) {
  auto ordinal = cuda::parseOrdinal(which);
  if (!ordinal.ok())
    return ordinal.status();
  const auto mode = cuda::parseMode(options);
  if (!mode.ok())
    return mode.status();
  const auto tuning = cuda::parseTuning(options);
  if (!tuning.ok())
    return tuning.status();
  auto gpu = cuda::Gpu::open(*ordinal);
  if (!gpu.ok())
    return gpu.status();
  return std::unique_ptr<Device>(
      std::make_unique<cuda::CudaDevice>(gpu.take(), *mode, *tuning));
}

} // namespace tessera::hal
