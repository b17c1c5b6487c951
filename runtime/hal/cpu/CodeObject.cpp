#include "runtime/hal/cpu/CodeObject.h"

#include "runtime/artifact/ElementTypes.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace tessera::hal {
namespace {

using artifact::CodeObject;
using artifact::toView;

constexpr std::string_view kTargetPrefix = "cpu:";

#if defined(__x86_64__)
constexpr unsigned kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kMachine = EM_AARCH64;
#else
constexpr unsigned kMachine = EM_NONE;
#endif

std::string missingFeatures(const CodeObject &code, const CpuFeatures &cpu) {
  std::string missing;
  for (const flatbuffers::String *feature : *code.features())
    if (!cpu.has(toView(feature)))
      missing.append(missing.empty() ? "" : ", ").append(toView(feature));
  return missing;
}

bool isTarget(std::string_view target, std::string_view wanted) {
  return target == wanted || (target.starts_with(kTargetPrefix) &&
                              target.substr(kTargetPrefix.size()) == wanted);
}

/// The loader trusts program headers and would fault on a short object.
Status checkElf(std::span<const std::byte> elf, std::string_view what) {
  Elf64_Ehdr header;
  if (elf.size() < sizeof(header))
    return Status::error("{}: {} bytes are too few for an ELF header", what,
                         elf.size());
  std::memcpy(&header, elf.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_DYN)
    return Status::error("{}: not a 64-bit ELF shared object", what);
  if (header.e_machine != kMachine)
    return Status::error("{}: code for ELF machine {}, but this is machine {}",
                         what, header.e_machine, kMachine);
  const std::uint64_t tableBytes =
      std::uint64_t(header.e_phnum) * sizeof(Elf64_Phdr);
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
      header.e_phoff > elf.size() || tableBytes > elf.size() - header.e_phoff)
    return Status::error("{}: its program headers leave the object", what);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, elf.data() + header.e_phoff + i * sizeof(segment),
                sizeof(segment));
    if (segment.p_offset > elf.size() ||
        segment.p_filesz > elf.size() - segment.p_offset)
      return Status::error("{}: segment {} leaves the object", what, i);
  }
  return Status::success();
}

Status writeAll(int descriptor, std::span<const std::byte> bytes,
                std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return Status::error("{}: cannot copy it into memory: {}", what,
                           std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return Status::success();
}

} // namespace

StatusOr<const CodeObject *>
chooseCodeObject(const ArtifactReader &artifact,
                 const artifact::DeviceCode &device, const CpuFeatures &cpu,
                 std::string_view forced) {
  std::string targets, reasons;
  for (const CodeObject *code : *device.code()) {
    const std::string_view target = toView(code->target());
    targets.append(targets.empty() ? "" : ", ").append(target);
    if (!target.starts_with(kTargetPrefix) ||
        (!forced.empty() && !isTarget(target, forced)))
      continue;
    const std::string missing = missingFeatures(*code, cpu);
    if (missing.empty())
      return code;
    reasons += fmt::format("{}{} needs {}", reasons.empty() ? "" : "; ", target,
                           missing);
  }
  if (reasons.empty() && !forced.empty())
    return Status::error("{}: no code for the target '{}': the artifact has {}",
                         artifact.path(), forced,
                         targets.empty() ? "none" : targets);
  if (reasons.empty())
    return Status::error("{}: no code for a CPU: the artifact has {}",
                         artifact.path(), targets.empty() ? "none" : targets);
  return Status::error("{}: no code for this processor ({}), which lacks "
                       "features: {}; rebuild it for a target that fits: {}",
                       artifact.path(), CpuFeatures::brand(), reasons,
                       toView(artifact.root().rebuild_command()));
}

StatusOr<LoadedCode> LoadedCode::load(std::span<const std::byte> elf,
                                      std::string what) {
  TESSERA_RETURN_IF_ERROR(checkElf(elf, what));
  LoadedCode code;
  code.what = std::move(what);
  code.descriptor = ::memfd_create("tessera-kernels", MFD_CLOEXEC);
  if (code.descriptor < 0)
    return Status::error("{}: memfd_create: {}", code.what,
                         std::strerror(errno));
  TESSERA_RETURN_IF_ERROR(writeAll(code.descriptor, elf, code.what));
  const std::string path = fmt::format("/proc/self/fd/{}", code.descriptor);
  code.handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!code.handle) {
    const char *cause = ::dlerror();
    return Status::error("{}: cannot load it: {}", code.what,
                         cause ? cause : "no reason given");
  }
  return code;
}

LoadedCode::LoadedCode(LoadedCode &&other) noexcept
    : what(std::move(other.what)), handle(std::exchange(other.handle, nullptr)),
      descriptor(std::exchange(other.descriptor, -1)) {}

LoadedCode::~LoadedCode() {
  if (handle)
    ::dlclose(handle);
  if (descriptor >= 0)
    ::close(descriptor);
}

StatusOr<KernelFunction> LoadedCode::kernel(const std::string &name) const {
  void *symbol = ::dlsym(handle, name.c_str());
  link_map *map = nullptr;
  Dl_info info;
  // dlsym also searches what the object depends on: "memcpy" is no kernel.
  if (!symbol ||
      ::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void *>(&map)) != 0 ||
      !::dladdr(symbol, &info) ||
      reinterpret_cast<std::uintptr_t>(info.dli_fbase) != map->l_addr)
    return Status::error("{}: kernel '{}' is missing from it", what, name);
  return reinterpret_cast<KernelFunction>(symbol);
}

} // namespace tessera::hal
