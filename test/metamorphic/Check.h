// All checks of a module, and of many by seed.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "test/metamorphic/CheckPasses.h"

namespace mlir {
class DialectRegistry;
}

namespace tessera::metamorphic {

struct Report {
  uint64_t seed;
  Failure failure;
};

/// What takes failures as they are found.
using OnFailure = llvm::function_ref<void(const Report &)>;

/// Interprets the modules of seeds [first, last) between all passes.
void checkPassesOf(mlir::MLIRContext &context, uint64_t first, uint64_t last,
                   Counts &counts, OnFailure onFailure);

/// Every `count`-th batch of seeds, from batch `index` on.
struct Share {
  uint64_t index = 0, count = 1;
};

/// Runs the modules of seeds [first, last), those for kernels, on a target: of
/// their batches, its share.
void checkKernelsOf(mlir::MLIRContext &context, uint64_t first, uint64_t last,
                    llvm::StringRef target, Share share, Counts &counts,
                    OnFailure onFailure);

/// Both for one module, which is not changed.
std::optional<Failure> check(mlir::ModuleOp module,
                             llvm::ArrayRef<std::string> targets,
                             Counts &counts);

/// "seed 7, fuse: result 0 at [1] was …"
std::string describe(const Report &report);

/// "250 graphs, 1180 states between passes, …"
std::string describe(const Counts &counts);

/// What kernels add to that.
std::string describeKernels(const Counts &counts);

} // namespace tessera::metamorphic
