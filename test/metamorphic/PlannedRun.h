// Functions after tiling, planned and run as the runtime runs them: one arena,
// buffers in place of each other, state that is donated, several threads.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>

namespace tessera::testing {
class KernelProgram;
}

namespace tessera::metamorphic {

class PlannedRun {
public:
  /// Plans a copy of `module` (after tiling), whose functions become programs
  /// of one artifact with the code of `kernels`, made for `target`. Results of
  /// an argument's type are now and then state that takes its place, as `seed`
  /// says.
  static llvm::Expected<std::unique_ptr<PlannedRun>>
  build(mlir::ModuleOp module, const testing::KernelProgram &kernels,
        llvm::StringRef target, uint64_t seed);
  ~PlannedRun();

  /// Runs @function on `threads` threads, twice, so that the second time finds
  /// memory used.
  llvm::Expected<interpreter::Tensors>
  run(llvm::StringRef function, llvm::ArrayRef<interpreter::Tensor> inputs,
      unsigned threads);

private:
  PlannedRun() = default;
  struct Opened;
  llvm::Expected<Opened *> open(unsigned threads);

  mlir::OwningOpRef<mlir::ModuleOp>
      signatures; // the functions, before planning
  std::string target, bytes;
  std::vector<std::unique_ptr<Opened>> sessions; // by threads
};

} // namespace tessera::metamorphic
