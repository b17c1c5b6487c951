#include "runtime/hal/cuda/TensorMaps.h"

#include "runtime/hal/host/TensorBoxes.h"

namespace tessera::hal::cuda {

// The driver requires a current context, though it encodes on the host.
static Status encode(const Gpu &gpu, const device::TensorBoxes &boxes,
                     device::TensorMap &map) {
  const std::uint32_t steps[] = {1, 1, 1, 1, 1};
  return gpu.enter([&] {
    return gpu.driver().encodeTensorMap(
        &map, static_cast<int>(boxes.element), boxes.rank,
        reinterpret_cast<void *>(boxes.base), // NOLINT: the device's
        boxes.sizes, boxes.strides, boxes.box, steps, kNoInterleaving,
        static_cast<int>(boxes.swizzle), kPromoteTo128Bytes, kZerosOutside);
  });
}

Status TensorMaps::add(const Gpu &gpu, const Commands &code,
                       const LaunchCommand &launch) {
  const std::uint32_t count = mapsOf(*launch.kernel);
  if (count == 0)
    return Status::success();
  // The validator allows one instance.
  const LaunchInstance &instance = code.instances[launch.firstInstance];
  std::vector<std::uint64_t> key{launch.kernelIndex};
  for (std::uint32_t i = 0; i < launch.kernel->access()->size(); ++i)
    key.push_back(reinterpret_cast<std::uintptr_t>(
        code.pointers[instance.firstPointer + i]));
  const auto [entry, isNew] =
      known.try_emplace(key, all.size() * sizeof(device::TensorMap));
  offsets.push_back(entry->second);
  if (!isNew)
    return Status::success();
  for (std::uint32_t i = 0; i < count; ++i) {
    const artifact::TensorMap &map = *launch.kernel->gpu()->maps()->Get(i);
    TESSERA_RETURN_IF_ERROR(
        encode(gpu, boxesOf(map, key[1 + map.buffer()]), all.emplace_back()));
  }
  return Status::success();
}

Status TensorMaps::upload(const std::shared_ptr<Gpu> &gpu) {
  known.clear();
  if (all.empty())
    return Status::success();
  const auto bytes = std::as_bytes(std::span(all));
  auto allocated = gpu->allocate(bytes.size(), "the launches' tensor maps");
  if (!allocated.ok())
    return allocated.status();
  memory = allocated.take();
  const Status status = gpu->upload(memory.get(), bytes);
  std::vector<device::TensorMap>().swap(all);
  return status;
}

Address TensorMaps::next(const LaunchCommand &launch) {
  return mapsOf(*launch.kernel) ? memory.get() + offsets[position++] : 0;
}

} // namespace tessera::hal::cuda
