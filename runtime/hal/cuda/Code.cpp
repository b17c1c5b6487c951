#include "runtime/hal/cuda/Code.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/hal/Device.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace tessera::hal::cuda {
namespace {

using artifact::CodeObject;
using artifact::DeviceCode;
using artifact::toView;

constexpr std::string_view kMachineCode = "cuda:sm_", kPtx = "ptx:compute_";
/// Below this, tensor cores have no bf16.
constexpr unsigned kOldestCapability = 80;
/// What a block may have without being asked for, static and dynamic together.
constexpr std::uint64_t kSharedBytesByDefault = 48 << 10;

/// The target of the best fitting code, or none.
std::string_view bestTarget(const DeviceCode &code, unsigned capability) {
  std::string_view best;
  unsigned most = 0;
  for (const CodeObject *object : *code.code()) {
    const std::string_view target = toView(object->target());
    if (const unsigned fits = fitness(target, capability); fits > most) {
      most = fits;
      best = target;
    }
  }
  return best;
}

/// The compiler's target for this GPU, as errors suggest it.
std::string wantedTarget(unsigned capability) {
  return capability == 90 ? "cuda:sm_90a" : "cuda:sm_80";
}

std::string_view firstLine(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

/// Why the driver refuses a code object.
Status refusal(const Driver &driver, Result result, std::string_view log) {
  std::string line = driver.moduleLoad.check(result).message();
  if (!log.empty())
    line.append(": ").append(firstLine(log));
  if (result == kUnsupportedPtxVersion || result == kNoBinaryForGpu ||
      result == kInvalidImage)
    line += fmt::format("; the driver is for CUDA {}: if the code was compiled "
                        "with a later one, update the driver",
                        versionText(driver.cudaVersion()));
  return Status::error("{}", line);
}

StatusOr<Owned<Module>> loadModule(const CodeObject &object,
                                   const std::shared_ptr<Gpu> &gpu) {
  // A copy that is aligned and, as PTX must, ends in a zero byte.
  std::vector<unsigned char> image(object.elf()->begin(), object.elf()->end());
  image.push_back(0);
  const Driver &driver = gpu->driver();
  std::array<char, 4096> log{};
  std::array<int, 2> options = {kJitErrorLog, kJitErrorLogBytes};
  // A number where a pointer is declared: so the driver takes its options.
  auto *const logBytes =
      reinterpret_cast<void *>(log.size()); // NOLINT(performance-no-int-to-ptr)
  std::array<void *, 2> values = {log.data(), logBytes};
  Owned<Module> owned;
  const Status status = gpu->enter([&] {
    Module module = nullptr;
    const Result result = driver.moduleLoad.result(
        &module, image.data(), options.size(), options.data(), values.data());
    log.back() = 0;
    if (result != kSuccess)
      return refusal(driver, result, log.data());
    owned = Owned<Module>(gpu, module, driver.moduleUnload);
    return Status::success();
  });
  if (!status.ok())
    return status;
  return owned;
}

/// Finds a kernel and asks for its shared memory. The context is current.
Status loadKernel(const artifact::Kernel &kernel, Module module, const Gpu &gpu,
                  LoadedKernel &loaded) {
  const Driver &driver = gpu.driver();
  const std::string symbol = "tessera_" + kernel.name()->str();
  loaded.threads = kernel.gpu()->threads();
  loaded.sharedBytes = kernel.gpu()->shared_bytes();
  const Result found =
      driver.moduleKernel.result(&loaded.function, module, symbol.c_str());
  if (found == kNotFound)
    return Status::error("'{}' is missing from it", symbol);
  TESSERA_RETURN_IF_ERROR(driver.moduleKernel.check(found));
  // Attributes are known once the driver has placed the code on the GPU: no
  // launch waits for that later.
  int threads = 0, fixed = 0;
  TESSERA_RETURN_IF_ERROR(
      driver.kernelAttribute(&threads, kMaxThreadsPerBlock, loaded.function));
  TESSERA_RETURN_IF_ERROR(
      driver.kernelAttribute(&fixed, kStaticSharedBytes, loaded.function));
  if (loaded.threads > static_cast<unsigned>(threads))
    return Status::error("it is launched with {} threads a block, but {} runs "
                         "its code with at most {}",
                         loaded.threads, gpu.name(), threads);
  const std::uint64_t shared =
      std::uint64_t(loaded.sharedBytes) + static_cast<std::uint64_t>(fixed);
  if (shared > gpu.maxSharedBytes())
    return Status::error("it needs {} bytes of shared memory a block, but {} "
                         "({}) has {}",
                         shared, gpu.name(), gpu.model(), gpu.maxSharedBytes());
  if (shared <= kSharedBytesByDefault)
    return Status::success();
  return driver.setKernelAttribute(loaded.function, kMaxDynamicSharedBytes,
                                   static_cast<int>(loaded.sharedBytes));
}

} // namespace

std::optional<Architecture> parseArchitecture(std::string_view text,
                                              std::string_view prefix) {
  if (!text.starts_with(prefix))
    return std::nullopt;
  text.remove_prefix(prefix.size());
  Architecture architecture;
  const auto [end, error] = std::from_chars(
      text.data(), text.data() + text.size(), architecture.capability);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc() || text.size() > 1 ||
      (!text.empty() && text[0] != 'a' && text[0] != 'f'))
    return std::nullopt;
  if (!text.empty())
    architecture.letter = text[0];
  return architecture;
}

