#include "compiler/InitAll.h"
#include "compiler/target/cpu/Passes.h"
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/TileOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/Extensions/InlinerExtension.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "passes/autodiff/Autodiff.h"
#include "passes/folding/Folding.h"
#include "passes/fusion/Fusion.h"
#include "passes/inference/Inference.h"
#include "passes/kernels/Passes.h"
#include "passes/overlap/Overlap.h"
#include "passes/planning/Planning.h"
#include "passes/precision/Precision.h"
#include "passes/sharding/Sharding.h"
#include "passes/stages/Stages.h"

void tessera::registerAllDialects(mlir::DialectRegistry &registry) {
  registry.insert<graph::GraphDialect, dist::DistDialect, tile::TileDialect,
                  plan::PlanDialect>();
  registry.insert<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                  mlir::LLVM::LLVMDialect, mlir::math::MathDialect,
                  mlir::memref::MemRefDialect, mlir::scf::SCFDialect,
                  mlir::vector::VectorDialect>();
  mlir::func::registerInlinerExtension(registry);
}

void tessera::registerAllPasses() {
  mlir::registerCanonicalizer();
  mlir::registerCSE();
  mlir::registerInliner();
  mlir::registerSymbolDCE();
  mlir::registerPrintIRPass();
  mlir::registerStripDebugInfo();
  registerPrecisionPasses();
  registerInferencePasses();
  registerAutodiffPasses();
  registerFoldingPasses();
  registerShardingPasses();
  registerStagesPasses();
  registerFusionPasses();
  registerOverlapPasses();
  registerKernelsPasses();
  registerPlanningPasses();
  cpu::registerPasses();
}
