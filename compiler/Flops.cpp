#include "compiler/Flops.h"
#include "dialects/graph/Programs.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace tessera;

namespace {

struct Flops {
  int64_t all = 0;
  int64_t ofConstants = 0; ///< products by constant weights
};

} // namespace

static bool isProduct(Operation *op) {
  return isa<graph::EinsumOp, graph::GroupedMatmulOp, graph::AttentionOp,
             graph::LinearCrossEntropyOp>(op);
}

// `constants`: arguments with graph.frozen, or what a call gives for such.
static Flops countFlops(func::FuncOp function, llvm::BitVector constants,
                        SymbolTableCollection &symbols) {
  llvm::DenseSet<Value> constant;
  for (unsigned i : constants.set_bits())
    constant.insert(function.getArgument(i));
  auto isConstant = [&](Value value) { return constant.contains(value); };
  Flops flops;
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto call = dyn_cast<func::CallOp>(op)) {
      auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(
          call, call.getCalleeAttr());
      if (!callee)
        return;
      llvm::BitVector given(call.getNumOperands());
      for (auto [i, operand] : llvm::enumerate(call.getOperands()))
        given[i] = isConstant(operand);
      Flops inside = countFlops(callee, given, symbols);
      flops.all += inside.all;
      flops.ofConstants += inside.ofConstants;
    } else if (isProduct(op)) {
      int64_t own = cast<graph::Costed>(op).getFlops();
      flops.all += own;
      if (!isa<graph::AttentionOp>(op) &&
          llvm::any_of(op->getOperands(), isConstant))
        flops.ofConstants += own;
    } else if (op->getNumOperands() != 0 && op->getNumRegions() == 0 &&
               llvm::all_of(op->getOperands(), isConstant)) {
      // Conversions of a constant, and the like.
      constant.insert(op->result_begin(), op->result_end());
    }
  });
  return flops;
}

static Flops countFlops(func::FuncOp program) {
  llvm::BitVector constants(program.getNumArguments());
  for (unsigned i = 0; i < program.getNumArguments(); ++i)
    constants[i] = program.getArgAttr(i, graph::kFrozenAttr) != nullptr;
  SymbolTableCollection symbols;
  return countFlops(program, constants, symbols);
}

void tessera::annotateForwardFlops(ModuleOp module) {
  Builder builder(module.getContext());
  if (func::FuncOp loss = graph::findProgram(module, graph::Program::loss)) {
    Flops flops = countFlops(loss);
    module->setAttr(kForwardFlopsAttr, builder.getI64IntegerAttr(flops.all));
    if (flops.ofConstants != 0)
      module->setAttr(kConstantFlopsAttr,
                      builder.getI64IntegerAttr(flops.ofConstants));
  }
  if (func::FuncOp logits = graph::findProgram(module, graph::Program::logits))
    logits->setAttr(graph::kFlopsAttr,
                    builder.getI64IntegerAttr(countFlops(logits).all));
}

// Tokens are [microbatches, sequences, length], or of one microbatch.
static int64_t microbatchesOf(func::FuncOp step) {
  for (unsigned i = 0; i < step.getNumArguments(); ++i) {
    auto name = step.getArgAttrOfType<StringAttr>(i, graph::kInputAttr);
    auto type = cast<RankedTensorType>(step.getArgumentTypes()[i]);
    if (name && name.getValue() == "tokens" && type.getRank() == 3)
      return type.getDimSize(0);
  }
  return 1;
}

void tessera::annotateProgramFlops(ModuleOp module) {
  auto forward = module->getAttrOfType<IntegerAttr>(kForwardFlopsAttr);
  if (!forward)
    return;
  Builder builder(module.getContext());
  if (func::FuncOp eval = graph::findProgram(module, graph::Program::eval_step))
    eval->setAttr(
        graph::kFlopsAttr,
        builder.getI64IntegerAttr(microbatchesOf(eval) * forward.getInt()));
  func::FuncOp step = graph::findProgram(module, graph::Program::train_step);
  if (!step)
    step = graph::findProgram(module, graph::Program::forward_backward);
  if (!step)
    return;
  auto constant = module->getAttrOfType<IntegerAttr>(kConstantFlopsAttr);
  int64_t flops = 3 * forward.getInt() - (constant ? constant.getInt() : 0);
  step->setAttr(graph::kFlopsAttr,
                builder.getI64IntegerAttr(microbatchesOf(step) * flops));
}
