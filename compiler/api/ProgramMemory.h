// What the programs of a plan need in fact: compiled as far as their bytes are
// known.
#pragma once
#include "compiler/Driver.h"
#include "runtime/support/Status.h"

namespace tessera {

/// The one that needs most, of the GPUs if there are any among the devices.
const RankMemory &fullestRank(llvm::ArrayRef<RankMemory> all);

/// Compiles `request` up to the phase planning and returns the fullest rank.
/// Writes nothing.
StatusOr<RankMemory> programMemory(CompileRequest request);

} // namespace tessera
