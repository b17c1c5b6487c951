// The passes of the selection and kernels phases. See README.md in this folder.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/ArrayRef.h"
#include <string>

namespace tessera {

#define GEN_PASS_DECL
#include "passes/kernels/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/kernels/Passes.h.inc"

/// The selection phase: clusters whose kernels are chosen, on rows that these
/// can read well. `byteRows`: see plan-kernels.
void buildSelectionPipeline(mlir::OpPassManager &pipeline,
                            llvm::ArrayRef<std::string> targets = {},
                            bool byteRows = false);

/// The kernels phase: functions of clusters in, functions of launches and
/// modules of kernels out, one module for each target ("cpu:avx512bf16"; all
/// CPU targets if none is named). `allVariants` is for tests, see Passes.td.
void buildKernelsPipeline(mlir::OpPassManager &pipeline,
                          llvm::ArrayRef<std::string> targets = {},
                          bool allVariants = false);

} // namespace tessera
