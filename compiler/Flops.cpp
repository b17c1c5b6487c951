#include "compiler/Flops.h"
#include "dialects/graph/Programs.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace tessera;

static int64_t countFlops(func::FuncOp function,
                          llvm::DenseMap<Operation *, int64_t> &known) {
  if (auto it = known.find(function); it != known.end())
    return it->second;
  auto module = function->getParentOfType<ModuleOp>();
  int64_t flops = 0;
  function.walk([&](Operation *op) {
    if (auto call = dyn_cast<func::CallOp>(op)) {
      if (auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee()))
        flops += countFlops(callee, known);
    } else if (isa<graph::EinsumOp, graph::GroupedMatmulOp, graph::AttentionOp,
                   graph::LinearCrossEntropyOp>(op)) {
      flops += cast<graph::Costed>(op).getFlops();
    }
  });
  return known[function] = flops;
}

void tessera::annotateForwardFlops(ModuleOp module) {
  llvm::DenseMap<Operation *, int64_t> known;
  Builder builder(module.getContext());
  if (func::FuncOp loss = graph::findProgram(module, graph::Program::loss))
    module->setAttr(kForwardFlopsAttr,
                    builder.getI64IntegerAttr(countFlops(loss, known)));
  if (func::FuncOp logits = graph::findProgram(module, graph::Program::logits))
    logits->setAttr(kFlopsAttr,
                    builder.getI64IntegerAttr(countFlops(logits, known)));
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
    eval->setAttr(kFlopsAttr, builder.getI64IntegerAttr(microbatchesOf(eval) *
                                                        forward.getInt()));
  func::FuncOp step = graph::findProgram(module, graph::Program::train_step);
  if (!step)
    return;
  step->setAttr(kFlopsAttr, builder.getI64IntegerAttr(3 * microbatchesOf(step) *
                                                      forward.getInt()));
}
