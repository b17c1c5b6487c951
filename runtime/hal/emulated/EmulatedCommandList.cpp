#include "runtime/hal/emulated/EmulatedCommandList.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/hal/emulated/TensorMap.h"
#include "runtime/hal/host/TensorBoxes.h"

#include <cstring>

namespace tessera::hal {
namespace {

/// A NaN of every floating-point type, and an odd negative integer.
constexpr std::uint8_t kPoison = 0xff;

device::Access accessOf(artifact::Access access) {
  // What a kernel has written it may read again.
  return access == artifact::Access::read ? device::Access::read
                                          : device::Access::readWrite;
}

} // namespace

EmulatedCommandList::EmulatedCommandList(
    std::string_view program, Commands commands, HostCollectives collectives,
    std::span<EmulatedFunction *const> kernels, const emulated::Chip &chip,
    std::uint64_t seed, const emulated::Numerics &numerics,
    std::span<std::byte> arena, const RecordOptions &options)
    : HostCommandList(program, std::move(commands), std::move(collectives),
                      arena, options, kPoison),
      kernels(kernels), chip(chip), seed(seed), numerics(numerics) {}

Status EmulatedCommandList::addInstance(const LaunchCommand &launch,
                                        const LaunchInstance &instance) {
  const artifact::Kernel &kernel = *launch.kernel;
  for (std::uint32_t i = 0; i < kernel.access()->size(); ++i) {
    void *const pointer = code.pointers[instance.firstPointer + i];
    words.push_back(reinterpret_cast<std::uintptr_t>(pointer));
    ranges.push_back({static_cast<const std::byte *>(pointer),
                      instance.source->args()->Get(i)->bytes(),
                      accessOf(kernel.access()->Get(i))});
  }
  maps.resize(mapsOf(kernel)); // of the only instance
  const std::size_t firstBuffer = words.size() - kernel.access()->size();
  for (std::uint32_t i = 0; i < maps.size(); ++i) {
    const artifact::TensorMap &map = *kernel.gpu()->maps()->Get(i);
    TESSERA_RETURN_IF_ERROR(emulated::makeTensorMap(
        boxesOf(map, words[firstBuffer + map.buffer()]), maps[i]));
    words.push_back(reinterpret_cast<std::uintptr_t>(&maps[i]));
  }
  for (std::uint32_t i = 0; i < kernel.dynamic_sizes(); ++i)
    words.push_back(static_cast<std::uint64_t>(instance.sizes[i]));
  words.push_back(instance.firstBlock);
  return Status::success();
}

// The arguments are device::Launch (runtime/device/Launch.cuh), word by word:
// the first instance, where the others lie, how many there are.
Status EmulatedCommandList::launch(const LaunchCommand &launch) {
  const artifact::Kernel &kernel = *launch.kernel;
  words.clear();
  ranges.clear();
  for (std::uint32_t i = launch.firstInstance; i < launch.endInstance; ++i)
    TESSERA_RETURN_IF_ERROR(addInstance(launch, code.instances[i]));
  const std::size_t each =
      kernel.access()->size() + mapsOf(kernel) + kernel.dynamic_sizes() + 1;
  std::vector<std::uint64_t> arguments(
      words.begin(), words.begin() + static_cast<std::ptrdiff_t>(each));
  arguments.push_back(reinterpret_cast<std::uintptr_t>(words.data() + each));
  arguments.push_back(launch.endInstance - launch.firstInstance);
  emulated::LaunchOptions options;
  options.kernel = kernel.name()->str();
  options.grid = {launch.blocks, 1, 1};
  options.threads = kernel.gpu()->threads();
  options.sharedBytes = kernel.gpu()->shared_bytes();
  options.chip = chip;
  options.numerics = numerics;
  options.registers = kernel.gpu()->registers();
  options.argumentBytes = arguments.size() * sizeof(std::uint64_t);
  // An odd factor: every launch has an order of its own.
  options.seed = seed + ++launches * 0x9e3779b97f4a7c15;
  return machine.launch(options, kernels[launch.kernelIndex], arguments.data(),
                        ranges);
}

void EmulatedCommandList::copy(std::byte *to, const std::byte *from,
                               std::uint64_t bytes) {
  std::memmove(to, from, bytes);
}

void EmulatedCommandList::fill(std::byte *to, std::uint8_t value,
                               std::uint64_t bytes) {
  std::memset(to, value, bytes);
}

} // namespace tessera::hal
