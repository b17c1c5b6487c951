#include "runtime/hal/null/NullDevice.h"

#include "runtime/hal/null/PlanCheck.h"

#include <algorithm>

namespace tessera::hal {
namespace {

class NullBuffer : public Buffer {
public:
  NullBuffer(std::uint64_t bytes, std::string_view what)
      : length(bytes), what(what) {}
  std::uint64_t bytes() const override { return length; }
  Status write(std::uint64_t offset, std::span<const std::byte> from) override {
    return checkRange(offset, from.size(), length, what);
  }
  Status read(std::uint64_t offset, std::span<std::byte> to) const override {
    std::fill(to.begin(), to.end(), std::byte(0));
    return checkRange(offset, to.size(), length, what);
  }

private:
  std::uint64_t length;
  std::string what;
};

class NullExecutable : public Executable {
public:
  NullExecutable(const ArtifactReader &artifact,
                 const artifact::DeviceCode &code)
      : artifact(artifact), code(code) {}
  std::string_view target() const override { return "null"; }
  std::uint64_t scratchBytes() const override { return 0; }

  ArtifactReader artifact;
  const artifact::DeviceCode &code;
};

class NullCommandList : public CommandList {
public:
  Status run() override { return Status::success(); }
};

class NullDevice : public Device {
public:
  explicit NullDevice(std::string_view kind) : kind(kind) {}
  std::string_view name() const override { return "null"; }
  std::string describe() const override {
    return "checks programs, runs nothing";
  }
  StatusOr<std::unique_ptr<Buffer>> allocate(std::uint64_t bytes,
                                             std::string_view what) override {
    return std::unique_ptr<Buffer>(std::make_unique<NullBuffer>(bytes, what));
  }
  StatusOr<const artifact::DeviceCode *>
  choose(const ArtifactReader &artifact) const override;
  StatusOr<std::unique_ptr<Executable>>
  load(const ArtifactReader &artifact,
       const artifact::DeviceCode &code) override {
    return std::unique_ptr<Executable>(
        std::make_unique<NullExecutable>(artifact, code));
  }
  StatusOr<std::unique_ptr<CommandList>>
  record(Executable &executable, const artifact::Program &program,
         const Bindings &bindings, const RecordOptions &options) override;

private:
  std::string kind; // empty: any
};

StatusOr<const artifact::DeviceCode *>
NullDevice::choose(const ArtifactReader &artifact) const {
  if (kind.empty())
    return artifact.share().devices()->Get(0);
  if (const artifact::DeviceCode *code = artifact.device(kind))
    return code;
  return noCodeFor(artifact, "null:" + kind, kind);
}

StatusOr<std::unique_ptr<CommandList>>
NullDevice::record(Executable &executable, const artifact::Program &program,
                   const Bindings &bindings, const RecordOptions &) {
  const auto &loaded = static_cast<NullExecutable &>(executable);
  TESSERA_RETURN_IF_ERROR(
      checkBindings(loaded.artifact.share(), program, bindings));
  TESSERA_RETURN_IF_ERROR(checkPlan(loaded.artifact, loaded.code, program));
  return std::unique_ptr<CommandList>(std::make_unique<NullCommandList>());
}

} // namespace

StatusOr<std::unique_ptr<Device>> createNullDevice(std::string_view which,
                                                   const DeviceOptions &) {
  return std::unique_ptr<Device>(std::make_unique<NullDevice>(which));
}

} // namespace tessera::hal
