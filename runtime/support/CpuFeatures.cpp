#include "runtime/support/CpuFeatures.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera {
namespace {

enum Register : std::uint8_t { eax, ebx, ecx, edx };

// Registers that the system has to save for a feature to be of use.
enum class State : std::uint8_t { ymm, zmm, tiles };

// Intel SDM volume 2, CPUID: leaf, subleaf, register and bit of each feature.
struct Feature {
  std::string_view name;
  unsigned leaf, subleaf;
  Register where;
  unsigned bit;
  State state;
};

constexpr Feature kFeatures[] = {
    {"avx2", 7, 0, ebx, 5, State::ymm},
    {"fma", 1, 0, ecx, 12, State::ymm},
    {"f16c", 1, 0, ecx, 29, State::ymm},
    {"avx512f", 7, 0, ebx, 16, State::zmm},
    {"avx512bw", 7, 0, ebx, 30, State::zmm},
    {"avx512dq", 7, 0, ebx, 17, State::zmm},
    {"avx512vl", 7, 0, ebx, 31, State::zmm},
    {"avx512_vnni", 7, 0, ecx, 11, State::zmm},
    {"avx512_bf16", 7, 1, eax, 5, State::zmm},
    {"amx_tile", 7, 0, edx, 24, State::tiles},
    {"amx_bf16", 7, 0, edx, 22, State::tiles},
};

#if defined(__x86_64__)
// XCR0: bit 1 xmm, 2 ymm, 5 opmask, 6 upper halves of zmm0-15, 7 zmm16-31, 17
// the shapes of AMX's registers, 18 their contents.
constexpr std::uint64_t kYmmState = 0x06, kZmmState = 0xe6,
                        kTileState = 0x600e6;

std::uint64_t bitsOf(State state) {
  return state == State::ymm   ? kYmmState
         : state == State::zmm ? kZmmState
                               : kTileState;
}

// A process has AMX's registers once it has asked for them (Linux 5.16,
// Documentation/arch/x86/xstate.rst): for all of its threads.
bool mayUseTiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool granted =
      ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
}

std::uint64_t savedRegisters() {
  unsigned regs[4];
  if (!__get_cpuid(1, &regs[eax], &regs[ebx], &regs[ecx], &regs[edx]) ||
      !(regs[ecx] & (1u << 27))) // OSXSAVE: xgetbv may be executed
    return 0;
  std::uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

bool reported(const Feature &feature) {
  unsigned regs[4];
  return __get_cpuid_count(feature.leaf, feature.subleaf, &regs[eax],
                           &regs[ebx], &regs[ecx], &regs[edx]) &&
         (regs[feature.where] >> feature.bit & 1);
}
#endif

} // namespace

CpuFeatures CpuFeatures::detect() {
  CpuFeatures features;
#if defined(__x86_64__)
  const std::uint64_t saved = savedRegisters();
  for (std::size_t i = 0; i < std::size(kFeatures); ++i) {
    const std::uint64_t needed = bitsOf(kFeatures[i].state);
    if ((saved & needed) == needed && reported(kFeatures[i]) &&
        (kFeatures[i].state != State::tiles || mayUseTiles()))
      features.present |= 1u << i;
  }
#endif
  return features;
}

CpuFeatures CpuFeatures::of(const std::vector<std::string_view> &names) {
  CpuFeatures features;
  const auto &known = knownNames();
  for (std::string_view name : names) {
    const auto found = std::find(known.begin(), known.end(), name);
    assert(found != known.end() && "unknown processor feature");
    features.present |= 1u << (found - known.begin());
  }
  return features;
}

bool CpuFeatures::has(std::string_view name) const {
  for (std::size_t i = 0; i < std::size(kFeatures); ++i)
    if (kFeatures[i].name == name)
      return present >> i & 1;
  return false;
}

CpuFeatures CpuFeatures::without(std::string_view name) const {
  CpuFeatures result = *this;
  for (std::size_t i = 0; i < std::size(kFeatures); ++i)
    if (kFeatures[i].name == name)
      result.present &= ~(1u << i);
  return result;
}

std::vector<std::string_view> CpuFeatures::names() const {
  std::vector<std::string_view> names;
  for (std::string_view name : knownNames())
    if (has(name))
      names.push_back(name);
  return names;
}

const std::vector<std::string_view> &CpuFeatures::knownNames() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> list;
    for (const Feature &feature : kFeatures)
      list.push_back(feature.name);
    return list;
  }();
  return names;
}

std::string CpuFeatures::brand() {
#if defined(__x86_64__)
  unsigned words[12];
  for (unsigned i = 0; i < 3; ++i) {
    unsigned *four = words + std::size_t(4) * i;
    if (!__get_cpuid(0x80000002 + i, &four[0], &four[1], &four[2], &four[3]))
      return "unknown x86-64 processor";
  }
  char text[sizeof(words) + 1] = {};
  std::memcpy(text, words, sizeof(words));
  std::string name = text;
  name.erase(0, name.find_first_not_of(' '));
  return name;
#else
  return "not an x86-64 processor";
#endif
}

} // namespace tessera
