// The postcondition of assign-shardings, from the attributes alone: of what
// made them it uses the rules of ops and no decision.
#include "passes/sharding/Factors.h"
#include "passes/sharding/PlacementReader.h"
#include "passes/sharding/Sharding.h"
#include "passes/sharding/VerifyComputation.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

namespace tessera {
#define GEN_PASS_DEF_VERIFYSHARDINGS
#include "passes/sharding/Passes.h.inc"
} // namespace tessera

//===--- attributes -------------------------------------------------------===//

static LogicalResult verifyAttr(Operation *op, dist::ShardingAttr attr,
                                const Mesh &mesh) {
  if (attr.getMesh().getAttr() != mesh.name)
    return op->emitOpError("has a sharding on mesh ")
           << attr.getMesh() << ", others are on @" << mesh.name.getValue();
  auto isPart = [](dist::AxisRefAttr axis) { return !axis.isWhole(); };
  bool parts = llvm::any_of(attr.getPartial(), isPart);
  for (dist::DimShardingAttr dim : attr.getDims())
    parts |= llvm::any_of(dim.getAxes(), isPart);
  if (parts)
    return op->emitOpError("has a sharding along a part of an axis; make that "
                           "part an axis of the mesh");
  return success();
}

// All placements are on one mesh and along whole axes.
static LogicalResult verifyAttrs(ModuleOp module, const Mesh &mesh) {
  WalkResult walked = module->walk([&](Operation *op) {
    AttrTypeWalker walker;
    walker.addWalk([&](dist::ShardingAttr sharding) {
      return failed(verifyAttr(op, sharding, mesh)) ? WalkResult::interrupt()
                                                    : WalkResult::skip();
    });
    return walker.walk(op->getAttrDictionary());
  });
  return failure(walked.wasInterrupted());
}

//===--- structure --------------------------------------------------------===//

static std::string side(StringRef what, unsigned number) {
  return (what + " " + Twine(number)).str();
}

namespace {
class Verifier {
public:
  Verifier(ModuleOp module, const Mesh &mesh) : module(module), reader(mesh) {}

  LogicalResult run() {
    for (auto function : module.getOps<func::FuncOp>()) {
      if (isPointwise(function))
        continue;
      if (function.isExternal())
        return function.emitOpError("has no body");
      if (failed(verifyPorts(function)) ||
          failed(verifyBlock(function.getBody().front())))
        return failure();
    }
    return success();
  }

private:
  LogicalResult verifyPorts(func::FuncOp function);
  LogicalResult verifyPort(func::FuncOp function, DictionaryAttr attrs,
                           const std::string &port, const Placement &place);
  LogicalResult verifyBlock(Block &block);
  LogicalResult verifyOp(Operation *op);
  LogicalResult verifyCall(func::CallOp call);
  LogicalResult verifyLoop(graph::LoopOp loop);
  LogicalResult verifyReturn(func::ReturnOp op);
  LogicalResult verifyReshard(dist::ReshardOp op);

  /// Nothing stands between the two that would move elements.
  LogicalResult requireSame(Operation *op, const Twine &nameOfA,
                            const Placement &a, const Twine &nameOfB,
                            const Placement &b) const {
    if (a == b)
      return success();
    return op->emitOpError() << nameOfA << " is " << reader.text(a) << ", but "
                             << nameOfB << " is " << reader.text(b);
  }

  ModuleOp module;
  PlacementReader reader;
  /// State by name: its placement, and the first program that has it.
  llvm::StringMap<std::pair<Placement, std::string>> state;
};
} // namespace

// The host gives and takes numbers, not parts of them, and finds state at one
// place whichever program ran last.
LogicalResult Verifier::verifyPort(func::FuncOp function, DictionaryAttr attrs,
                                   const std::string &port,
                                   const Placement &place) {
  if (!place.partial.empty())
    return function.emitOpError()
           << port << " is " << reader.text(place)
           << ", but programs take and give no parts of sums";
  if (!place.own.empty())
    return function.emitOpError()
           << port << " is " << reader.text(place)
           << ", but what programs take and give is in one order";
  auto name = attrs ? attrs.getAs<StringAttr>(graph::kStateAttr) : StringAttr();
  if (!name)
    return success();
  auto [known, isNew] =
      state.try_emplace(name.getValue(), place, "@" + function.getName().str());
  if (isNew)
    return success();
  return requireSame(function, port + " '" + name.getValue() + "'", place,
                     "that of " + known->second.second, known->second.first);
}

