// Where a program is computed: from one program for all devices to one device's
// own. See README.md in this folder.
#pragma once
#include "dialects/dist/DistOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "passes/sharding/MeshRequest.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/sharding/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/sharding/Passes.h.inc"

/// Shardings, and the proof that they fit.
void buildShardingPipeline(mlir::OpPassManager &pipeline,
                           const MeshRequest &request);
/// The program of `device` and those like it.
void buildPartitionPipeline(mlir::OpPassManager &pipeline, int64_t device);

/// Devices that run one program, as they are the same rank of a pipeline and
/// their shares have equal shapes: groups in the order of their first device,
/// ascending inside.
std::vector<std::vector<int64_t>> devicesByProgram(mlir::ModuleOp module);

} // namespace tessera
