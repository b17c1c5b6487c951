#include "runtime/hal/cuda/InstanceTables.h"

namespace tessera::hal::cuda {

static bool hasTable(const LaunchCommand &launch) {
  return launch.endInstance - launch.firstInstance > 1;
}

void appendInstance(const Commands &code, const LaunchCommand &launch,
                    const LaunchInstance &instance,
                    std::vector<std::uint64_t> &words, Address firstMap,
                    std::uint32_t maps) {
  const artifact::Kernel &kernel = *launch.kernel;
  for (std::uint32_t i = 0; i < kernel.access()->size(); ++i)
    words.push_back(reinterpret_cast<std::uintptr_t>(
        code.pointers[instance.firstPointer + i]));
  for (std::uint32_t i = 0; i < maps; ++i)
    words.push_back(firstMap + i * sizeof(device::TensorMap));
  for (std::uint32_t i = 0; i < kernel.dynamic_sizes(); ++i)
    words.push_back(static_cast<std::uint64_t>(instance.sizes[i]));
  words.push_back(instance.firstBlock);
}

void InstanceTables::add(const Commands &code, const LaunchCommand &launch) {
  if (!hasTable(launch))
    return;
  std::vector<std::uint64_t> words;
  for (std::uint32_t i = launch.firstInstance + 1; i < launch.endInstance; ++i)
    appendInstance(code, launch, code.instances[i], words);
  const auto [entry, isNew] =
      known.try_emplace(words, all.size() * sizeof(std::uint64_t));
  if (isNew)
    all.insert(all.end(), words.begin(), words.end());
  offsets.push_back(entry->second);
}

Status InstanceTables::upload(const std::shared_ptr<Gpu> &gpu) {
  known.clear();
  if (all.empty())
    return Status::success();
  const auto bytes = std::as_bytes(std::span(all));
  auto allocated = gpu->allocate(bytes.size(), "the launches' arguments");
  if (!allocated.ok())
    return allocated.status();
  memory = allocated.take();
  const Status status = gpu->upload(memory.get(), bytes);
  std::vector<std::uint64_t>().swap(all);
  return status;
}

Address InstanceTables::next(const LaunchCommand &launch) {
  return hasTable(launch) ? memory.get() + offsets[position++] : 0;
}

} // namespace tessera::hal::cuda
