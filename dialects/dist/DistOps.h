// The dist dialect: meshes, shardings and collectives. See README.md in this
// folder.
#pragma once
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/dist/DistEnums.h.inc"

#include "dialects/dist/DistDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/dist/DistAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/dist/DistInterfaces.h.inc"
#include "dialects/dist/DistTypes.h.inc"
#define GET_OP_CLASSES
#include "dialects/dist/DistOps.h.inc"

namespace tessera::dist {

inline constexpr llvm::StringLiteral kShardingAttr =
    "dist.sharding"; // argument or result of a function
inline constexpr llvm::StringLiteral kShardingsAttr =
    "dist.shardings"; // op: array, one for each result
/// A local program's argument or result: the global shape, to which its
/// sharding refers.
inline constexpr llvm::StringLiteral kGlobalShapeAttr = "dist.global_shape";
/// A local program's module: an array of #dist.factor. The input "mesh.offsets"
/// has for each the index of this device's first element.
inline constexpr llvm::StringLiteral kOffsetsAttr = "dist.offsets";
inline constexpr llvm::StringLiteral kOffsetsInput = "mesh.offsets";
/// A local program's module: the devices that run it, ascending.
inline constexpr llvm::StringLiteral kDevicesAttr = "dist.devices";

/// A module: the #dist.cluster for which costs are estimated. Without it the
/// program computes the same, and choices are those for a default.
inline constexpr llvm::StringLiteral kClusterAttr = "dist.cluster";

/// The axis along which devices are the ranks of a pipeline.
inline constexpr llvm::StringLiteral kPipeAxis = "pipe";
/// A module on a mesh with that axis: the pipeline schedule of a step, as CSV
/// (passes/stages). Also on a graph.loop over microbatches without a backward
/// pass.
inline constexpr llvm::StringLiteral kScheduleAttr = "dist.schedule";
/// A rank's module after split-stages: a dictionary of the schedule
/// (`schedule`) and the FLOPs of each stage for one microbatch: `forward`,
/// `backward` and, as part of the latter, `weights`; `before` is a list of such
/// dictionaries for loops before the step's.
inline constexpr llvm::StringLiteral kPipelineAttr = "dist.pipeline";
/// A call of a block: the stage that computes it, forward or backward.
inline constexpr llvm::StringLiteral kForwardStageAttr = "dist.forward_stage";
inline constexpr llvm::StringLiteral kBackwardStageAttr = "dist.backward_stage";
/// Distinguishes ops of an earlier loop from equal ops of the step's loop.
inline constexpr llvm::StringLiteral kCountsBeforeAttr = "dist.counts_before";

/// A collective, during passes/overlap: its position in the order of starts of
/// its block, the same on all devices. Collectives with one number are merged.
inline constexpr llvm::StringLiteral kStartAttr = "dist.start";

/// The layout of tensors in each piece of a dist.pack, in elements.
struct Packing {
  llvm::SmallVector<int64_t> offsets, sizes; ///< of each tensor in a piece
  int64_t pieceSize = 0;
};
/// `types`: tensors of one element type, whose elements divide by `pieces`.
Packing packingOf(mlir::TypeRange types, int64_t pieces);

/// The number of devices along these axes, which must be those of the mesh.
int64_t deviceCount(MeshOp mesh, llvm::ArrayRef<AxisRefAttr> axes);

/// Verifies that the sharding fits mesh and tensor: axes exist and are used
/// once, sub-axes divide them, there is one entry for each dimension, and no
/// dimension has more shards than elements. Errors through `emitError`.
mlir::LogicalResult
verifySharding(ShardingAttr sharding, MeshOp mesh, mlir::RankedTensorType type,
               llvm::function_ref<mlir::InFlightDiagnostic()> emitError);

} // namespace tessera::dist
