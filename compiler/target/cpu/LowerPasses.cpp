#include "compiler/target/cpu/Lowering.h"
#include "compiler/target/cpu/Passes.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace tessera::cpu {

#define GEN_PASS_DEF_LOWERTILETOVECTOR
#define GEN_PASS_DEF_LOWERVECTORTOLLVM
#include "compiler/target/cpu/Passes.h.inc"

LogicalResult convertToLlvmDialect(ModuleOp module) {
  MLIRContext *context = module.getContext();
  LLVMTypeConverter converter(context);
  RewritePatternSet patterns(context);
  populateSCFToControlFlowConversionPatterns(patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns);
  populateVectorToLLVMConversionPatterns(converter, patterns);
  populateFuncToLLVMConversionPatterns(converter, patterns);
  LLVMConversionTarget legal(*context);
  legal.addLegalOp<ModuleOp>();
  return applyFullConversion(module, legal, std::move(patterns));
}

namespace {

struct LowerTileToVectorPass
    : impl::LowerTileToVectorBase<LowerTileToVectorPass> {
  using LowerTileToVectorBase::LowerTileToVectorBase;

  void runOnOperation() override {
    std::optional<TileTarget> machine = lookupTileTarget(target);
    if (!machine) {
      getOperation().emitError("unknown CPU target '")
          << target << "'; expected one of "
          << llvm::join(cpuTargetNames(), ", ");
      return signalPassFailure();
    }
    for (auto kernel :
         llvm::make_early_inc_range(getOperation().getOps<tile::KernelOp>())) {
      if (llvm::Error error = lowerKernel(kernel, *machine, getOperation())) {
        kernel.emitError(llvm::toString(std::move(error)));
        return signalPassFailure();
      }
      kernel.erase();
    }
  }
};

struct LowerVectorToLlvmPass
    : impl::LowerVectorToLlvmBase<LowerVectorToLlvmPass> {
  void runOnOperation() override {
    if (failed(convertToLlvmDialect(getOperation())))
      signalPassFailure();
  }
};

struct PipelineOptions : PassPipelineOptions<PipelineOptions> {
  Option<std::string> target{*this, "target",
                             llvm::cl::desc("a CPU target, such as cpu:avx2"),
                             llvm::cl::init("cpu:avx512")};
};

} // namespace

void registerPasses() {
  registerLowerTileToVector();
  registerLowerVectorToLlvm();
  PassPipelineRegistration<PipelineOptions>(
      "lower-tile-to-llvm", "lowers kernels to functions of the LLVM dialect",
      [](OpPassManager &manager, const PipelineOptions &options) {
        LowerTileToVectorOptions first;
        first.target = options.target;
        manager.addPass(createLowerTileToVector(first));
        manager.addPass(createLowerVectorToLlvm());
      });
}

} // namespace tessera::cpu
