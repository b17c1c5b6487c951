// Prints kernels as readable CUDA C++: one call of the device library
// (runtime/device) for each tile op, named after what was fused.
#pragma once
#include "dialects/tile/TileOps.h"
#include "hardware/Targets.h"
#include "mlir/IR/BuiltinOps.h"
#include "runtime/device/TensorMap.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include <set>
#include <string>
#include <vector>

namespace tessera::cuda {

/// A tensor map of a kernel; its launch passes the address of one after those
/// of the buffers.
struct KernelMap {
  unsigned buffer;           ///< of the kernel
  device::TensorBoxes boxes; ///< `base`: bytes from the buffer's start on
};

/// How a kernel is launched.
struct KernelShape {
  std::string name;
  int64_t threads = 0;         ///< of a block
  int64_t sharedBytes = 0;     ///< dynamic shared memory of a block
  std::vector<KernelMap> maps; ///< in the order of their addresses
  std::string text;            ///< its definition, for translationUnit
  bool isVariant = false;      ///< of another one of the module
  /// Buffers that it copies 16 bytes at a time or accesses through a tensor
  /// map. Such accesses are aligned if these buffers begin at multiples of 16
  /// bytes.
  std::set<unsigned> aligned = {};
};

struct PrintedKernels {
  std::string text; ///< one translation unit
  std::vector<KernelShape> kernels;
};

/// A translation unit of some kernels made for `target`: their definitions and
/// what they need around them.
std::string translationUnit(llvm::ArrayRef<llvm::StringRef> kernels,
                            const TileTarget &target);

/// Prints all kernels (tile.kernel) directly inside `module`, made for
/// `target`. An error names the kernel and the op that has no CUDA form.
llvm::Expected<PrintedKernels> printKernels(mlir::ModuleOp module,
                                            const TileTarget &target);

} // namespace tessera::cuda
