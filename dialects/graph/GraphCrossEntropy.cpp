// linear_cross_entropy and its gradient: what is verified, what they mean in
// primitives, and sharding rules.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphVerify.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

//===--- verifiers ------------------------------------------------------===//

static LogicalResult verifyHead(Operation *op, RankedTensorType input,
                                RankedTensorType weight,
                                RankedTensorType targets) {
  if (failed(expectRank(op, "an input", input, 2)) ||
      failed(expectRank(op, "a weight", weight, 2)))
    return failure();
  // One target a token, or several.
  SmallVector<int64_t> shape{input.getDimSize(0)};
  if (targets.getRank() == 2)
    shape.push_back(targets.getDimSize(1));
  if (failed(expectShape(op, "a weight", weight,
                         {weight.getDimSize(0), input.getDimSize(1)})) ||
      failed(expectShape(op, "targets", targets, shape)))
    return failure();
  if (weight.getDimSize(0) == 0)
    return op->emitOpError("expects a vocabulary of at least 1");
  return expectSameElement(op, "input", input, "weight", weight);
}

// One number, or one for each target.
static LogicalResult verifyLosses(Operation *op, StringRef what, Value losses,
                                  Value targets) {
  RankedTensorType type = tensorType(losses);
  return type.getRank() == 0
             ? success()
             : expectShape(op, what, type, tensorType(targets).getShape());
}

LogicalResult LinearCrossEntropyOp::verify() {
  if (failed(verifyCap(*this)) ||
      failed(verifyLosses(*this, "losses", getLoss(), getTargets())))
    return failure();
  return verifyHead(*this, tensorType(getInput()), tensorType(getWeight()),
                    tensorType(getTargets()));
}

LogicalResult LinearCrossEntropyGradOp::verify() {
  RankedTensorType input = tensorType(getInput()),
                   weight = tensorType(getWeight());
  if (failed(verifyCap(*this)) ||
      failed(verifyLosses(*this, "cotangents", getCotangent(), getTargets())))
    return failure();
  if (failed(verifyHead(*this, input, weight, tensorType(getTargets()))) ||
      failed(expectSameElement(*this, "input", input, "dInput",
                               tensorType(getDInput()))))
    return failure();
  return expectSameOrWider(*this, "the weight", weight, "dWeight",
                           tensorType(getDWeight()));
}

//===--- meaning --------------------------------------------------------===//

namespace {
// What the loss and its gradients are made of. Shapes: [tokens, vocab], also of
// `logits`, and [tokens] or [tokens, n] for `targets`, `counted` (i1) and
// `loss`.
struct Head {
  Exponentials exps;
  Value logits, targets, counted, loss;
};
} // namespace

// Whether the column is the row's target. Recomputed at each use: comparing
// costs less than storing a tensor [tokens, vocab].
static Value emitIsTarget(Emitter &e, Value targets, ArrayRef<int64_t> shape) {
  Type index = tensorType(targets).getElementType();
  return e.compare(e.iota(RankedTensorType::get(shape, index), 1),
                   ComparePredicate::eq, e.broadcastFirst(targets, shape));
}

// The logits of the targets; an ignored one may have any.
static Value emitPicked(Emitter &e, Value logits, Value targets) {
  if (tensorType(targets).getRank() == 2)
    return takeAlongRows(e, logits, targets);
  return e.sumLast(e.select(emitIsTarget(e, targets, shapeOf(logits)), logits,
                            e.splatLike(0.0, logits)));
}

static Head buildHead(Emitter &e, Value input, Value weight, Value targets,
                      int64_t ignore, std::optional<double> cap) {
  Type type = statisticsType(input);
  Value logits = e.softCap(e.einsum("tk,vk->tv", input, weight, type), cap);
  // A vocabulary does not fit the indices of narrower integers.
  const bool isSeveral = tensorType(targets).getRank() == 2;
  if (isSeveral || tensorType(targets).getElementTypeBitWidth() < 32)
    targets = e.convert(targets, e.builder().getI32Type());
  Head head;
  head.logits = logits;
  head.exps = exponentials(e, logits);
  head.targets = targets;
  head.counted = e.compare(targets, ComparePredicate::ne,
                           e.splatLike(static_cast<double>(ignore), targets));
  Value logSum = head.exps.logSum;
  if (isSeveral)
    logSum = e.broadcastFirst(logSum, shapeOf(targets));
  Value loss = e.sub(logSum, emitPicked(e, logits, targets));
  head.loss = e.select(head.counted, loss, e.splatLike(0.0, loss));
  return head;
}

// Summed where `loss` has no dimensions.
static Value lossAs(Emitter &e, const Head &head, Value loss) {
  RankedTensorType type = tensorType(loss);
  return e.convert(type.getRank() == 0 ? e.sumAll(head.loss) : head.loss,
                   type.getElementType());
}

