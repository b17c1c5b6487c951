// Where a program is computed: from one program for all devices to one device's
// own. See README.md in this folder.
#pragma once
#include "dialects/dist/DistOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/Support/Error.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/sharding/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/sharding/Passes.h.inc"

/// What the recipe or the command line says of a mesh.
struct MeshRequest {
  std::string axes; ///< "data=2,tensor=4"; empty: one device
  int64_t zero = 0;
};

/// Shardings, and the proof that they fit.
void buildShardingPipeline(mlir::OpPassManager &pipeline,
                           const MeshRequest &request);
/// The program of `device` and those like it.
void buildPartitionPipeline(mlir::OpPassManager &pipeline, int64_t device);

/// Devices that run one program, as their shares have equal shapes: groups in
/// the order of their first device, ascending inside.
std::vector<std::vector<int64_t>> devicesByProgram(mlir::ModuleOp module);

} // namespace tessera
