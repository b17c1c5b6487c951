// From a program over whole tensors to one device's program over its shards.
// See README.md in this folder.
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

/// Assigns shardings.
void buildShardingPipeline(mlir::OpPassManager &pipeline,
                           const MeshRequest &request);
/// Makes the program of `device`, which all devices with equal shapes run.
/// `padsExchanges`: experts' rows are sent in buffers of one size.
void buildPartitionPipeline(mlir::OpPassManager &pipeline, int64_t device,
                            bool padsExchanges = false);

/// Groups of devices that run one program: they are the same rank of a pipeline
/// and their shards have equal shapes. Groups are in the order of their first
/// device, devices ascending.
std::vector<std::vector<int64_t>> devicesByProgram(mlir::ModuleOp module);

} // namespace tessera
