// A module means the same after every pass as before.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "test/metamorphic/ErrorBounds.h"
#include <optional>
#include <string>

namespace mlir {
class OpPassManager;
}

namespace tessera::metamorphic {

/// What went wrong, and where.
struct Failure {
  /// "generate", a pass, or a way to run kernels: failures of one stage are
  /// one defect to the reducer.
  std::string stage;
  std::string message;                 ///< one line
  std::string before = "", after = ""; ///< IR around the stage, if it helps
};

/// What was done, so that a run can say that it was something.
struct Counts {
  int64_t graphs = 0;    ///< generated or given
  int64_t states = 0;    ///< of modules between passes that were interpreted
  int64_t functions = 0; ///< tiled and compiled for one target each
  int64_t runs = 0;      ///< executions of those
  int64_t kernels = 0;   ///< compiled
  int64_t launches = 0;
  int64_t elements = 0; ///< compared with a bound
  int64_t unknown = 0;  ///< their bound says nothing

  Counts &operator+=(const Counts &other) {
    graphs += other.graphs;
    states += other.states;
    functions += other.functions;
    runs += other.runs;
    kernels += other.kernels;
    launches += other.launches;
    elements += other.elements;
    unknown += other.unknown;
    return *this;
  }
};

/// The passes from a graph to clusters as the compiler runs them. Attributes of
/// the module ask for more: `metamorphic.compute = "bf16"` for that precision,
/// `metamorphic.chunk_bytes` for smaller chunks of cross-entropy.
void buildFrontPipeline(mlir::OpPassManager &pipeline, mlir::ModuleOp module);

/// Runs them on `module`, which is changed, and interprets @f after each on
/// `inputs`. Passes that only move ops must keep every bit; those that change
/// the order of sums, all but the error that doubles make of that.
std::optional<Failure> checkPasses(mlir::ModuleOp module,
                                   llvm::ArrayRef<interpreter::Tensor> inputs,
                                   Counts &counts);

/// The first element of `got` that is further from what is expected than its
/// bound (four times the radius); empty if there is none.
std::string compareBounded(llvm::ArrayRef<Bounded> expected,
                           llvm::ArrayRef<interpreter::Tensor> got,
                           Counts &counts);

/// The module's text.
std::string printed(mlir::ModuleOp module);

} // namespace tessera::metamorphic
