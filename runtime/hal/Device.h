// The hardware abstraction: five small interfaces that the CPU, the null and
// every later device implement, and that one conformance suite
// (test/runtime/hal) holds them to.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/hal/cpu/ProcessorShare.h"
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera::hal {

class MeshChannels;
class Profile;

/// Memory of a device: zero at first, at least 64-byte aligned, of fixed size.
class Buffer {
public:
  virtual ~Buffer() = default;
  virtual std::uint64_t bytes() const = 0;
  /// Copies from or to the host. A range outside the buffer is an error. Must
  /// not overlap in time with the run of a program bound to the buffer.
  virtual Status write(std::uint64_t offset,
                       std::span<const std::byte> from) = 0;
  virtual Status read(std::uint64_t offset, std::span<std::byte> to) const = 0;
  /// The buffer itself where the host can address it, otherwise null.
  virtual std::byte *host() { return nullptr; }
};

/// The kernels of an artifact, loaded. Must outlive its command lists.
class Executable {
public:
  virtual ~Executable() = default;
  /// CodeObject.target of what was loaded.
  virtual std::string_view target() const = 0;
  /// Device memory that launches need beyond the program's own spaces.
  virtual std::uint64_t scratchBytes() const = 0;
  /// That memory where the host can address it, otherwise empty.
  virtual std::span<const std::byte> scratch() const { return {}; }
};

/// A program with every address resolved. Owned by the caller; the executable
/// and the buffers it was recorded with must outlive it.
class CommandList {
public:
  virtual ~CommandList() = default;
  /// Runs the program to its end; allocates no memory. The arena's contents are
  /// undefined before and after. Not to be called from two threads at once,
  /// neither on one list nor on two that share a device.
  virtual Status run() = 0;
  /// What was measured so far; null unless recorded with `profile`.
  virtual const Profile *profile() const { return nullptr; }
};

/// The buffers of a program's three spaces; each at least as large as the
/// program says. A space of zero bytes may be null.
struct Bindings {
  Buffer *state = nullptr;
  Buffer *arena = nullptr;
  Buffer *io = nullptr;
  /// Channels for the program's collectives (Mesh.h); null: no other ranks.
  const MeshChannels *channels = nullptr;
};

/// For devices: an error that names the space whose buffer is too small.
Status checkBindings(const artifact::Share &share,
                     const artifact::Program &program,
                     const Bindings &bindings);
/// For devices: an error if [offset, offset + count) leaves a buffer of
/// `bytes` that is called `what`.
Status checkRange(std::uint64_t offset, std::uint64_t count,
                  std::uint64_t bytes, std::string_view what);

/// For devices: why none of the artifact's code is for `device`, and the
/// command that compiles it for `target` too.
Status noCodeFor(const ArtifactReader &artifact, std::string_view device,
                 std::string_view target);

/// "1.5 MiB", "12.25 GiB"
std::string gibibytes(std::uint64_t bytes);

struct RecordOptions {
  /// Time every step (two clock reads a launch).
  bool profile = false;
  /// Events kept for a Chrome trace; later ones are counted and dropped.
  std::size_t traceEvents = 0;
  /// After every launch, look for NaN and infinity in what it wrote, as far as
  /// Kernel.element_types names the types. Slow: for finding the culprit.
  bool checkFinite = false;
};

class Device {
public:
  virtual ~Device() = default;
  /// "cpu", "null", "cuda-emu", "cuda:0".
  virtual std::string_view name() const = 0;
  /// One line for display: model, features, threads.
  virtual std::string describe() const = 0;
  /// `what` names the buffer in errors.
  virtual StatusOr<std::unique_ptr<Buffer>> allocate(std::uint64_t bytes,
                                                     std::string_view what) = 0;
  /// An error if the bytes, all that will be allocated, are more than the
  /// device has free. Devices in the host's memory leave that to the host.
  virtual Status checkFree(std::uint64_t /*bytes*/) const {
    return Status::success();
  }
  /// The section of the rank's share for this device. An error says what the
  /// artifact has instead, and how to compile what is missing.
  virtual StatusOr<const artifact::DeviceCode *>
  choose(const ArtifactReader &artifact) const = 0;
  /// Chooses the code objects for this device and loads them. `code` is what
  /// choose() made of this artifact.
  virtual StatusOr<std::unique_ptr<Executable>>
  load(const ArtifactReader &artifact, const artifact::DeviceCode &code) = 0;
  /// `program` must belong to the code that the executable was loaded from.
  virtual StatusOr<std::unique_ptr<CommandList>>
  record(Executable &executable, const artifact::Program &program,
         const Bindings &bindings, const RecordOptions &options) = 0;
};

class ThreadPool;

struct DeviceOptions {
  /// Threads that run kernels, the caller among them. 0: as many as the
  /// processors this process may use.
  unsigned threads = 0;
  /// Takes the code object of this target, "cpu:avx2" or just "avx2", instead
  /// of the first that fits (for programs of bf16, the first that is fast:
  /// bf16DotPays). Empty: the environment variable TESSERA_CPU, if
  /// it is set. The machine must have its features either way.
  std::string cpuTarget;
  /// From which the emulated GPU draws the order of blocks and threads. 0: the
  /// environment variable TESSERA_EMU_SEED, if it is set.
  std::uint64_t emulatorSeed = 0;
  /// How the emulated GPU computes. "exact": sums of tensor cores term by term
  /// and functions as the host's. "hardware" or "hardware:SEED": sums as tensor
  /// cores round them, and functions off by as much as is documented, drawn
  /// from the seed (runtime/hal/emulated/README.md). Empty: the environment
  /// variable TESSERA_EMU_NUMERICS if it is set, otherwise "exact".
  std::string emulatorNumerics = {};
  /// How steps reach a GPU: "graph", all of a program at once; "stream", one by
  /// one; "step", waiting for each, so that errors name it. Empty: the
  /// environment variable TESSERA_CUDA, if it is set, otherwise "graph".
  std::string cudaMode = {};
  /// Which implementation computes a matmul on a GPU, the generated kernel or
  /// cuBLASLt. "on": the faster one, timed for at most two seconds when an
  /// artifact is loaded. A number: the same, for at most so many seconds.
  /// "off": chosen by size. "generated": always the generated kernel. Empty:
  /// the environment variable TESSERA_TUNE if it is set, otherwise "on".
  std::string tune = {};
  /// CPUs: with whom the processors are shared, if anyone.
  SharedProcessors processors = {};
  /// CPUs: the threads that run kernels, instead of new ones. All devices that
  /// have them must be used by one thread at a time.
  std::shared_ptr<ThreadPool> pool = {};
};

/// An error unless a kind of device is called as `name` is up to its colon.
Status checkDeviceName(std::string_view name);
/// The same, and that a GPU is there: for those that work long before they use
/// it.
Status checkDevice(std::string_view name);

/// The device of that name: "cpu", "null", "cuda-emu", "cuda". What follows a
/// colon chooses among its kind: "cpu:avx2" as DeviceOptions.cpuTarget,
/// "cuda-emu:sm_80" and "null:cuda:sm_80" that part of the artifact, "cuda:1"
/// that GPU.
StatusOr<std::unique_ptr<Device>> createDevice(std::string_view name,
                                               const DeviceOptions &options);

} // namespace tessera::hal
