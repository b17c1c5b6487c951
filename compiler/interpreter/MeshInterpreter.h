// Programs of all devices of a mesh, interpreted together.
#pragma once
#include "compiler/interpreter/Interpreter.h"
#include "dialects/dist/DistOps.h"

namespace tessera::interpreter {

/// Runs `function` on every device of the mesh of `modules`: device d runs
/// modules[d] (several may be one module) on inputs[d], and gives results [d].
/// All modules have one mesh, and are of one context.
///
/// Each device is a thread, of which one at a time computes: collectives
/// combine in the order of devices, so results do not depend on timing.
/// A collective that is started meets the others where it starts.
///
/// Errors: those of `interpret`, of the device that failed first; devices that
/// meet in different collectives; devices that wait for ever.
llvm::Expected<std::vector<Tensors>>
interpretOnMesh(llvm::ArrayRef<mlir::ModuleOp> modules,
                llvm::StringRef function, llvm::ArrayRef<Tensors> inputs,
                const Options &options = {});

/// The mesh of a module; null if there is none.
dist::MeshOp meshOf(mlir::ModuleOp module);

/// What device `device` takes as input "mesh.offsets" of the programs of
/// `module`, i32 for each of the module's dist.offsets.
Tensor offsetsOf(mlir::ModuleOp module, int64_t device);

} // namespace tessera::interpreter
