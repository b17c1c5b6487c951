// The way to use an artifact: open it, run its programs by name, read and
// write its tensors by name.
//
//   auto session = hal::Session::open("train.tsr", {});
//   session->run("init"); …
//
#pragma once
#include "runtime/hal/Device.h"
#include "runtime/hal/Mesh.h"
#include "runtime/hal/Profile.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::hal {

/// A tensor of the state, or an input or output of a program, as this rank has
/// it. Strings and shape point into the artifact.
struct TensorInfo {
  std::string_view name; ///< the checkpoint's name
  artifact::ElementType type;
  /// Of the local tensor; row-major; empty: a scalar.
  std::span<const std::int64_t> shape;
  artifact::Role role;
  std::uint64_t offset; ///< in its space
  std::uint64_t bytes;
  bool decay; ///< weight decay applies
  /// The tensor in the artifact. Its cuts (Shares.h) define which elements of
  /// the whole tensor these are.
  const artifact::Tensor *source;

  std::uint64_t elements() const;
};

/// Bytes that are planned before anything runs, by what they are for.
struct MemoryPlan {
  std::uint64_t state = 0;   ///< weights, optimizer moments, counters
  std::uint64_t arena = 0;   ///< largest arena of the session's programs
  std::uint64_t io = 0;      ///< inputs and outputs of all of them
  std::uint64_t scratch = 0; ///< the kernels' scratch, all threads
  std::uint64_t peak() const { return state + arena + io + scratch; }
  /// "state 1.2 GiB + arena … = 1.6 GiB"
  std::string describe() const;
};

struct SessionOptions {
  std::string device = "cpu"; ///< as createDevice takes it
  DeviceOptions deviceOptions;
  RecordOptions recordOptions;
  /// Programs to prepare; empty: all. Only these count in the memory plan.
  std::vector<std::string> programs;
  MeshContext mesh;
};

/// One rank of an artifact. Owns device, memory and loaded code. One thread at
/// a time. After open(), nothing below allocates memory unless it returns an
/// error or a string.
class Session {
public:
  static StatusOr<std::unique_ptr<Session>> open(const std::string &path,
                                                 const SessionOptions &options);
  static StatusOr<std::unique_ptr<Session>> open(const ArtifactReader &artifact,
                                                 const SessionOptions &options);

  const artifact::Artifact &artifact() const { return reader.root(); }
  const ArtifactReader &artifactReader() const { return reader; }
  const Device &device() const { return *owner; }
  /// The part of the artifact that the device runs.
  const artifact::DeviceCode &code() const { return *chosen; }
  /// The code object that was chosen.
  std::string_view target() const { return executable->target(); }
  MemoryPlan memory() const;
  /// How much of memory().peak() this process has touched so far, that is, the
  /// planned part of its resident memory. Zero for device memory.
  StatusOr<std::uint64_t> residentBytes() const;

  bool hasProgram(std::string_view program) const;
  /// Runs a program to its end. The state is zero until "init" or writeState.
  Status run(std::string_view program);

  /// In the artifact's order. An unknown program has none. The offsets of the
  /// rank's shards ("mesh.offsets") are not among the inputs: the session
  /// writes them.
  std::span<const TensorInfo> state() const { return stateTensors; }
  std::span<const TensorInfo> inputs(std::string_view program) const;
  std::span<const TensorInfo> outputs(std::string_view program) const;
  /// Null if the tensor does not exist.
  const TensorInfo *findState(std::string_view name) const;

  /// Part of a state tensor, from byte `offset` of it. The part must be within
  /// the tensor.
  Status readState(std::string_view name, std::span<std::byte> to,
                   std::uint64_t offset = 0) const;
  Status writeState(std::string_view name, std::span<const std::byte> from,
                    std::uint64_t offset = 0);
  /// A state tensor's bytes where the host can address them; otherwise, and of
  /// an unknown one, none. Must not be written while a program runs.
  std::span<std::byte> stateInMemory(std::string_view name);
  /// The whole tensor: the span's size must be the tensor's.
  Status writeInput(std::string_view program, std::string_view name,
                    std::span<const std::byte> from);
  Status readOutput(std::string_view program, std::string_view name,
                    std::span<std::byte> to) const;

  template <typename T>
  Status writeInput(std::string_view program, std::string_view name,
                    std::span<const T> from) {
    return writeInput(program, name, std::as_bytes(from));
  }
  /// An output of one element, such as a metric; sizeof(T) must fit its type.
  template <typename T>
  StatusOr<T> readScalar(std::string_view program,
                         std::string_view name) const {
    T value{};
    TESSERA_RETURN_IF_ERROR(readOutput(
        program, name, std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }

  /// Memory of the session's device. `what` names it in errors.
  StatusOr<std::unique_ptr<Buffer>> allocate(std::uint64_t bytes,
                                             std::string_view what) {
    return owner->allocate(bytes, what);
  }
  /// Records a program that the caller made from the steps of one of this
  /// session's, over the session's state and arena. `io`, the program and the
  /// session must outlive the list.
  StatusOr<std::unique_ptr<CommandList>> record(const artifact::Program &made,
                                                Buffer &io,
                                                const RecordOptions &options);

  /// The profiles of the programs that ran; empty unless recorded with
  /// `profile`. See Profile::table and chromeTrace.
  std::vector<const Profile *> profiles() const;

private:
  struct Prepared {
    std::vector<TensorInfo> inputs, outputs;
    std::unique_ptr<Buffer> io;
    std::unique_ptr<CommandList> commands;
  };
  Session(const ArtifactReader &reader, std::unique_ptr<Device> device)
      : reader(reader), owner(std::move(device)) {}
  Status prepare(const SessionOptions &options);
  Status prepareProgram(const artifact::Program &program,
                        const RecordOptions &options);
  Status writeOffsets(const artifact::Program &program, Buffer &io) const;
  StatusOr<std::vector<const artifact::Program *>>
  chosenPrograms(const SessionOptions &options) const;
  const Prepared *find(std::string_view program) const;
  Status unknownProgram(std::string_view program) const;
  Status unknownState(std::string_view name) const;

  ArtifactReader reader;
  std::unique_ptr<Device> owner; // before what it made, so destroyed after it
  const artifact::DeviceCode *chosen = nullptr;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<MeshChannels> channels; // null: alone
  std::unique_ptr<Buffer> stateBuffer, arenaBuffer;
  std::vector<TensorInfo> stateTensors;
  std::unordered_map<std::string_view, std::size_t> stateIndex;
  std::map<std::string_view, Prepared> programs;
};

} // namespace tessera::hal
