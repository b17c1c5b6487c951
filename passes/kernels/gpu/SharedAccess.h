// Accesses to memory that several threads of a block see, to insert and to
// verify barriers.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Value.h"
#include "llvm/Support/LogicalResult.h"
#include <optional>

namespace tessera::gpu {

/// What a load or store does to a buffer or an allocation. Operands of products
/// in swizzled memory are none: copies, their waits and rings order those.
struct SharedAccess {
  mlir::Value memory; ///< the buffer or allocation, whatever view of it
  bool writes;
  bool isElement; ///< one, which all threads read or one thread writes
};
std::optional<SharedAccess> accessOf(mlir::Operation *op);

/// Whether all threads wait for each other here.
bool isBarrier(mlir::Operation *op);

/// Whether the kernels of a nested module are for a GPU.
bool isOfGpu(mlir::ModuleOp kernels);

/// An error at an access that races with that of another thread.
llvm::LogicalResult verifyBarriers(mlir::Block &kernel);

} // namespace tessera::gpu