SmallVector<Value> LinearCrossEntropyOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Head head = buildHead(e, getInput(), getWeight(), getTargets(),
                        static_cast<int64_t>(getIgnore()), capOf(*this));
  return {lossAs(e, head, getLoss())};
}

// d loss / d logits = (softmax - one-hot) × cotangent, of several targets their
// sum. `cotangent` is 0 where a target is ignored.
static Value emitLogitGradient(Emitter &e, const Head &head, Value cotangent) {
  ArrayRef<int64_t> shape = shapeOf(head.exps.value);
  Value softmax =
      e.div(head.exps.value, e.broadcastFirst(head.exps.sum, shape));
  if (tensorType(head.targets).getRank() == 2)
    return e.sub(e.mul(softmax, e.broadcastFirst(e.sumLast(cotangent), shape)),
                 addAlongRows(e, cotangent, head.targets, shape[1]));
  Value ones = e.convert(emitIsTarget(e, head.targets, shape),
                         tensorType(softmax).getElementType());
  return e.mul(e.sub(softmax, ones), e.broadcastFirst(cotangent, shape));
}

SmallVector<Value> LinearCrossEntropyGradOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Head head = buildHead(e, getInput(), getWeight(), getTargets(),
                        static_cast<int64_t>(getIgnore()), capOf(*this));
  Type type = tensorType(head.exps.value).getElementType();
  Value cotangent = e.convert(getCotangent(), type);
  if (tensorType(cotangent).getRank() == 0)
    cotangent = e.broadcastScalar(cotangent, shapeOf(head.targets));
  cotangent = e.select(head.counted, cotangent, e.splatLike(0.0, cotangent));
  Value dLogits = emitLogitGradient(e, head, cotangent);
  dLogits = e.softCapGradient(dLogits, head.logits, capOf(*this));
  dLogits = e.convert(dLogits, tensorType(getInput()).getElementType());
  return {lossAs(e, head, getLoss()),
          e.einsum("tv,vk->tk", dLogits, getWeight()),
          e.einsum("tv,tk->vk", dLogits, getInput(),
                   tensorType(getDWeight()).getElementType())};
}

//===--- gradients ------------------------------------------------------===//

SmallVector<Value> LinearCrossEntropyOp::buildVjp(OpBuilder &builder,
                                                  ValueRange cotangents) {
  if (!cotangents[0])
    return none(*this);
  auto grad = builder.create<LinearCrossEntropyGradOp>(
      getLoc(), getInput(), getWeight(), getTargets(), cotangents[0],
      getIgnoreAttr(), getCapAttr());
  return {grad.getDInput(), grad.getDWeight(), Value()};
}

SmallVector<Value> LinearCrossEntropyGradOp::buildVjp(OpBuilder &, ValueRange) {
  return none(*this);
}

//===--- sharding rules -------------------------------------------------===//

// input [tokens, width], weight [vocab, width], targets [tokens] or [tokens,
// n]: the loss is a sum or one for each target, and the gradient of the weight
// is a sum.
// With a sharded vocabulary, a token's loss is computed on the device that has
// its target, and the gradient of the input is a sum over logits
// (LocalHead.cpp).
template <typename Op> static OpRule crossEntropyRule(Op op) {
  constexpr bool isGradient = std::is_same_v<Op, LinearCrossEntropyGradOp>;
  OpRule rule;
  OpRule::Dims input = rule.loopsOf(op.getInput()),
               weight = {{rule.loopDim(op.getWeight().getType().getDimSize(0),
                                       LoopKind::sum)},
                         input[1]};
  rule.loops[input[1][0]].kind = LoopKind::whole;
  OpRule::Dims each{input[0]};
  if (tensorType(op.getTargets()).getRank() == 2)
    each.push_back({rule.loopDim(tensorType(op.getTargets()).getDimSize(1),
                                 LoopKind::whole)});
  rule.operands = {input, weight, each};
  const OpRule::Dims one;
  auto dimsOf = [&](Value losses) {
    return tensorType(losses).getRank() == 0 ? one : each;
  };
  if (isGradient || tensorType(op.getLoss()).getRank() == 0)
    rule.loops[input[0][0]].kind = LoopKind::sum;
  rule.results = {dimsOf(op.getLoss())};
  if constexpr (isGradient) {
    rule.operands.push_back(dimsOf(op.getCotangent()));
    rule.results.append({input, weight});
  }
  return rule;
}

OpRule LinearCrossEntropyOp::getShardingRule() {
  return crossEntropyRule(*this);
}

OpRule LinearCrossEntropyGradOp::getShardingRule() {
  return crossEntropyRule(*this);
}
