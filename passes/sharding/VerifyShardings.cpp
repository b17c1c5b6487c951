// Verifies the postcondition of assign-shardings from attributes and the rules
// of ops, without the strategy that made them.
#include "dialects/dist/CollectiveMatmulAttr.h"
#include "passes/sharding/DecomposedReshard.h"
#include "passes/sharding/Factors.h"
#include "passes/sharding/PlacementReader.h"
#include "passes/sharding/Sharding.h"
#include "passes/sharding/VerifyComputation.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

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
    return op->emitOpError("has a sharding along a sub-axis; make that "
                           "sub-axis an axis of the mesh");
  return success();
}

// All placements are on one mesh and along whole axes.
static LogicalResult verifyAttrs(ModuleOp module, const Mesh &mesh) {
  // The walker visits an attribute once, however many ops have it.
  Operation *owner = nullptr;
  AttrTypeWalker walker;
  walker.addWalk([&](dist::ShardingAttr sharding) {
    return failed(verifyAttr(owner, sharding, mesh)) ? WalkResult::interrupt()
                                                     : WalkResult::skip();
  });
  WalkResult walked = module->walk([&](Operation *op) {
    owner = op;
    // The inherent attributes of graph ops are not shardings.
    bool own =
        isa<func::FuncOp>(op) || isa<dist::DistDialect>(op->getDialect());
    return walker.walk(own ? op->getAttrDictionary()
                           : op->getDiscardableAttrDictionary());
  });
  return failure(walked.wasInterrupted());
}

//===--- structure --------------------------------------------------------===//

namespace {
/// One of an op's or a function's operands, arguments or results.
struct Side {
  StringRef what;
  size_t number;
};
} // namespace

static std::string text(Side side) {
  return (side.what + " " + Twine(side.number)).str();
}

namespace {
class Verifier {
public:
  Verifier(ModuleOp module, const Mesh &mesh)
      : module(module), callees(module), reader(mesh) {}

