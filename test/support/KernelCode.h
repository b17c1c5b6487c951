// Kernels of one target, ready to be called on host buffers.
#pragma once
#include "dialects/tile/TileOps.h"
#include "hardware/Targets.h"
#include "mlir/IR/BuiltinOps.h"
#include "test/support/HostBuffer.h"
#include "test/support/RunKernels.h"

namespace tessera::testing {

/// One instance of a launch.
struct KernelCall {
  tile::KernelOp kernel;
  llvm::SmallVector<std::shared_ptr<HostBuffer>> buffers; ///< all, in order
  llvm::ArrayRef<int64_t> sizes;
  int64_t blocks;
};

class KernelCode {
public:
  virtual ~KernelCode() = default;
  virtual llvm::Error run(KernelCall call, const RunOptions &options) = 0;
  /// What a CPU's artifact holds; null for other targets.
  virtual const cpu::CodeObject *object() const { return nullptr; }
};

llvm::Expected<std::unique_ptr<KernelCode>>
compileForCpu(mlir::ModuleOp kernels, const TileTarget &target);
/// On the emulated GPU; options.blocksAtOnce is the seed of its order.
llvm::Expected<std::unique_ptr<KernelCode>>
compileForEmulatedGpu(mlir::ModuleOp kernels, const TileTarget &target);

} // namespace tessera::testing
