// The fake driver's modules, kernels and launches.
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/artifact/ElementTypes.h"
#include "test/runtime/hal/cuda/FakeGpu.h"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

namespace tessera::test {
namespace {

/// Bytes of the ELF that begins there: its section headers come last.
std::size_t elfBytes(const void *image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  // Cubins have either table last.
  return std::max(
      header.e_shoff + std::size_t(header.e_shnum) * header.e_shentsize,
      header.e_phoff + std::size_t(header.e_phnum) * header.e_phentsize);
}

std::string contentOf(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<hal::LoadedCode> loadElf(std::span<const std::byte> elf) {
  auto code = hal::LoadedCode::load(elf, "fake");
  return code.ok() ? std::make_shared<hal::LoadedCode>(code.take()) : nullptr;
}

using Twins = std::vector<std::shared_ptr<hal::LoadedCode>>;

bool isCubinOf(const artifact::DeviceCode &device, const void *image) {
  return std::any_of(
      device.code()->begin(), device.code()->end(),
      [image](const artifact::CodeObject *object) {
        return artifact::toView(object->target()).starts_with("cuda:") &&
               object->elf()->size() == elfBytes(image) &&
               std::memcmp(object->elf()->data(), image,
                           object->elf()->size()) == 0;
      });
}

/// The device's code for the emulated GPU.
Twins twinsOf(const artifact::DeviceCode &device) {
  Twins twins;
  for (const artifact::CodeObject *object : *device.code())
    if (artifact::toView(object->target()).starts_with("cuda-emu:"))
      if (auto code = loadElf(std::as_bytes(
              std::span(object->elf()->data(), object->elf()->size()))))
        twins.push_back(std::move(code));
  return twins;
}

/// What stands for that cubin: code of the artifact that has both, one of
/// TESSERA_FAKE_CUDA_TWINS.
const Twins &twinsOf(FakeGpus &all, const void *image) {
  const char *paths = std::getenv("TESSERA_FAKE_CUDA_TWINS");
  std::istringstream stream(paths ? paths : "");
  for (std::string path; std::getline(stream, path, ':');) {
    const auto reader = ArtifactReader::open(path);
    if (!reader.ok())
      continue;
    for (const artifact::DeviceCode *device : *reader->share().devices()) {
      if (!isCubinOf(*device, image))
        continue;
      const std::string_view kind = artifact::toView(device->device());
      Twins &twins = all.twins[fmt::format("{} {}", path, kind)];
      if (twins.empty())
        twins = twinsOf(*device);
      return twins;
    }
  }
  static const Twins none;
  return none;
}

Result loadCubin(FakeGpus &all, const void *image, Module *module) {
  auto cubin = readCubin(image);
  if (!cubin.ok())
    return kInvalidImage;
  if (cubin->capability / 10 != capability() / 10 ||
      cubin->capability > capability())
    return kNoBinaryForGpu;
  const Twins &twins = twinsOf(all, image);
  FAKE_REQUIRE(!twins.empty(), "a cubin, and no TESSERA_FAKE_CUDA_TWINS for it",
               kInvalidImage);
  *module = *all.modules.insert(new ModuleTag{twins, cubin.take()}).first;
  return kSuccess;
}

/// The compiled function of that kernel, or null.
emulated::KernelEntry findEntry(const ModuleTag &module,
                                const std::string &name) {
  using Entry = std::remove_pointer_t<emulated::KernelEntry>;
  for (const auto &code : module.code)
    if (const auto found = code->function<Entry>(name + "_emulated");
        found.ok())
      return *found;
  return nullptr;
}

void say(unsigned count, const int *options, void **values, const char *text) {
  char *log = nullptr;
  std::size_t bytes = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == kJitErrorLog)
      log = static_cast<char *>(values[i]);
    if (options[i] == kJitErrorLogBytes)
      bytes = reinterpret_cast<std::uintptr_t>(values[i]);
  }
  if (log)
    fmt::format_to_n(log, bytes, "{}{}", text, '\0');
}

/// The words of a launch's arguments, or nothing if `extra` is ill-formed.
std::vector<std::uint64_t> argumentsOf(void **extra) {
  const void *buffer = nullptr;
  std::size_t bytes = 0;
  for (; extra && *extra != kLaunchEnd; extra += 2) {
    if (*extra == kLaunchBuffer)
      buffer = extra[1];
    else if (*extra == kLaunchBufferSize)
      bytes = *static_cast<const std::size_t *>(extra[1]);
    else
      return {};
  }
  std::vector<std::uint64_t> words(bytes / sizeof(std::uint64_t));
  if (!buffer || bytes % sizeof(std::uint64_t) != 0 || bytes > 4096)
    return {};
  std::memcpy(words.data(), buffer, bytes);
  return words;
}

} // namespace