  LogicalResult run() {
    for (auto function : module.getOps<func::FuncOp>()) {
      if (callees.isPointwise(function))
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
                           Side port, const Placement &place);
  LogicalResult verifyBlock(Block &block);
  LogicalResult verifyOp(Operation *op);
  LogicalResult verifyComputing(Operation *op);
  LogicalResult verifyCall(func::CallOp call);
  LogicalResult verifyLoop(graph::LoopOp loop);
  LogicalResult verifyReturn(func::ReturnOp op);
  LogicalResult verifyReshard(dist::ReshardOp op);

  /// No reshard is between the two, so they must be equal.
  LogicalResult requireSame(Operation *op, const Twine &nameOfA,
                            const Placement &a, const Twine &nameOfB,
                            const Placement &b) const {
    if (&a == &b)
      return success();
    return op->emitOpError() << nameOfA << " is " << reader.text(a) << ", but "
                             << nameOfB << " is " << reader.text(b);
  }
  LogicalResult requireSame(Operation *op, Side a, const Placement &ofA,
                            const Twine &nameOfB, const Placement &ofB) const {
    return &ofA == &ofB ? success()
                        : requireSame(op, text(a), ofA, nameOfB, ofB);
  }

  /// The placements of a function's arguments and results.
  struct Signature {
    SmallVector<const Placement *> arguments, results;
  };
  const Signature &signatureOf(func::FuncOp function) {
    auto [known, isNew] = signatures.try_emplace(function);
    if (isNew) {
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        known->second.arguments.push_back(&reader.ofArgument(function, i));
      for (unsigned i = 0; i < function.getNumResults(); ++i)
        known->second.results.push_back(&reader.ofResult(function, i));
    }
    return known->second;
  }

  using Situation = SmallVector<const void *, 16>;
  struct Hash {
    size_t operator()(const Situation &key) const {
      return llvm::hash_combine_range(key.begin(), key.end());
    }
  };

  ModuleOp module;
  Callees callees;
  PlacementReader reader;
  RuleCache rules;
  /// Rules and operand placements that were verified.
  std::unordered_set<Situation, Hash> verified;
  llvm::DenseMap<Operation *, Signature> signatures;
  /// State by name: its placement, and the first program that has it.
  llvm::DenseMap<Attribute, std::pair<const Placement *, func::FuncOp>> state;
};
} // namespace

// Inputs and outputs of programs are not partial, and state has one placement
// in all programs.
LogicalResult Verifier::verifyPort(func::FuncOp function, DictionaryAttr attrs,
                                   Side port, const Placement &place) {
  if (!place.partial.empty())
    return function.emitOpError()
           << text(port) << " is " << reader.text(place)
           << ", but arguments and results of programs cannot be partial";
  if (!place.own.empty())
    return function.emitOpError()
           << text(port) << " is " << reader.text(place)
           << ", but arguments and results of programs have one row order for "
              "all devices";
  auto name = attrs ? attrs.getAs<StringAttr>(graph::kStateAttr) : StringAttr();
  if (!name)
    return success();
  auto [known, isNew] = state.try_emplace(name, std::pair(&place, function));
  auto [first, owner] = known->second;
  if (first == &place)
    return success();
  return requireSame(function, text(port) + " '" + name.getValue() + "'", place,
                     "that of @" + owner.getName(), *first);
}

LogicalResult Verifier::verifyPorts(func::FuncOp function) {
  if (!function.isPublic())
    return success();
  const Signature &signature = signatureOf(function);
  for (auto [i, place] : llvm::enumerate(signature.arguments))
    if (failed(verifyPort(function, function.getArgAttrDict(i), {"argument", i},
                          *place)))
      return failure();
  for (auto [i, place] : llvm::enumerate(signature.results))
    if (failed(verifyPort(function, function.getResultAttrDict(i),
                          {"result", i}, *place)))
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
  if (auto call = dyn_cast<func::CallOp>(op);
      call && !callees.isPointwiseCall(op))
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
    return op->emitOpError("is only allowed in local programs; this one has "
                           "shardings");
  return verifyComputing(op);
}

// Ops that share a rule have equal attributes, so their results have equal
// placements.
LogicalResult Verifier::verifyComputing(Operation *op) {
  FailureOr<const OpRule *> rule = rules.of(op);
  if (failed(rule))
    return failure();
  Situation situation{*rule};
  for (Value operand : op->getOperands()) {
    situation.push_back(&reader.of(operand));
    if ((*rule)->isPointwise && isSplat(operand))
      situation.push_back(nullptr);
  }
  if (!verified.insert(std::move(situation)).second)
    return success();
  return verifyComputation(op, **rule, reader);
}

LogicalResult Verifier::verifyCall(func::CallOp call) {
  func::FuncOp callee = callees.of(call);
  if (!callee || callee.isExternal())
    return call.emitOpError("calls @")
           << call.getCallee() << ", which has no body";
  const Signature &signature = signatureOf(callee);
  for (auto [i, operand, argument] :
       llvm::enumerate(call.getOperands(), signature.arguments))
    if (failed(requireSame(call, Side{"operand", i}, reader.of(operand),
                           "@" + callee.getName() + "'s argument", *argument)))
      return failure();
  for (auto [i, result, returned] :
       llvm::enumerate(call.getResults(), signature.results))
    if (failed(requireSame(call, Side{"result", i}, reader.of(result),
                           "@" + callee.getName() + "'s result", *returned)))
      return failure();
  return success();
}

LogicalResult Verifier::verifyLoop(graph::LoopOp loop) {
  graph::YieldOp yield = loop.getYield();
  for (auto [i, init, yielded, carried] :
       llvm::enumerate(loop.getInits(), yield.getValues(), loop.getCarried())) {
    const Placement &place = reader.of(carried);
    if (failed(requireSame(loop, Side{"init", i}, reader.of(init),
                           "the loop-carried value", place)) ||
        failed(requireSame(yield, Side{"operand", i}, reader.of(yielded),
                           "the loop-carried value", place)))
      return failure();
  }
  return verifyBlock(loop.getBody().front());
}

LogicalResult Verifier::verifyReturn(func::ReturnOp ret) {
  auto function = cast<func::FuncOp>(ret->getParentOp());
  for (auto [i, operand, result] :
       llvm::enumerate(ret.getOperands(), signatureOf(function).results))
    if (failed(requireSame(ret, Side{"operand", i}, reader.of(operand),
                           "@" + function.getName() + "'s result", *result)))
      return failure();
  return success();
}

// The op's own verifier checks that partial values come from the input, except
// for arguments and for the kind of reduction.
LogicalResult Verifier::verifyReshard(dist::ReshardOp op) {
  const Placement &from = reader.of(op.getInput()),
                  &to = reader.of(op.getResult());
  if (std::string why = "only gathers and scatters over 'tensor' can be";
      op->hasAttr(dist::kCollectiveMatmulAttr) &&
      !matchDecomposedReshard(op, reader, why))
    return op.emitOpError("cannot be decomposed (dist.collective_matmul): ")
           << why;
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
    markAllAnalysesPreserved(); // nothing to verify again
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
