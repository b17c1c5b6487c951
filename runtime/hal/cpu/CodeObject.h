// Machine code of an artifact: which object fits this processor, and how its
// kernels come into the process.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/support/CpuFeatures.h"
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::hal {

/// A kernel's symbol. buffers[i] follows Kernel.access and is as long as the
/// launch's Arg says; `sizes` are the instance's dynamic sizes; blocks
/// [blockBegin, blockEnd) are processed; `scratch` belongs to the thread, is
/// 64-byte aligned and has at least Kernel.scratch_bytes.
using KernelFunction = void (*)(void *const *buffers, const std::int64_t *sizes,
                                std::int64_t blockBegin, std::int64_t blockEnd,
                                void *scratch);

/// The first code object of `code`, in its order, whose features `cpu` has.
/// With `forced` ("cpu:avx2" or "avx2") only that target is considered. The
/// error names each target and what it misses.
StatusOr<const artifact::CodeObject *>
chooseCodeObject(const ArtifactReader &artifact,
                 const artifact::DeviceCode &code, const CpuFeatures &cpu,
                 std::string_view forced);

/// A shared object held in memory, unloaded at the end of its life.
class LoadedCode {
public:
  /// Checks that `elf` is a whole shared object for this machine, and loads it
  /// without touching a file system. `what` names it in errors.
  static StatusOr<LoadedCode> load(std::span<const std::byte> elf,
                                   std::string what);
  LoadedCode(LoadedCode &&other) noexcept;
  LoadedCode &operator=(LoadedCode &&) = delete;
  ~LoadedCode();

  /// The kernel of that name; symbols of other libraries do not count.
  StatusOr<KernelFunction> kernel(const std::string &name) const;

private:
  LoadedCode() = default;
  std::string what;
  void *handle = nullptr;
  // Held open: the loader knows libraries by their path, and a second object
  // that got this descriptor's number would be taken for the first.
  int descriptor = -1;
};

} // namespace tessera::hal