extern "C" {

Result cuModuleLoadDataEx(Module *module, const void *image, unsigned count,
                          int *options, void **values) {
  FAKE_ENTER(cuModuleLoadDataEx, kContext | kNoCapture);
  constexpr std::string_view key = "// object: ";
  std::string elf;
  if (isCubin(image))
    return loadCubin(all, image, module);
  if (std::memcmp(image, ELFMAG, SELFMAG) == 0) {
    elf.assign(static_cast<const char *>(image), elfBytes(image));
  } else {
    const std::string_view text = static_cast<const char *>(image);
    if (!text.starts_with(".version"))
      return kInvalidImage;
    if (text.find("cudaGraphSetConditional") != text.npos) {
      *module =
          *all.modules.insert(new ModuleTag{{}, std::nullopt, true}).first;
      return kSuccess;
    }
    FAKE_REQUIRE(text.ends_with('\n'), "PTX without a zero byte behind it",
                 kInvalidPtx);
    const auto at = text.find(key);
    if (at == text.npos) {
      say(count, options, values, "ptxas fatal: no object\nsecond line");
      return kInvalidPtx;
    }
    const auto line = text.substr(at + key.size());
    elf = contentOf(std::string(line.substr(0, line.find('\n'))));
  }
  auto code = loadElf(std::as_bytes(std::span(elf)));
  if (!code)
    return kInvalidImage;
  *module = *all.modules.insert(new ModuleTag{{code}, std::nullopt}).first;
  return kSuccess;
}

Result cuModuleUnload(Module module) {
  FAKE_ENTER(cuModuleUnload, kFree | kNoCapture);
  all.finish(); // as the driver does
  std::erase_if(all.kernels, [&](Kernel kernel) {
    const bool mine = kernel->module == module;
    if (mine)
      delete kernel;
    return mine;
  });
  return all.destroy(all.modules, module, "cuModuleUnload of none");
}

Result cuModuleGetFunction(Kernel *kernel, Module module, const char *name) {
  FAKE_ENTER(cuModuleGetFunction, kContext);
  FAKE_REQUIRE(all.modules.contains(module), "a kernel of no module",
               kInvalidHandle);
  constexpr std::string_view prefix = "tessera_";
  std::string_view rest = name;
  if (!rest.starts_with(prefix))
    return kNotFound;
  rest.remove_prefix(prefix.size());
  CubinKernel facts;
  facts.maxThreads =
      static_cast<unsigned>(setting("TESSERA_FAKE_CUDA_THREADS", 1024));
  facts.staticSharedBytes =
      static_cast<unsigned>(setting("TESSERA_FAKE_CUDA_STATIC_SHARED", 0));
  if (module->cubin) {
    const auto found = module->cubin->kernels.find(name);
    if (found == module->cubin->kernels.end())
      return kNotFound;
    facts = found->second;
  }
  const auto entry = findEntry(*module, std::string(rest));
  if (module->countsIterations ? rest != "count_iterations" : !entry)
    return kNotFound;
  *kernel = *all.kernels
                 .insert(new KernelTag{module, std::string(rest), entry, facts})
                 .first;
  return kSuccess;
}

Result cuFuncGetAttribute(int *value, int attribute, Kernel kernel) {
  FAKE_ENTER(cuFuncGetAttribute, kContext);
  FAKE_REQUIRE(all.kernels.contains(kernel), "an attribute of no kernel",
               kInvalidHandle);
  if (attribute == kMaxThreadsPerBlock)
    *value = static_cast<int>(kernel->facts.maxThreads);
  else if (attribute == kStaticSharedBytes)
    *value = static_cast<int>(kernel->facts.staticSharedBytes);
  else
    return all.wrong("unknown attribute of a kernel");
  return kSuccess;
}

Result cuFuncSetAttribute(Kernel kernel, int attribute, int value) {
  FAKE_ENTER(cuFuncSetAttribute, kContext);
  FAKE_REQUIRE(all.kernels.contains(kernel), "an attribute of no kernel",
               kInvalidHandle);
  FAKE_REQUIRE(attribute == kMaxDynamicSharedBytes && value >= 0 &&
                   unsigned(value) + kernel->facts.staticSharedBytes <=
                       mostSharedBytes(),
               "an attribute out of range", kInvalidValue);
  kernel->dynamicBytes = static_cast<unsigned>(value);
  return kSuccess;
}

Result cuLaunchKernel(Kernel kernel, unsigned gridX, unsigned gridY,
                      unsigned gridZ, unsigned blockX, unsigned blockY,
                      unsigned blockZ, unsigned sharedBytes, Stream stream,
                      void **parameters, void **extra) {
  FAKE_ENTER(cuLaunchKernel, kContext);
  FAKE_REQUIRE(all.streams.contains(stream), "a launch in no stream",
               kInvalidHandle);
  FAKE_REQUIRE(all.kernels.contains(kernel), "a launch of no kernel",
               kInvalidHandle);
  FAKE_REQUIRE(gridX > 0 && gridX <= 0x7fffffff && gridY == 1 && gridZ == 1 &&
                   blockX > 0 && blockX <= kernel->facts.maxThreads &&
                   blockY == 1 && blockZ == 1,
               "a launch with a wrong grid or block", kInvalidValue);
  FAKE_REQUIRE(sharedBytes <= kernel->dynamicBytes,
               "a launch with more shared memory than its kernel may have",
               kInvalidValue);
  std::vector<std::uint64_t> arguments = argumentsOf(extra);
  FAKE_REQUIRE(!parameters && !arguments.empty(),
               "a launch with wrong arguments", kInvalidValue);
  const unsigned wanted = kernel->facts.argumentBytes;
  FAKE_REQUIRE(wanted == 0 || wanted == arguments.size() * 8,
               fmt::format("a launch of {} with {} words of arguments, not {} "
                           "bytes",
                           kernel->name, arguments.size(), wanted),
               kInvalidValue);
  if (kernel->module->countsIterations) {
    FAKE_REQUIRE(gridX == 1 && blockX == 1 && arguments.size() == 5,
                 "a wrong launch of the kernel that counts", kInvalidValue);
    return all.submit(stream, [&all, arguments = std::move(arguments)] {
      return all.countIteration(arguments);
    });
  }
  return all.submit(stream, [&all, kernel, gridX, blockX, sharedBytes,
                             arguments = std::move(arguments)] {
    return all.runKernel(kernel, gridX, blockX, sharedBytes, arguments);
  });
}

} // extern "C"

} // namespace tessera::test
