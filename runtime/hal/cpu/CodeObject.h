// Machine code of an artifact: which object fits this processor, and how its
// kernels are called.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/support/CpuFeatures.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <string_view>

namespace tessera::hal {

/// A kernel's symbol. buffers[i] follows Kernel.access and is as long as the
/// launch's Arg says; `sizes` are the instance's dynamic sizes; blocks
/// [blockBegin, blockEnd) are processed; `scratch` belongs to the thread, is
/// 64-byte aligned and has at least Kernel.scratch_bytes.
using KernelFunction = void(void *const *buffers, const std::int64_t *sizes,
                            std::int64_t blockBegin, std::int64_t blockEnd,
                            void *scratch);

/// The first code object of `code`, in its order, whose features `cpu` has.
/// With `forced` ("cpu:avx2" or "avx2") only that target is considered. The
/// error names each target and what it misses.
StatusOr<const artifact::CodeObject *>
chooseCodeObject(const ArtifactReader &artifact,
                 const artifact::DeviceCode &code, const CpuFeatures &cpu,
                 std::string_view forced);

} // namespace tessera::hal
