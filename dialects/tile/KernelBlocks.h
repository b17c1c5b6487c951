// How many blocks a kernel may be launched with.
#pragma once
#include "dialects/tile/TileOps.h"

namespace tessera::tile {

/// On a kernel without dynamic sizes: the number of blocks that its arithmetic
/// is for. With other counts it would access memory outside its buffers, or not
/// fill them.
inline constexpr llvm::StringLiteral kBlocksAttr = "tile.blocks";

/// On a GPU's kernel without warps: the threads of a block, if not the target's
/// `lanes`.
inline constexpr llvm::StringLiteral kThreadsAttr = "tile.threads";

/// An error at `launch`, one of the kernel @`name` of each nested module of
/// `module`, unless every instance has the kernel's own number of blocks.
mlir::LogicalResult verifyBlocks(mlir::Operation *launch, mlir::ModuleOp module,
                                 llvm::StringRef name,
                                 llvm::ArrayRef<int64_t> blocks);

} // namespace tessera::tile
