// One GPU, shared by everything that uses it: the driver, its primary context,
// one stream, and pinned memory for copies from and to the host.
#pragma once
#include "runtime/hal/cuda/Driver.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::hal::cuda {

class Gpu;

/// Something of the driver's that is destroyed with the GPU's context current.
/// Keeps the GPU alive.
template <typename T> class Owned {
public:
  Owned() = default;
  Owned(std::shared_ptr<Gpu> gpu, T value, const Function<Result(T)> &destroy)
      : gpu(std::move(gpu)), value(value), destroy(&destroy) {}
  Owned(Owned &&other) noexcept { *this = std::move(other); }
  Owned &operator=(Owned &&other) noexcept {
    std::swap(gpu, other.gpu);
    std::swap(value, other.value);
    std::swap(destroy, other.destroy);
    return *this;
  }
  ~Owned();
  T get() const { return value; }

private:
  std::shared_ptr<Gpu> gpu; // null: nothing is owned
  T value{};
  const Function<Result(T)> *destroy = nullptr;
};

class Gpu : public std::enable_shared_from_this<Gpu> {
public:
  /// An error names the GPUs that there are.
  static StatusOr<std::shared_ptr<Gpu>> open(int ordinal);
  /// Whether open() would find one, at the price of the driver alone.
  static Status check(int ordinal);
  ~Gpu();
  Gpu(const Gpu &) = delete;
  Gpu &operator=(const Gpu &) = delete;

  const Driver &driver() const { return *library; }
  Stream stream() const { return work; }
  /// The primary context.
  Context primary() const { return context; }
  /// "cuda:0"
  const std::string &name() const { return label; }
  /// "NVIDIA H200"
  const std::string &model() const { return chip; }
  /// Ten times the compute capability: 90.
  unsigned capability() const { return computeCapability; }
  /// A block's shared memory at most.
  std::uint64_t maxSharedBytes() const { return sharedBytes; }
  std::uint64_t totalBytes() const { return memoryBytes; }
  std::uint64_t l2Bytes() const { return cacheBytes; }
  /// "cuda:0: NVIDIA H200, compute capability 9.0, …"
  std::string describe() const;

  /// Calls `body` with the context current on this thread, and makes the one
  /// current again that was.
  template <typename Body> Status enter(Body &&body) const {
    TESSERA_RETURN_IF_ERROR(library->contextPush(context));
    Status status = body();
    Context popped = nullptr;
    Status left = library->contextPop(&popped);
    return status.ok() ? left : status;
  }

  /// At least one byte of device memory, 256-byte aligned, zeroed. `what` names
  /// it in errors, which say how much is free.
  StatusOr<Owned<Address>> allocate(std::uint64_t bytes, std::string_view what);
  /// An error if `planned` bytes are more than is free.
  Status checkFree(std::uint64_t planned) const;

  /// Copies from or to the host, through pinned memory in pieces, after what
  /// the stream holds; returns when it is done.
  Status upload(Address to, std::span<const std::byte> from);
  Status download(std::span<std::byte> to, Address from);
  /// Hands `bytes` of device memory to `take` piece by piece, in order. All but
  /// the last have kPiece bytes.
  Status download(Address from, std::uint64_t bytes,
                  const std::function<void(std::span<const std::byte>)> &take);
  static constexpr std::uint64_t kPiece = std::uint64_t(4) << 20;

private:
  /// Pinned memory for one piece on its way.
  struct Stage {
    std::byte *memory = nullptr;
    Event copied = nullptr; ///< by the last copy that used `memory`
  };

  Gpu(std::shared_ptr<const Driver> library, int ordinal);
  Status find(int ordinal);
  Status prepare();
  Status sendPieces(Address to, std::span<const std::byte> from);
  Status
  receivePieces(Address from, std::uint64_t bytes,
                const std::function<void(std::span<const std::byte>)> &take);

  std::shared_ptr<const Driver> library;
  std::string label, chip;
  DeviceNumber device = 0;
  unsigned computeCapability = 0;
  std::uint64_t sharedBytes = 0, memoryBytes = 0, cacheBytes = 0;
  int multiprocessors = 0;
  Context context = nullptr;
  Stream work = nullptr;
  std::mutex staging; // of `stages`
  std::array<Stage, 2> stages;
};

template <typename T> Owned<T>::~Owned() {
  // After an error that destroyed the context, its objects are gone, too; a
  // destructor cannot report that.
  if (gpu)
    (void)gpu->enter([&] { return (*destroy)(value); });
}

} // namespace tessera::hal::cuda
