// Targets, and the kinds of devices that they belong to: what is tiled, planned
// and stored together.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace tessera {

/// All CPU variants are one kind: they differ in code alone. A CUDA target is a
/// kind of its own, since its grids, and so its buffers, are its own.
struct DeviceKind {
  std::string name;                 ///< "cpu", "cuda:sm_80"
  std::vector<std::string> targets; ///< "cpu:avx512", …; "cuda:sm_80"
  bool isCpu() const { return name == "cpu"; }
};

/// The names that resolveTargets takes, for help and errors.
std::string acceptedTargets();

/// Resolves names of targets: "cpu" means all CPU variants, "cpu:native" the
/// one that the runtime would choose on this processor, or all if it supports
/// none. An error lists the known targets.
llvm::Expected<std::vector<std::string>>
resolveTargets(llvm::ArrayRef<std::string> names);

/// The kinds of `targets`, in the order of their first target.
std::vector<DeviceKind> kindsOf(llvm::ArrayRef<std::string> targets);

/// The targets that a module has plans or kernels for, as tile.targets or its
/// nested modules say.
std::vector<std::string> targetsOf(mlir::ModuleOp module);

} // namespace tessera
