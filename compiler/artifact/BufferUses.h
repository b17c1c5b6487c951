// What the arena buffers of a program hold, for display.
#pragma once
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/TileOps.h"
#include "runtime/artifact/Artifact_generated.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace tessera {

using BufferUses = llvm::DenseMap<mlir::Operation *, artifact::BufferUse>;

/// The use of each plan.buffer of the arena, from the steps that write and read
/// it (the schema's BufferUse has the definitions). Gradients are what an
/// update of a parameter reads with as many elements as it has, what
/// collectives and copies make those from, and what is added to them.
BufferUses
bufferUses(plan::ProgramOp program,
           llvm::function_ref<tile::KernelOp(llvm::StringRef)> kernel);

} // namespace tessera
