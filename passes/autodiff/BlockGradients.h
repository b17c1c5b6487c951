// Gradient functions of blocks: made once for each distinct function, called by
// the gradient of each call.
#pragma once
#include "mlir/IR/SymbolTable.h"
#include "passes/autodiff/Residuals.h"
#include "passes/autodiff/Reverse.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"

namespace tessera::autodiff {

/// A function with the ops of its gradient appended, before it is cut in two.
struct JointFunction {
  mlir::func::FuncOp function; ///< results unchanged, see `gradients`
  llvm::SmallVector<mlir::Operation *> forward;
  llvm::SmallVector<mlir::Value> cotangents;  ///< added arguments
  llvm::SmallVector<unsigned> differentiated; ///< results they belong to
  llvm::SmallVector<mlir::Value> gradients;   ///< of the wanted arguments
};

/// The two functions that replace a block in a differentiated caller.
struct BlockGradient {
  /// An operand of `backward`: an operand or a result of the call to `forward`.
  struct Residual {
    bool isArgument;
    unsigned index;
  };
  mlir::func::FuncOp forward;  ///< results of the block, then saved values
  mlir::func::FuncOp backward; ///< residuals, then cotangents
  llvm::SmallVector<Residual> residuals;
  llvm::SmallVector<unsigned> differentiated; ///< results with a cotangent
  llvm::SmallVector<unsigned> wanted; ///< arguments whose gradient it returns
};

class BlockGradients {
public:
  BlockGradients(mlir::ModuleOp module, recipe::Recompute policy)
      : module(module), symbols(module), policy(policy) {}

  /// Finds which arguments of which functions need a gradient, from `wanted`
  /// arguments of `root` on down through its calls.
  mlir::LogicalResult analyze(mlir::func::FuncOp root,
                              llvm::ArrayRef<unsigned> wanted);

  /// A copy of `function` (already analyzed) in which calls are calls to
  /// `.forward` functions, followed by the ops of the gradient.
  mlir::FailureOr<JointFunction> makeJoint(mlir::func::FuncOp function,
                                           llvm::StringRef name);

private:
  mlir::FailureOr<BlockGradient *> gradientOf(mlir::func::FuncOp function);
  mlir::LogicalResult replaceCalls(JointFunction &joint);
  mlir::LogicalResult replaceCall(mlir::func::CallOp call,
                                  mlir::Operation *&replacement);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  differentiateCall(mlir::OpBuilder &builder, mlir::func::CallOp call,
                    llvm::ArrayRef<mlir::Value> cotangents);
  mlir::func::FuncOp calleeOf(mlir::func::CallOp call);

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  recipe::Recompute policy;
  llvm::MapVector<mlir::Operation *, llvm::BitVector> wantedArguments;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<BlockGradient>> gradients;
  llvm::DenseMap<mlir::Operation *, BlockGradient *> forwardCalls;
};

/// Cuts a block's joint function into `.forward` and `.backward`; the joint
/// function is erased.
BlockGradient splitJoint(JointFunction joint, mlir::func::FuncOp original,
                         llvm::ArrayRef<unsigned> wanted,
                         recipe::Recompute policy, mlir::SymbolTable &symbols);

} // namespace tessera::autodiff
