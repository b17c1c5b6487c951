// Gradients of the composites, as short explicit formulas.
#include "dialects/graph/GraphDecompose.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

static ArrayRef<int64_t> shapeOf(Value x) { return tensorType(x).getShape(); }

static SmallVector<Value> none(Operation *op) {
  return SmallVector<Value>(op->getNumOperands());
}

// To the element type of `like`.
static Value convertLike(Emitter &e, Value x, Value like) {
  return e.convert(x, tensorType(like).getElementType());
}

// The mean over the last dimension, repeated along it.
static Value spreadMean(Emitter &e, Value x) {
  double scale = 1.0 / static_cast<double>(shapeOf(x).back());
  return e.broadcastFirst(e.mul(e.sumLast(x), scale), shapeOf(x));
}

// Over all dimensions but the last.
static Value sumLeading(Emitter &e, Value x) {
  return e.sum(
      x, llvm::to_vector(llvm::seq<int64_t>(0, tensorType(x).getRank() - 1)));
}

// y (g - Σ g y)
SmallVector<Value> SoftmaxOp::buildVjp(OpBuilder &builder,
                                       ValueRange cotangents) {
  if (!cotangents[0])
    return none(*this);
  Emitter e(builder, getLoc());
  Type type = statisticsType(getInput());
  Value y = e.convert(getResult(), type), g = e.convert(cotangents[0], type);
  Value dot = e.broadcastFirst(e.sumLast(e.mul(g, y)), shapeOf(y));
  return {convertLike(e, e.mul(y, e.sub(g, dot)), getInput())};
}

// With n the normalized input, r its factor and h = g × (offset + weight):
// dx = r (h - mean(h) - n mean(h n)), without mean(h) if nothing was centered;
// dweight = Σ g n and dbias = Σ g over tokens.
static SmallVector<Value> normGradients(Emitter &e, Value input, Value weight,
                                        double offset, Value bias, double eps,
                                        bool center, Value cotangent) {
  ArrayRef<int64_t> shape = shapeOf(input);
  Normalized x = normalize(e, input, eps, center);
  Type type = tensorType(x.value).getElementType();
  Value g = e.convert(cotangent, type);
  Value h =
      e.mul(g, e.broadcastLast(normWeight(e, weight, offset, type), shape));
  Value along = e.mul(x.value, spreadMean(e, e.mul(h, x.value)));
  if (center)
    along = e.add(spreadMean(e, h), along);
  Value dInput = e.mul(e.broadcastFirst(x.inverse, shape), e.sub(h, along));
  SmallVector<Value> result{
      convertLike(e, dInput, input),
      convertLike(e, sumLeading(e, e.mul(g, x.value)), weight)};
  if (bias)
    result.push_back(convertLike(e, sumLeading(e, g), bias));
  return result;
}

SmallVector<Value> LayerNormOp::buildVjp(OpBuilder &builder,
                                         ValueRange cotangents) {
  if (!cotangents[0])
    return none(*this);
  Emitter e(builder, getLoc());
  return normGradients(e, getInput(), getWeight(), 0, getBias(),
                       getEps().convertToDouble(), true, cotangents[0]);
}

SmallVector<Value> RmsNormOp::buildVjp(OpBuilder &builder,
                                       ValueRange cotangents) {
  if (!cotangents[0])
    return none(*this);
  Emitter e(builder, getLoc());
  return normGradients(e, getInput(), getWeight(),
                       getOffset().convertToDouble(), {},
                       getEps().convertToDouble(), false, cotangents[0]);
}

// The transpose of a rotation turns back.
SmallVector<Value> RopeOp::buildVjp(OpBuilder &builder, ValueRange cotangents) {
  if (!cotangents[0])
    return none(*this);
  auto back = cast<RopeOp>(builder.clone(**this));
  back.getInputMutable().assign(cotangents[0]);
  back.setInverse(!getInverse());
  SmallVector<Value> result = none(*this);
  result[0] = back.getResult();
  return result;
}

// The same elements are kept.
SmallVector<Value> DropoutOp::buildVjp(OpBuilder &builder,
                                       ValueRange cotangents) {
  SmallVector<Value> result = none(*this);
  if (!cotangents[0])
    return result;
  auto again = cast<DropoutOp>(builder.clone(**this));
  again.getInputMutable().assign(cotangents[0]);
  result[0] = again.getResult();
  return result;
}

SmallVector<Value> AttentionOp::buildVjp(OpBuilder &builder,
                                         ValueRange cotangents) {
  Value g = cotangents[0], gLse = cotangents[1];
  if (!g && !gLse)
    return none(*this);
  Emitter e(builder, getLoc());
  if (!g)
    g = e.zeros(tensorType(getResult()));
  if (!gLse) {
    auto grad = builder.create<AttentionGradOp>(
        getLoc(), getQuery().getType(), getKey().getType(),
        getValue().getType(), getQuery(), getKey(), getValue(), getResult(),
        getLse(), g, getStart(), getScaleAttr(), getCausalAttr(),
        getWindowAttr(), getCapAttr());
    SmallVector<Value> result = none(*this);
    llvm::copy(grad.getResults(), result.begin());
    return result;
  }
  // d lse / d scores is the probabilities, so that its cotangent joins the row
  // sums; no model asks for it in a hot loop, and primitives do.
  Value rowSums = attentionRowSums(e, getResult(), g);
  rowSums = e.sub(rowSums, convertLike(e, gLse, rowSums));
  SmallVector<Value> result = none(*this);
  llvm::copy(
      attentionGradients(e, AttentionInputs::of(*this), getLse(), rowSums, g),
      result.begin());
  return result;
}

SmallVector<Value> AttentionGradOp::buildVjp(OpBuilder &, ValueRange) {
  return none(*this);
}

SmallVector<Value> PagedAttentionOp::buildVjp(OpBuilder &, ValueRange) {
  return none(*this);
}

SmallVector<Value> LinearCrossEntropyOp::buildVjp(OpBuilder &builder,
                                                  ValueRange cotangents) {
  if (!cotangents[0])
    return none(*this);
  auto grad = builder.create<LinearCrossEntropyGradOp>(
      getLoc(), getLoss().getType(), getInput().getType(),
      getWeight().getType(), getInput(), getWeight(), getTargets(),
      cotangents[0], getIgnoreAttr(), getCapAttr());
  return {grad.getDInput(), grad.getDWeight(), Value()};
}

SmallVector<Value> LinearCrossEntropyGradOp::buildVjp(OpBuilder &, ValueRange) {
  return none(*this);
}
