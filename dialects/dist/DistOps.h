// The dist dialect: where things are computed. See README.md in this folder.
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
#include "dialects/dist/DistTypes.h.inc"
#define GET_OP_CLASSES
#include "dialects/dist/DistOps.h.inc"

namespace tessera::dist {

inline constexpr llvm::StringLiteral kShardingAttr =
    "dist.sharding"; // argument or result of a function
inline constexpr llvm::StringLiteral kShardingsAttr =
    "dist.shardings"; // op: array, one a result
/// A local program's argument or result: the shape of all shares together, to
/// which its sharding refers.
inline constexpr llvm::StringLiteral kGlobalShapeAttr = "dist.global_shape";
/// A local program's module: the factors of whose ranges the input
/// "mesh.offsets" has the starts, an array of #dist.factor.
inline constexpr llvm::StringLiteral kOffsetsAttr = "dist.offsets";
inline constexpr llvm::StringLiteral kOffsetsInput = "mesh.offsets";
/// A local program's module: the devices that run it, ascending.
inline constexpr llvm::StringLiteral kDevicesAttr = "dist.devices";

/// The axis along which devices are the ranks of a pipeline.
inline constexpr llvm::StringLiteral kPipeAxis = "pipe";
/// A module on a mesh with that axis: what each rank does in a step, as a table
/// of passes/stages. A graph.loop over the microbatches that only goes
/// forward: its own.
inline constexpr llvm::StringLiteral kScheduleAttr = "dist.schedule";
/// A rank's module, once its programs do what the table says of the rank: a
/// dictionary of the table, `schedule`, and of the work of each stage in FLOPs
/// of one microbatch, `forward`, `backward` and, of the latter, `weights`; of
/// loops before the step's, a list of such dictionaries, `before`.
inline constexpr llvm::StringLiteral kPipelineAttr = "dist.pipeline";
/// A call of a block: the stage that computes it, forward or backward.
inline constexpr llvm::StringLiteral kForwardStageAttr = "dist.forward_stage";
inline constexpr llvm::StringLiteral kBackwardStageAttr = "dist.backward_stage";

/// A collective, while passes/overlap works on it: the number of its start
/// among those of its block, the same on all devices. Those of one number
/// become one.
inline constexpr llvm::StringLiteral kStartAttr = "dist.start";

/// Where tensors lie in each piece of a dist.pack of them, in elements.
struct Packing {
  llvm::SmallVector<int64_t> offsets, sizes; ///< of each tensor's part
  int64_t pieceSize = 0;
};
/// `types`: tensors of one element type, whose elements divide by `pieces`.
Packing packingOf(mlir::TypeRange types, int64_t pieces);

/// Devices along these axes together; the axes must be those of the mesh.
int64_t deviceCount(MeshOp mesh, llvm::ArrayRef<AxisRefAttr> axes);

/// Whether the sharding fits mesh and tensor: axes exist and are used once,
/// sub-axes divide them, one entry a dimension, and no dimension is cut into
/// more pieces than it has elements. Says what is wrong through `emitError`.
mlir::LogicalResult
verifySharding(ShardingAttr sharding, MeshOp mesh, mlir::RankedTensorType type,
               llvm::function_ref<mlir::InFlightDiagnostic()> emitError);

} // namespace tessera::dist
