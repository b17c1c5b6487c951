// From the planned module of one kind of device to its part of the artifact.
#pragma once
#include "compiler/DeviceKinds.h"
#include "compiler/artifact/ArtifactWriter.h"
#include "compiler/cache/KernelCache.h"
#include <functional>

namespace tessera {

struct CompileDeviceOptions {
  KernelCache *cache = nullptr;
  /// For CUDA: also compile code for the emulated GPU.
  bool emulate = true;
  /// Receives messages, such as that nvcc was not found.
  std::function<void(llvm::StringRef line)> note;
  /// Called for each separately compiled unit.
  std::function<void(llvm::StringRef what, llvm::StringRef target,
                     double seconds, bool cached)>
      progress;
};

/// Compiles the kernels of `module` for all targets of `kind`, in the runtime's
/// order of preference. For CUDA: cubins if nvcc is found, and the emulated
/// GPU's code if requested or without nvcc.
llvm::Expected<DevicePart> compileDevice(mlir::ModuleOp module,
                                         const DeviceKind &kind,
                                         const CompileDeviceOptions &options);

} // namespace tessera
