#include "runtime/hal/cuda/Gpu.h"

#include "runtime/hal/Device.h"

#include <algorithm>
#include <cstring>

namespace tessera::hal::cuda {
namespace {

/// "there is 1 GPU, cuda:0"
std::string knownGpus(int count) {
  if (count == 1)
    return "there is 1 GPU, cuda:0";
  return fmt::format("there are {} GPUs, cuda:0 to cuda:{}", count, count - 1);
}

Status checkOrdinal(const Driver &library, int ordinal) {
  int count = 0;
  TESSERA_RETURN_IF_ERROR(library.deviceCount(&count));
  if (ordinal < 0 || ordinal >= count)
    return Status::error("no such device: {}", knownGpus(count));
  return Status::success();
}

} // namespace

Gpu::Gpu(std::shared_ptr<const Driver> library, int ordinal)
    : library(std::move(library)), label(fmt::format("cuda:{}", ordinal)) {}

StatusOr<std::shared_ptr<Gpu>> Gpu::open(int ordinal) {
  auto library = Driver::load();
  if (!library.ok())
    return library.status();
  std::shared_ptr<Gpu> gpu(new Gpu(library.take(), ordinal));
  Status status = gpu->find(ordinal);
  if (status.ok())
    status = gpu->enter([&] { return gpu->prepare(); });
  if (!status.ok())
    return Status::error("{}: {}", gpu->label, status.message());
  return gpu;
}

Status Gpu::check(int ordinal) {
  auto library = Driver::load();
  if (!library.ok())
    return library.status();
  Status status = checkOrdinal(**library, ordinal);
  return status.ok() ? status
                     : Status::error("cuda:{}: {}", ordinal, status.message());
}

Status Gpu::find(int ordinal) {
  int major = 0, minor = 0, shared = 0, cache = 0;
  TESSERA_RETURN_IF_ERROR(checkOrdinal(*library, ordinal));
  TESSERA_RETURN_IF_ERROR(library->deviceGet(&device, ordinal));
  std::array<char, 256> text{};
  TESSERA_RETURN_IF_ERROR(
      library->deviceName(text.data(), static_cast<int>(text.size()), device));
  text.back() = 0;
  chip = text.data();
  const auto attribute = [&](DeviceAttribute which, int &value) {
    return library->deviceAttribute(&value, which, device);
  };
  TESSERA_RETURN_IF_ERROR(attribute(kCapabilityMajor, major));
  TESSERA_RETURN_IF_ERROR(attribute(kCapabilityMinor, minor));
  TESSERA_RETURN_IF_ERROR(attribute(kMaxSharedBytesOptIn, shared));
  TESSERA_RETURN_IF_ERROR(attribute(kMultiprocessorCount, multiprocessors));
  TESSERA_RETURN_IF_ERROR(attribute(kL2Bytes, cache));
  computeCapability = static_cast<unsigned>(10 * major + minor);
  sharedBytes = static_cast<std::uint64_t>(shared);
  cacheBytes = static_cast<std::uint64_t>(std::max(cache, 0));
  return library->contextRetain(&context, device);
}

Status Gpu::prepare() {
  std::size_t free = 0, total = 0;
  TESSERA_RETURN_IF_ERROR(library->memoryInfo(&free, &total));
  memoryBytes = total;
  TESSERA_RETURN_IF_ERROR(library->streamCreate(&work, kStreamNonBlocking));
  for (Stage &stage : stages) {
    void *memory = nullptr;
    TESSERA_RETURN_IF_ERROR(library->hostAllocate(&memory, kPiece, 0));
    stage.memory = static_cast<std::byte *>(memory);
    TESSERA_RETURN_IF_ERROR(
        library->eventCreate(&stage.copied, kEventDisableTiming));
  }
  return Status::success();
}

Gpu::~Gpu() {
  if (!context)
    return;
  (void)enter([&] {
    if (work)
      (void)library->streamSynchronize(work);
    for (const Stage &stage : stages) {
      if (stage.copied)
        (void)library->eventDestroy(stage.copied);
      if (stage.memory)
        (void)library->hostFree(stage.memory);
    }
    return work ? library->streamDestroy(work) : Status::success();
  });
  (void)library->contextRelease(device);
}

std::string Gpu::describe() const {
  return fmt::format("{}: {}, compute capability {}.{}, {} multiprocessors, "
                     "{}, driver for CUDA {}",
                     label, chip, computeCapability / 10,
                     computeCapability % 10, multiprocessors,
                     gibibytes(memoryBytes),
                     versionText(library->cudaVersion()));
}

Status Gpu::checkFree(std::uint64_t planned) const {
  std::size_t free = 0, total = 0;
  TESSERA_RETURN_IF_ERROR(
      enter([&] { return library->memoryInfo(&free, &total); }));
  if (planned <= free)
    return Status::success();
  return Status::error(
      "{} ({}): {} of memory are planned, but {} of {} are free: compile for "
      "a smaller batch or with recompute, or take a GPU with more memory",
      label, chip, gibibytes(planned), gibibytes(free), gibibytes(total));
}

StatusOr<Owned<Address>> Gpu::allocate(std::uint64_t bytes,
                                       std::string_view what) {
  const std::uint64_t size = std::max<std::uint64_t>(bytes, 1);
  Owned<Address> memory;
  const Status status = enter([&] {
    Address address = 0;
    const Result result = library->memoryAllocate.result(&address, size);
    if (result == kOutOfMemory) {
      std::size_t free = 0, total = 0;
      TESSERA_RETURN_IF_ERROR(library->memoryInfo(&free, &total));
      return Status::error("{} of {} are free", gibibytes(free),
                           gibibytes(total));
    }
    TESSERA_RETURN_IF_ERROR(library->memoryAllocate.check(result));
    memory = Owned<Address>(shared_from_this(), address, library->memoryFree);
    TESSERA_RETURN_IF_ERROR(library->fill(address, 0, size, work));
    return library->streamSynchronize(work);
  });
  if (!status.ok())
    return Status::error("{}: cannot allocate {} for {}: {}", label,
                         gibibytes(bytes), what, status.message());
  return memory;
}

Status Gpu::upload(Address to, std::span<const std::byte> from) {
  if (from.empty())
    return Status::success();
  const std::lock_guard lock(staging);
  return enter([&] {
    const Status sent = sendPieces(to, from);
    // After an error too: no copy may still read or write a stage.
    const Status done = library->streamSynchronize(work);
    return sent.ok() ? done : sent;
  });
}

Status Gpu::sendPieces(Address to, std::span<const std::byte> from) {
  for (std::uint64_t offset = 0; offset < from.size(); offset += kPiece) {
    const auto piece = from.subspan(
        offset, std::min<std::uint64_t>(kPiece, from.size() - offset));
    const Stage &stage = stages[offset / kPiece % stages.size()];
    if (offset >= kPiece * stages.size())
      TESSERA_RETURN_IF_ERROR(library->eventSynchronize(stage.copied));
    std::memcpy(stage.memory, piece.data(), piece.size());
    TESSERA_RETURN_IF_ERROR(
        library->copyToDevice(to + offset, stage.memory, piece.size(), work));
    TESSERA_RETURN_IF_ERROR(library->eventRecord(stage.copied, work));
  }
  return Status::success();
}

Status Gpu::download(std::span<std::byte> to, Address from) {
  std::byte *next = to.data();
  return download(from, to.size(), [&](std::span<const std::byte> piece) {
    std::memcpy(next, piece.data(), piece.size());
    next += piece.size();
  });
}

Status
Gpu::download(Address from, std::uint64_t bytes,
              const std::function<void(std::span<const std::byte>)> &take) {
  if (bytes == 0)
    return Status::success();
  const std::lock_guard lock(staging);
  return enter([&] {
    Status status = receivePieces(from, bytes, take);
    if (!status.ok())
      (void)library->streamSynchronize(work);
    return status;
  });
}

Status Gpu::receivePieces(
    Address from, std::uint64_t bytes,
    const std::function<void(std::span<const std::byte>)> &take) {
  const auto sizeOf = [&](std::uint64_t offset) {
    return std::min(kPiece, bytes - offset);
  };
  const auto request = [&](std::uint64_t offset) {
    const Stage &stage = stages[offset / kPiece % stages.size()];
    TESSERA_RETURN_IF_ERROR(
        library->copyToHost(stage.memory, from + offset, sizeOf(offset), work));
    return library->eventRecord(stage.copied, work);
  };
  TESSERA_RETURN_IF_ERROR(request(0));
  for (std::uint64_t offset = 0; offset < bytes; offset += kPiece) {
    // The next piece travels while this one is taken.
    if (bytes - offset > kPiece)
      TESSERA_RETURN_IF_ERROR(request(offset + kPiece));
    const Stage &stage = stages[offset / kPiece % stages.size()];
    TESSERA_RETURN_IF_ERROR(library->eventSynchronize(stage.copied));
    take({stage.memory, sizeOf(offset)});
  }
  return Status::success();
}

} // namespace tessera::hal::cuda