LogicalResult Verifier::verifyPorts(func::FuncOp function) {
  if (!function.isPublic())
    return success();
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (failed(verifyPort(function, function.getArgAttrDict(i),
                          side("argument", i), reader.ofArgument(function, i))))
      return failure();
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (failed(verifyPort(function, function.getResultAttrDict(i),
                          side("result", i), reader.ofResult(function, i))))
      return failure();
  return success();
}

LogicalResult Verifier::verifyBlock(Block &block) {
  for (Operation &op : block)
    if (failed(verifyOp(&op)))
      return failure();
  return success();
}

LogicalResult Verifier::verifyOp(Operation *op) {
  if (auto call = dyn_cast<func::CallOp>(op); call && !isPointwiseCall(op))
    return verifyCall(call);
  if (auto loop = dyn_cast<graph::LoopOp>(op))
    return verifyLoop(loop);
  if (auto ret = dyn_cast<func::ReturnOp>(op))
    return verifyReturn(ret);
  if (auto reshard = dyn_cast<dist::ReshardOp>(op))
    return verifyReshard(reshard);
  if (isa<graph::YieldOp>(op)) // with its loop
    return success();
  if (isa<dist::DistDialect>(op->getDialect()))
    return op->emitOpError("is for programs of one device; this one has "
                           "shardings");
  FailureOr<OpRule> rule = ruleOfComputation(op);
  return failed(rule) ? failure() : verifyComputation(op, *rule, reader);
}

LogicalResult Verifier::verifyCall(func::CallOp call) {
  auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee());
  if (!callee || callee.isExternal())
    return call.emitOpError("calls @")
           << call.getCallee() << ", which has no body";
  std::string name = "@" + callee.getName().str();
  for (auto [i, operand] : llvm::enumerate(call.getOperands()))
    if (failed(requireSame(call, side("operand", i), reader.of(operand),
                           name + "'s argument", reader.ofArgument(callee, i))))
      return failure();
  for (auto [i, result] : llvm::enumerate(call.getResults()))
    if (failed(requireSame(call, side("result", i), reader.of(result),
                           name + "'s result", reader.ofResult(callee, i))))
      return failure();
  return success();
}

LogicalResult Verifier::verifyLoop(graph::LoopOp loop) {
  graph::YieldOp yield = loop.getYield();
  for (auto [i, init, yielded, carried] :
       llvm::enumerate(loop.getInits(), yield.getValues(), loop.getCarried())) {
    Placement place = reader.of(carried);
    if (failed(requireSame(loop, side("init", i), reader.of(init),
                           "what it carries", place)) ||
        failed(requireSame(yield, side("operand", i), reader.of(yielded),
                           "what the loop carries", place)))
      return failure();
  }
  return verifyBlock(loop.getBody().front());
}

LogicalResult Verifier::verifyReturn(func::ReturnOp ret) {
  auto function = cast<func::FuncOp>(ret->getParentOp());
  for (auto [i, operand] : llvm::enumerate(ret.getOperands()))
    if (failed(requireSame(ret, side("operand", i), reader.of(operand),
                           "@" + function.getName() + "'s result",
                           reader.ofResult(function, i))))
      return failure();
  return success();
}

// The op's own verifier sees where parts come from, but for arguments and for
// how they combine.
LogicalResult Verifier::verifyReshard(dist::ReshardOp op) {
  Placement from = reader.of(op.getInput()), to = reader.of(op.getResult());
  bool kept = llvm::all_of(to.partial, [&](unsigned axis) {
    return llvm::is_contained(from.partial, axis) && from.kind == to.kind;
  });
  return kept && from.own == to.own
             ? success()
             : requireSame(op, "the input", from, "its result", to);
}

namespace {
struct VerifyShardings : tessera::impl::VerifyShardingsBase<VerifyShardings> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto meshes = module.getOps<dist::MeshOp>();
    // Without a mesh there is one device, and nothing to be wrong.
    if (meshes.empty())
      return;
    Mesh mesh(*meshes.begin());
    if (failed(verifyAttrs(module, mesh)) ||
        failed(Verifier(module, mesh).run()))
      signalPassFailure();
  }
};
} // namespace
