// The pass: @eval_step from @loss, with blocks that drop nothing and add no
// noise.
#include "dialects/graph/Build.h"
#include "mlir/IR/SymbolTable.h"
#include "passes/autodiff/Autodiff.h"
#include "passes/autodiff/Program.h"
#include "runtime/train/Policy.h"

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
    function.walk([&](Operation *op) {
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
    });
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
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp loss = requireProgram(getOperation(), graph::Program::loss,
                                       "importing a model");
    if (!loss || failed(build(loss)))
      signalPassFailure();
  }

  LogicalResult build(func::FuncOp loss) {
    if (!findInput(loss, "tokens") || !findInput(loss, "targets"))
      return loss.emitOpError() << "has no argument with " << graph::kInputAttr
                                << " = \"tokens\" or \"targets\"";
    if (loss.getNumResults() < 1)
      return loss.emitOpError(
          "expects a first result, the sum of losses, got none");
    if (microbatches < 1)
      return loss.emitOpError() << "cannot evaluate " << microbatches
                                << " microbatches; the least is 1";
    OpBuilder b(loss);
    Location loc = loss.getLoc();
    SmallVector<Port> arguments;
    for (const Parameter &parameter : parametersOf(loss))
      arguments.push_back(parameterPort(parameter));
    for (StringRef name : batchInputsOf(loss))
      arguments.push_back(
          inputPort(name, ofAll(graph::tensorType(findInput(loss, name)))));
    auto i64 = RankedTensorType::get({}, b.getI64Type());
    SmallVector<Port> results{
        outputPort("loss_sum",
                   ofAll(cast<RankedTensorType>(loss.getResultTypes()[0]))),
        outputPort("tokens", i64)};
    if (std::optional<unsigned> values = valuesOf(loss))
      results.push_back(
          outputPort(kValuesOutput,
                     cast<RankedTensorType>(loss.getResultTypes()[*values])));
    func::FuncOp step =
        createProgram(b, loc, graph::Program::eval_step, arguments, results);

    b.setInsertionPointToStart(&step.front());
    auto whole = [](Value batch) { return batch; };
    b.create<func::ReturnOp>(loc, microbatches == 1
                                      ? evaluate(b, loss, step, whole)
                                      : evaluateAll(b, loss, step));
    RandomRemover(getOperation()).removeFrom(step);
    loss.erase();
    return success();
  }

  // The result with what a value head gives for each token. A pipeline's
  // evaluation, of several microbatches, leaves it out.
  std::optional<unsigned> valuesOf(func::FuncOp loss) const {
    for (unsigned i = 0; i < loss.getNumResults(); ++i)
      if (microbatches == 1 && outputName(loss, i) == kValuesOutput)
        return i;
    return std::nullopt;
  }

  // The type of what each microbatch has one of.
  RankedTensorType ofAll(RankedTensorType one) const {
    if (microbatches == 1)
      return one;
    SmallVector<int64_t> shape{microbatches};
    llvm::append_range(shape, one.getShape());
    return RankedTensorType::get(shape, one.getElementType());
  }

  // The loss of one microbatch, how many terms it has, and the values of its
  // tokens; `ofBatch` takes its part of an input. What else the loss gives is
  // for training.
  SmallVector<Value> evaluate(OpBuilder &b, func::FuncOp loss,
                              func::FuncOp step,
                              llvm::function_ref<Value(Value)> ofBatch) const {
    IRMapping map = mapArguments(b, loss, step, ofBatch);
    SmallVector<Value> all = inlineBody(b, loss, map), values{all.front()};
    values.push_back(countTerms(b, loss.getLoc(), loss, [&](StringRef name) {
      return map.lookup(findInput(loss, name));
    }));
    if (std::optional<unsigned> tokens = valuesOf(loss))
      values.push_back(all[*tokens]);
    return values;
  }

  // The losses of all microbatches, and how many terms they have together.
  // Each loss has its own element, so it has the bits of a program for one.
  SmallVector<Value> evaluateAll(OpBuilder &b, func::FuncOp loss,
                                 func::FuncOp step) const {
    Location loc = loss.getLoc();
    graph::Emitter e(b, loc);
    RankedTensorType losses =
        ofAll(cast<RankedTensorType>(loss.getResultTypes()[0]));
    SmallVector<Value> zeros{
        e.zeros(losses), e.zeros(RankedTensorType::get({}, b.getI64Type()))};
    Value numbers =
        e.iota(RankedTensorType::get({microbatches}, b.getI32Type()), 0);
    auto loop = b.create<graph::LoopOp>(
        loc, microbatches, zeros,
        [&](OpBuilder &, Location, Value index, ValueRange carried) {
          // The builder is our own, moved into the body; so is the emitter.
          auto slice = [&](Value batch) -> Value {
            return e.dynamicSlice(batch, index);
          };
          SmallVector<Value> values = evaluate(b, loss, step, slice);
          Value isOwn = e.compare(numbers, graph::ComparePredicate::eq,
                                  e.broadcastScalar(index, {microbatches}));
          Value own =
              e.select(isOwn, e.broadcastScalar(values[0], {microbatches}),
                       e.zeros(losses));
          b.create<graph::YieldOp>(
              loc,
              ValueRange{e.add(carried[0], own), e.add(carried[1], values[1])});
        });
    hoistInvariants(loop);
    return llvm::to_vector_of<Value>(loop.getResults());
  }

  // Parameters by order of the step; what only dropout and training read (seed,
  // step, offset, what @prepare_step gives) is zero.
  static IRMapping mapArguments(OpBuilder &b, func::FuncOp loss,
                                func::FuncOp step,
                                llvm::function_ref<Value(Value)> ofBatch) {
    IRMapping map;
    for (auto [i, parameter] : llvm::enumerate(parametersOf(loss)))
      map.map(loss.getArgument(parameter.index), step.getArgument(i));
    for (StringRef name : batchInputsOf(loss))
      map.map(findInput(loss, name), ofBatch(findInput(step, name)));
    graph::Emitter e(b, loss.getLoc());
    for (Value argument : loss.getArguments())
      if (!map.contains(argument))
        map.map(argument, e.zeros(graph::tensorType(argument)));
    return map;
  }
};

} // namespace
