#include "test/runtime/hal/cuda/FakeCubin.h"

#include <cstdint>
#include <cstring>
#include <elf.h>
#include <string_view>

namespace tessera::test {
namespace {

constexpr unsigned kCudaMachine = 190;
/// The first version of the format whose flags have the architecture in bits 8
/// to 15; nvcc 13 writes it.
constexpr unsigned kAbiVersion = 8;

/// Attributes of a kernel in its section ".nv.info.NAME".
constexpr unsigned kMaxThreads = 0x05, kArgumentBytes = 0x19;
/// How an attribute is written: a number within its 4 bytes, or as many bytes
/// behind them as it says.
constexpr unsigned kHalfWord = 3, kSized = 4;

template <typename T> T at(const void *image, std::size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char *>(image) + offset, sizeof value);
  return value;
}

void readInfo(const void *image, const Elf64_Shdr &section,
              CubinKernel &kernel) {
  for (std::size_t i = 0; i + 4 <= section.sh_size;) {
    const std::size_t offset = section.sh_offset + i;
    const auto format = at<std::uint8_t>(image, offset),
               attribute = at<std::uint8_t>(image, offset + 1);
    const auto value = at<std::uint16_t>(image, offset + 2);
    if (format == kHalfWord && attribute == kArgumentBytes)
      kernel.argumentBytes = value;
    if (format == kSized && attribute == kMaxThreads)
      kernel.maxThreads = at<std::uint32_t>(image, offset + 4);
    i += 4 + (format == kSized ? value : 0u);
  }
}

/// The kernel's name if the section's is `prefix` and that.
std::string_view after(std::string_view section, std::string_view prefix) {
  return section.starts_with(prefix) ? section.substr(prefix.size()) : "";
}

} // namespace

bool isCubin(const void *image) {
  return std::memcmp(image, ELFMAG, SELFMAG) == 0 &&
         at<Elf64_Ehdr>(image, 0).e_machine == kCudaMachine;
}

StatusOr<Cubin> readCubin(const void *image) {
  const auto header = at<Elf64_Ehdr>(image, 0);
  if (header.e_ident[EI_ABIVERSION] < kAbiVersion)
    return Status::error("a cubin of an older format, {}",
                         header.e_ident[EI_ABIVERSION]);
  Cubin cubin;
  cubin.capability = header.e_flags >> 8 & 0xff;
  const auto section = [&](std::size_t index) {
    return at<Elf64_Shdr>(image, header.e_shoff + index * header.e_shentsize);
  };
  const std::size_t names = section(header.e_shstrndx).sh_offset;
  // Code first, which makes the kernels; all else describes them.
  for (const bool isCode : {true, false})
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
      const Elf64_Shdr one = section(i);
      const std::string_view name =
          static_cast<const char *>(image) + names + one.sh_name;
      if (const auto kernel = after(name, ".text."); isCode && !kernel.empty())
        cubin.kernels[std::string(kernel)];
      if (isCode)
        continue;
      if (const auto found =
              cubin.kernels.find(std::string(after(name, ".nv.info.")));
          found != cubin.kernels.end())
        readInfo(image, one, found->second);
      if (const auto found =
              cubin.kernels.find(std::string(after(name, ".nv.shared.")));
          found != cubin.kernels.end())
        found->second.staticSharedBytes = static_cast<unsigned>(one.sh_size);
    }
  return cubin;
}

} // namespace tessera::test
