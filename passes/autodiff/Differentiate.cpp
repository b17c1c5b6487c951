// The pass: @gradients from @loss.
#include "passes/autodiff/BlockGradients.h"
#include "passes/autodiff/Program.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

namespace tessera {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "passes/autodiff/Passes.h.inc"
} // namespace tessera

// The first result is the loss; others are outputs, either sums that are to be
// differentiated, too, or metrics.
static LogicalResult checkResults(func::FuncOp loss) {
  auto scalar = RankedTensorType::get({}, Float32Type::get(loss.getContext()));
  ArrayRef<Type> types = loss.getResultTypes();
  if (types.empty() || types.front() != scalar ||
      loss.getResultAttr(0, graph::kMetricAttr))
    return loss.emitOpError()
           << "expects a first result of type " << scalar
           << " to differentiate, got (" << loss.getResultTypes() << ")";
  for (auto [i, type] : llvm::enumerate(types.drop_front())) {
    bool isMetric = loss.getResultAttr(i + 1, graph::kMetricAttr) != nullptr;
    if (outputName(loss, i + 1).empty() || (!isMetric && type != scalar))
      return loss.emitOpError() << "result " << i + 1 << " of type " << type
                                << " is neither a named sum of type " << scalar
                                << " nor a named metric";
  }
  return success();
}

static LogicalResult checkLoss(func::FuncOp loss,
                               ArrayRef<Parameter> parameters) {
  if (failed(checkResults(loss)))
    return failure();
  if (parameters.empty())
    return loss.emitOpError() << "has no argument of role parameter to "
                                 "differentiate for";
  for (const Parameter &parameter : parameters)
    if (!parameter.frozen && !isa<FloatType>(parameter.type.getElementType()))
      return loss.emitOpError() << "cannot train '" << parameter.name.getValue()
                                << "': a parameter of type " << parameter.type
                                << " has no gradient";
  return success();
}

// The gradient op of a fused head computes its sum of losses, too. Where only
// later ops read that, the forward op goes.
static void reuseHeadLoss(Block &block) {
  for (auto gradient : block.getOps<graph::LinearCrossEntropyGradOp>())
    for (Operation *user :
         llvm::make_early_inc_range(gradient.getInput().getUsers())) {
      auto forward = dyn_cast<graph::LinearCrossEntropyOp>(user);
      if (!forward || forward.getWeight() != gradient.getWeight() ||
          forward.getTargets() != gradient.getTargets() ||
          forward.getIgnore() != gradient.getIgnore() ||
          forward.getLoss().getType() != gradient.getLoss().getType())
        continue;
      if (llvm::all_of(forward->getUsers(), [&](Operation *reader) {
            return gradient->isBeforeInBlock(reader);
          })) {
        forward.replaceAllUsesWith(gradient.getLoss());
        forward.erase();
      }
    }
}

// (loss arguments, cotangents) -> (results of the loss, gradients)
static void finishGradients(JointFunction &joint) {
  func::FuncOp function = joint.function;
  OpBuilder builder(function.getContext());
  unsigned first = function.getNumArguments() - joint.cotangents.size();
  for (auto [i, result] : llvm::enumerate(joint.differentiated)) {
    std::string name = kCotangent.str();
    if (result != 0)
      name += ("." + outputName(function, result)).str();
    function.setArgAttr(first + i, graph::kInputAttr,
                        builder.getStringAttr(name));
  }
  // Names of what follows the loss, which build-train-step goes by.
  SmallVector<DictionaryAttr> attributes{{}};
  for (unsigned i = 1; i < function.getNumResults(); ++i)
    attributes.push_back(function.getResultAttrDict(i));
  auto terminator = cast<func::ReturnOp>(function.front().getTerminator());
  terminator.getOperandsMutable().append(joint.gradients);
  function.removeResAttrsAttr();
  function.setType(builder.getFunctionType(function.getArgumentTypes(),
                                           terminator.getOperandTypes()));
  for (auto [i, each] : llvm::enumerate(attributes))
    if (each)
      function.setResultAttrs(i, each);
  reuseHeadLoss(function.front());
}

namespace {

struct Differentiate : tessera::impl::DifferentiateBase<Differentiate> {
  using DifferentiateBase::DifferentiateBase;

  void runOnOperation() override {
    if (failed(differentiate()))
      signalPassFailure();
  }

  LogicalResult differentiate() {
    func::FuncOp loss = requireProgram(getOperation(), graph::Program::loss,
                                       "importing a model");
    if (!loss)
      return failure();
    constexpr auto kKind = graph::Program::gradients;
    if (func::FuncOp made = graph::findProgram(getOperation(), kKind))
      return made.emitOpError()
             << "is there already; the module was differentiated before";
    SmallVector<Parameter> parameters = parametersOf(loss);
    if (failed(checkLoss(loss, parameters)))
      return failure();
    SmallVector<unsigned> wanted;
    for (const Parameter &parameter : parameters)
      if (!parameter.frozen)
        wanted.push_back(parameter.index);

    BlockGradients gradients(getOperation(), recompute);
    if (failed(gradients.analyze(loss, wanted)))
      return failure();
    FailureOr<JointFunction> joint =
        gradients.makeJoint(loss, graph::stringifyProgram(kKind));
    if (failed(joint))
      return failure();
    if (Attribute documents = loss->getAttr(graph::kDocumentsPerTermAttr))
      joint->function->setAttr(graph::kDocumentsPerTermAttr, documents);
    joint->function->setAttr(graph::kProgramAttr,
                             graph::ProgramAttr::get(&getContext(), kKind));
    finishGradients(*joint);
    return success();
  }
};

} // namespace
