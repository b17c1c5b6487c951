// LLVM IR to a relocatable object.
#pragma once
#include "hardware/Targets.h"
#include "llvm/Support/Error.h"
#include <string>

namespace llvm {
class Module;
}

namespace tessera::cpu {

/// Optimizes the module and emits an object for the target's processor.
/// Changes the module. Safe from several threads, each with its own context.
llvm::Expected<std::string> emitObject(llvm::Module &module,
                                       const TileTarget &target);

/// A version: changes whenever emitObject may produce other code for equal
/// input. Part of every cache key.
std::string codeGenVersion(const TileTarget &target);

} // namespace tessera::cpu
