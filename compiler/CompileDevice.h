// From the planned module of one kind of device to its part of the artifact.
#pragma once
#include "compiler/DeviceKinds.h"
#include "compiler/artifact/ArtifactWriter.h"
#include "compiler/cache/KernelCache.h"
#include <functional>

namespace tessera {

struct CompileDeviceOptions {
  KernelCache *cache = nullptr;
  /// Also code for the emulated GPU, where the kind is one.
  bool emulate = true;
  /// A line for people, such as that there is no nvcc.
  std::function<void(llvm::StringRef line)> note;
  /// Called for everything that is compiled by itself.
  std::function<void(llvm::StringRef what, llvm::StringRef target,
                     double seconds, bool cached)>
      progress;
};

/// Compiles the kernels of `module` for all targets of `kind`, the best first,
/// as the runtime will choose. For CUDA: cubins where there is nvcc, and the
/// emulated GPU's code if it is asked for or if there is no nvcc.
llvm::Expected<DevicePart> compileDevice(mlir::ModuleOp module,
                                         const DeviceKind &kind,
                                         const CompileDeviceOptions &options);

} // namespace tessera
