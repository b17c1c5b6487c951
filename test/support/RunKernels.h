// Runs functions after tiling through their compiled kernels: tensors in,
// tensors out. What planning and the runtime do with arenas and threads happens
// here one buffer a value, so that a kernel that reads or writes where it must
// not is found.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tessera::cpu {
struct CodeObject;
}

namespace tessera::testing {

/// With all dialects and what compiles kernels for CPUs. One for all tests of a
/// process.
mlir::MLIRContext &kernelContext();

/// How a function is run. The results must not depend on any of this.
struct RunOptions {
  /// Blocks handed out at a time; 0: all at once. Ranges are run last to
  /// first, each with fresh scratch full of NaN.
  int64_t blocksAtOnce = 0;
  /// Results take the place of an operand where the launch's `reuse` allows it.
  bool inPlace = false;
  /// Of the emulated GPU, as DeviceOptions::emulatorNumerics; empty: what the
  /// environment says. Results do depend on this.
  std::string numerics = {};
};

/// A module after tiling, its kernels compiled for one target.
class KernelProgram {
public:
  /// Compiles all kernels of the nested module for `target` ("cpu:avx2"). The
  /// module must outlive the program; its context is kernelContext(), or has
  /// been made with cpu::registerCpuTarget.
  static llvm::Expected<std::unique_ptr<KernelProgram>>
  compile(mlir::ModuleOp module, llvm::StringRef target);
  ~KernelProgram();

  /// The kernels' code, as artifacts hold it.
  const cpu::CodeObject &object() const;

  /// Runs @function: one input an argument, one tensor a result. Inputs are
  /// rounded to the arguments' types. Errors: an op that planning would not
  /// take, a kernel that wrote outside of its buffers.
  llvm::Expected<interpreter::Tensors>
  run(llvm::StringRef function, llvm::ArrayRef<interpreter::Tensor> inputs,
      const RunOptions &options = {});

private:
  KernelProgram() = default;
  struct Code;
  mlir::ModuleOp module;
  std::unique_ptr<Code> code;
};

/// @main's only result after fusion and tiling for `target`, of a module's
/// text; `byteRows`: of plan-kernels. Errors: as compile and run have them;
/// passes print theirs.
llvm::Expected<interpreter::Tensor>
runMain(const std::string &text, const std::string &target,
        llvm::ArrayRef<interpreter::Tensor> inputs, bool byteRows = false);

/// The same, but each text is compiled once.
class MainPrograms {
public:
  explicit MainPrograms(std::string target, bool byteRows = false);
  ~MainPrograms();
  llvm::Expected<interpreter::Tensor>
  run(const std::string &text, llvm::ArrayRef<interpreter::Tensor> inputs,
      const RunOptions &options = {});

private:
  struct Program;
  std::string target;
  bool byteRows;
  std::map<std::string, std::unique_ptr<Program>> programs;
};

/// Of the modes that results for `target` are checked in: a GPU's are checked
/// as plain loops compute and as hardware does.
std::vector<std::string> numericsOf(llvm::StringRef target);

} // namespace tessera::testing