unsigned fitness(std::string_view target, unsigned capability) {
  const auto machine = parseArchitecture(target, kMachineCode);
  const auto ptx = parseArchitecture(target, kPtx);
  if (!machine && !ptx)
    return 0;
  const Architecture code = machine ? *machine : *ptx;
  const bool sameMajor = code.capability / 10 == capability / 10;
  if (code.capability > capability ||
      (code.letter == 'a' && code.capability != capability) ||
      ((code.letter == 'f' || machine) && !sameMajor))
    return 0;
  // Machine code first, then what is newer, then what uses more of the chip.
  constexpr unsigned kSuffixes = 4, kMachine = 1u << 16;
  const unsigned letter = code.letter == 'a' ? 2 : code.letter == 'f' ? 1 : 0;
  return (machine ? kMachine : 0) + code.capability * kSuffixes + letter + 1;
}

StatusOr<const DeviceCode *> chooseCode(const ArtifactReader &artifact,
                                        const Gpu &gpu) {
  const unsigned capability = gpu.capability();
  const std::string device =
      fmt::format("{}, {} of compute capability {}.{}", gpu.name(), gpu.model(),
                  capability / 10, capability % 10);
  if (capability < kOldestCapability)
    return Status::error("{}: kernels need compute capability {}.{} or later",
                         device, kOldestCapability / 10,
                         kOldestCapability % 10);
  const DeviceCode *best = nullptr;
  unsigned most = 0;
  for (const DeviceCode *code : *artifact.share().devices())
    if (const unsigned fits =
            fitness(bestTarget(*code, capability), capability);
        fits > most) {
      most = fits;
      best = code;
    }
  if (best)
    return best;
  return noCodeFor(artifact, device, wantedTarget(capability));
}

StatusOr<LoadedModules> loadCode(const ArtifactReader &artifact,
                                 const DeviceCode &code,
                                 const std::shared_ptr<Gpu> &gpu) {
  LoadedModules loaded;
  loaded.target = bestTarget(code, gpu->capability());
  loaded.kernels.resize(code.kernels()->size());
  for (const CodeObject *object : *code.code()) {
    if (toView(object->target()) != loaded.target)
      continue;
    const std::string what =
        fmt::format("{}: code object '{}'", artifact.path(), loaded.target);
    auto module = loadModule(*object, gpu);
    if (!module.ok())
      return Status::error("{}: {}", what, module.message());
    for (std::uint32_t i = 0; i < code.kernels()->size(); ++i) {
      if (!artifact::holds(*object, i))
        continue;
      const artifact::Kernel &kernel = *code.kernels()->Get(i);
      const Status status = gpu->enter([&] {
        return loadKernel(kernel, module->get(), *gpu, loaded.kernels[i]);
      });
      if (!status.ok())
        return Status::error("{}, kernel '{}': {}", what, toView(kernel.name()),
                             status.message());
    }
    loaded.modules.push_back(module.take());
  }
  return loaded;
}

} // namespace tessera::hal::cuda
