#include "test/metamorphic/Reduce.h"
#include "compiler/interpreter/Interpreter.h"
#include "dialects/graph/Build.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "passes/fusion/Fusion.h"
#include "test/metamorphic/Generate.h"
#include <cmath>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::interpreter;

namespace tessera::metamorphic {

namespace {

using Module = OwningOpRef<ModuleOp>;
using Change = llvm::function_ref<bool(ModuleOp)>;

class Reducer {
public:
  Reducer(ModuleOp module, llvm::function_ref<bool(ModuleOp)> fails)
      : current(module.clone()), fails(fails) {}
  Module run();

private:
  /// Applies `change` to a copy, which becomes the current module if it still
  /// fails. `change` returns false where there is nothing to change.
  bool attempt(Change change);
  bool dropResults();
  bool dropOps();
  bool replaceOp(size_t number);
  bool inlineCalls();
  bool shortenLoops();

  Module current;
  llvm::function_ref<bool(ModuleOp)> fails;
};

} // namespace

static func::FuncOp entryOf(ModuleOp module) {
  return module.lookupSymbol<func::FuncOp>("f");
}

static void updateType(func::FuncOp function) {
  Block &body = function.front();
  function.setType(FunctionType::get(function.getContext(),
                                     body.getArgumentTypes(),
                                     body.getTerminator()->getOperandTypes()));
}

// Ops without effect on results, arguments that nobody reads, functions that
// nobody calls.
static void clean(ModuleOp module) {
  bool changed = true;
  while (changed) {
    changed = false;
    SmallVector<Operation *> dead;
    module.walk([&](Operation *op) {
      if (op->use_empty() && op->getNumResults() > 0)
        dead.push_back(op);
    });
    for (Operation *op : dead)
      op->erase();
    changed = !dead.empty();
  }
  for (auto function :
       llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
    if (function.isPrivate() &&
        SymbolTable::symbolKnownUseEmpty(function, module))
      function.erase();
  func::FuncOp entry = entryOf(module);
  llvm::BitVector unused(entry.getNumArguments());
  for (BlockArgument argument : entry.getArguments())
    unused[argument.getArgNumber()] = argument.use_empty();
  entry.eraseArguments(unused);
}

bool Reducer::attempt(Change change) {
  Module candidate(current->clone());
  if (!change(*candidate))
    return false;
  clean(*candidate);
  updateType(entryOf(*candidate));
  {
    ScopedDiagnosticHandler silence(candidate->getContext(),
                                    [](Diagnostic &) { return success(); });
    if (failed(verify(*candidate)))
      return false;
  }
  if (!fails(*candidate))
    return false;
  current = std::move(candidate);
  return true;
}

bool Reducer::dropResults() {
  bool changed = false;
  for (unsigned i = 0; i < entryOf(*current).getNumResults();)
    if (entryOf(*current).getNumResults() > 1 && attempt([&](ModuleOp module) {
          entryOf(module).front().getTerminator()->eraseOperand(i);
          return true;
        }))
      changed = true;
    else
      ++i;
  return changed;
}

//===--- ops --------------------------------------------------------------===//

static SmallVector<Operation *> opsOf(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (op->getNumResults() > 0)
      ops.push_back(op);
  });
  return ops;
}

// The values of all results of `op`, which stands in @f itself, as ranges.
static std::vector<std::pair<double, double>> rangesOf(ModuleOp module,
                                                       size_t number) {
  Module copy(module.clone());
  Operation *op = opsOf(*copy)[number];
  func::FuncOp entry = entryOf(*copy);
  entry.front().getTerminator()->setOperands(op->getResults());
  updateType(entry);
  llvm::Expected<Tensors> values = interpret(*copy, "f", makeInputs(*copy));
  if (!values) {
    llvm::consumeError(values.takeError());
    return {};
  }
  std::vector<std::pair<double, double>> ranges;
  for (const Tensor &tensor : *values) {
    double low = 0, high = 0;
    for (auto [i, value] : llvm::enumerate(tensor.data)) {
      low = i ? std::min(low, value) : value;
      high = i ? std::max(high, value) : value;
    }
    ranges.emplace_back(low, high);
  }
  return ranges;
}

static bool byArguments(ModuleOp module, size_t number) {
  Operation *op = opsOf(module)[number];
  func::FuncOp entry = entryOf(module);
  if (op->getParentOp() != entry || isa<ConstantOp>(op))
    return false;
  auto ranges = rangesOf(module, number);
  for (auto [result, range] : llvm::zip(op->getResults(), ranges)) {
    unsigned at = entry.getNumArguments();
    entry.insertArgument(
        at, result.getType(),
        DictionaryAttr::get(
            module.getContext(),
            NamedAttribute(
                StringAttr::get(module.getContext(), kRangeAttr),
                DenseF64ArrayAttr::get(module.getContext(),
                                       {range.first, range.second}))),
        op->getLoc());
    result.replaceAllUsesWith(entry.getArgument(at));
  }
  return ranges.size() == op->getNumResults();
}

// An operand of the result's type, or a constant.
static bool byOperand(ModuleOp module, size_t number, unsigned operand) {
  Operation *op = opsOf(module)[number];
  if (op->getNumResults() != 1 || isa<ConstantOp>(op))
    return false;
  Value result = op->getResult(0), other;
  if (operand < op->getNumOperands()) {
    other = op->getOperand(operand);
  } else {
    OpBuilder builder(op);
    other = Emitter(builder, op->getLoc()).zeros(tensorType(result));
  }
  if (other.getType() != result.getType())
    return false;
  result.replaceAllUsesWith(other);
  return true;
}

bool Reducer::replaceOp(size_t number) {
  if (attempt([&](ModuleOp module) { return byArguments(module, number); }))
    return true;
  for (unsigned operand = 0;
       operand <= opsOf(*current)[number]->getNumOperands(); ++operand)
    if (attempt([&](ModuleOp module) {
          return byOperand(module, number, operand);
        }))
      return true;
  return false;
}

bool Reducer::dropOps() {
  bool changed = false;
  for (size_t left = opsOf(*current).size(); left-- > 0;) {
    if (left < opsOf(*current).size() && replaceOp(left))
      changed = true;
    left = std::min(left, opsOf(*current).size());
  }
  return changed;
}

//===--- structure --------------------------------------------------------===//

bool Reducer::inlineCalls() {
  return attempt([](ModuleOp module) {
    if (llvm::hasSingleElement(module.getOps<func::FuncOp>()))
      return false;
    PassManager passes(module.getContext());
    passes.addPass(createInlineBlocks());
    return succeeded(passes.run(module));
  });
}

bool Reducer::shortenLoops() {
  return attempt([](ModuleOp module) {
    bool changed = false;
    module.walk([&](LoopOp loop) {
      changed |= loop.getTrip() > 1;
      loop.setTrip(1);
    });
    return changed;
  });
}

Module Reducer::run() {
  bool changed = true;
  while (changed) {
    changed = dropResults();
    changed |= inlineCalls();
    changed |= shortenLoops();
    changed |= dropOps();
  }
  return std::move(current);
}

OwningOpRef<ModuleOp> reduceModule(ModuleOp module,
                                   llvm::function_ref<bool(ModuleOp)> fails) {
  return Reducer(module, fails).run();
}

} // namespace tessera::metamorphic
