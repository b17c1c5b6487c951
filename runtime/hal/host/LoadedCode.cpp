#include "runtime/hal/host/LoadedCode.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace tessera::hal {
namespace {

#if defined(__x86_64__)
constexpr unsigned kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kMachine = EM_AARCH64;
#else
constexpr unsigned kMachine = EM_NONE;
#endif

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

StatusOr<void *> LoadedCode::symbol(const std::string &name) const {
  void *found = ::dlsym(handle, name.c_str());
  link_map *map = nullptr;
  Dl_info info;
  // dlsym also searches the object's dependencies: "memcpy" is not a kernel.
  if (!found ||
      ::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void *>(&map)) != 0 ||
      !::dladdr(found, &info) ||
      reinterpret_cast<std::uintptr_t>(info.dli_fbase) != map->l_addr)
    return Status::error("{}: '{}' is missing from it", what, name);
  return found;
}

} // namespace tessera::hal
