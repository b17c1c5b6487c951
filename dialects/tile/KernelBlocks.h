// How many blocks a kernel may be launched with.
#pragma once
#include "dialects/tile/TileOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"

namespace tessera::tile {

/// On a kernel without dynamic sizes: the number of blocks that its arithmetic
/// is for. With other counts it would access memory outside its buffers, or not
/// fill them.
inline constexpr llvm::StringLiteral kBlocksAttr = "tile.blocks";

/// On a GPU's kernel without warps: the threads of a block, if not the target's
/// `lanes`.
inline constexpr llvm::StringLiteral kThreadsAttr = "tile.threads";

/// On a buffer that every launch lets begin at a multiple of kAlignedBytes.
inline constexpr llvm::StringLiteral kAlignedAttr = "tile.aligned";
inline constexpr int64_t kAlignedBytes = 16;

/// On a buffer whose bytes no launch of the kernel writes.
inline constexpr llvm::StringLiteral kUnwrittenAttr = "tile.unwritten";

/// The kernels of all targets, found by name in constant time.
class KernelModules {
public:
  explicit KernelModules(mlir::ModuleOp module)
      : modules(module.getOps<mlir::ModuleOp>()) {}

  /// Of each target; null where a module has no such kernel.
  KernelOp lookup(mlir::ModuleOp target, llvm::StringRef name);
  llvm::ArrayRef<mlir::ModuleOp> targets() const { return modules; }

  /// An error at `launch`, one of the kernel @`name` of each target, unless
  /// every instance has the kernel's own number of blocks.
  mlir::LogicalResult verifyBlocks(mlir::Operation *launch,
                                   llvm::StringRef name,
                                   llvm::ArrayRef<int64_t> blocks);

private:
  llvm::SmallVector<mlir::ModuleOp> modules;
  mlir::SymbolTableCollection tables;
};

} // namespace tessera::tile
