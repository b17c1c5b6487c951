// The pass: @eval_step from @loss, with blocks that drop nothing and add no
// noise.
#include "dialects/graph/Build.h"
#include "mlir/IR/SymbolTable.h"
#include "passes/autodiff/Autodiff.h"
#include "passes/autodiff/Program.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

namespace tessera {
#define GEN_PASS_DEF_BUILDEVALSTEP
#include "passes/autodiff/Passes.h.inc"
} // namespace tessera

namespace {

/// Makes functions deterministic: no dropout in them or in what they call.
class RandomRemover {
public:
  explicit RandomRemover(ModuleOp module) : symbols(module) {}

  void removeFrom(func::FuncOp function) {
    for (Operation &op : llvm::make_early_inc_range(function.front())) {
      if (auto dropout = dyn_cast<graph::DropoutOp>(op)) {
        dropout.replaceAllUsesWith(dropout.getInput());
        dropout.erase();
      } else if (auto random = dyn_cast<graph::RandomOp>(op)) {
        OpBuilder builder(random);
        random.replaceAllUsesWith(
            graph::Emitter(builder, random.getLoc()).zeros(random.getType()));
        random.erase();
      } else if (auto call = dyn_cast<func::CallOp>(op)) {
        if (auto callee = symbols.lookup<func::FuncOp>(call.getCallee()))
          call.setCallee(withoutRandom(callee).getName());
      }
    }
  }

private:
  // Whether it or what it calls has random numbers; each is looked at once.
  bool isRandom(func::FuncOp function) {
    auto [entry, isNew] = drops.try_emplace(function, false);
    if (!isNew)
      return entry->second;
    WalkResult result = function.walk([&](Operation *op) {
      auto call = dyn_cast<func::CallOp>(op);
      auto callee = call ? symbols.lookup<func::FuncOp>(call.getCallee())
                         : func::FuncOp();
      return isa<graph::DropoutOp, graph::RandomOp>(op) ||
                     (callee && isRandom(callee))
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    return drops[function] = result.wasInterrupted();
  }

  // The function itself where it drops nothing, else its copy `.eval`.
  func::FuncOp withoutRandom(func::FuncOp function) {
    auto [entry, isNew] = variants.try_emplace(function, function);
    if (!isNew || !isRandom(function))
      return entry->second;
    func::FuncOp copy = function.clone();
    copy.setName((function.getName() + ".eval").str());
    symbols.insert(copy, std::next(Block::iterator(function)));
    removeFrom(copy);
    return variants[function] = copy;
  }

  SymbolTable symbols;
  DenseMap<Operation *, bool> drops;
  DenseMap<Operation *, func::FuncOp> variants;
};

struct BuildEvalStep : tessera::impl::BuildEvalStepBase<BuildEvalStep> {
  void runOnOperation() override {
    func::FuncOp loss = requireProgram(getOperation(), graph::Program::loss,
                                       "importing a model");
    if (!loss || failed(build(loss)))
      signalPassFailure();
  }

  LogicalResult build(func::FuncOp loss) {
    Value tokens = findInput(loss, "tokens"),
          targets = findInput(loss, "targets");
    if (!tokens || !targets)
      return loss.emitOpError() << "has no argument with " << graph::kInputAttr
                                << " = \"tokens\" or \"targets\"";
    if (loss.getNumResults() < 1)
      return loss.emitOpError(
          "expects a first result, the sum of losses, got none");
    OpBuilder b(loss);
    Location loc = loss.getLoc();
    SmallVector<Port> arguments;
    for (const Parameter &parameter : parametersOf(loss))
      arguments.push_back(parameterPort(parameter));
    arguments.push_back(inputPort("tokens", graph::tensorType(tokens)));
    arguments.push_back(inputPort("targets", graph::tensorType(targets)));
    auto i64 = RankedTensorType::get({}, b.getI64Type());
    SmallVector<Port> results{
        outputPort("loss_sum",
                   cast<RankedTensorType>(loss.getResultTypes()[0])),
        outputPort("tokens", i64)};
    func::FuncOp step =
        createProgram(b, loc, graph::Program::eval_step, arguments, results);

    b.setInsertionPointToStart(&step.front());
    IRMapping map = mapArguments(b, loss, step);
    // What else the loss gives is for training.
    SmallVector<Value> values = inlineBody(b, loss, map);
    values.truncate(1);
    values.push_back(countTargets(b, loc, findInput(step, "targets")));
    b.create<func::ReturnOp>(loc, values);
    RandomRemover(getOperation()).removeFrom(step);
    loss.erase();
    return success();
  }

  // Parameters, tokens and targets by order of the step; what only dropout and
  // training read (seed, step, offset, what @prepare_step gives) is zero.
  static IRMapping mapArguments(OpBuilder &b, func::FuncOp loss,
                                func::FuncOp step) {
    IRMapping map;
    for (auto [i, parameter] : llvm::enumerate(parametersOf(loss)))
      map.map(loss.getArgument(parameter.index), step.getArgument(i));
    for (StringRef name : {"tokens", "targets"})
      map.map(findInput(loss, name), findInput(step, name));
    graph::Emitter e(b, loss.getLoc());
    for (Value argument : loss.getArguments())
      if (!map.contains(argument))
        map.map(argument, e.zeros(graph::tensorType(argument)));
    return map;
  }
};

} // namespace
