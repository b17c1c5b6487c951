// Pipeline parallelism: from one device's program to that of its pipeline rank.
// See README.md in this folder.
#pragma once
#include "dialects/dist/DistOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "passes/sharding/MeshRequest.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/stages/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/stages/Passes.h.inc"

/// On whole tensors: assigns blocks to stages. Does nothing without the axis
/// pipe.
void buildStagesPipeline(mlir::OpPassManager &pipeline,
                         const MeshRequest &request);
/// On local shards: the program of the pipeline rank of `device`.
void buildSplitPipeline(mlir::OpPassManager &pipeline, int64_t device);

} // namespace tessera
