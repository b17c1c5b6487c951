// layer_norm and rms_norm: what is verified, what they mean in primitives,
// gradients and sharding rules.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphVerify.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

//===--- verifiers ------------------------------------------------------===//

// A norm works along the last dimension with one parameter an element.
static LogicalResult verifyNorm(Operation *op, Value input, Value weight,
                                Value bias, double eps) {
  RankedTensorType type = tensorType(input);
  if (type.getRank() == 0)
    return op->emitOpError("expects an input of rank 1 or more");
  if (!(eps >= 0.0) || !std::isfinite(eps))
    return op->emitOpError() << "expects a finite eps of at least 0";
  if (failed(expectShape(op, "a weight", tensorType(weight),
                         type.getShape().take_back())))
    return failure();
  if (!bias)
    return success();
  if (failed(expectShape(op, "a bias", tensorType(bias),
                         type.getShape().take_back())))
    return failure();
  return expectSameElement(op, "weight", tensorType(weight), "bias",
                           tensorType(bias));
}

LogicalResult LayerNormOp::verify() {
  return verifyNorm(*this, getInput(), getWeight(), getBias(),
                    getEps().convertToDouble());
}

LogicalResult RmsNormOp::verify() {
  if (!getOffset().isFinite())
    return emitOpError("expects a finite offset");
  return verifyNorm(*this, getInput(), getWeight(), {},
                    getEps().convertToDouble());
}

//===--- meaning --------------------------------------------------------===//

namespace {
// x without its mean (if centered) over its root mean square, along the last
// dimension; `inverse` is 1 / sqrt(mean of squares + eps), of x's rank less
// one. Both in the statistics type.
struct Normalized {
  Value value, inverse;
};
} // namespace

static Value meanLast(Emitter &e, Value x) {
  return e.mul(e.sumLast(x), 1.0 / static_cast<double>(shapeOf(x).back()));
}

static Normalized normalize(Emitter &e, Value x, double eps, bool center) {
  ArrayRef<int64_t> shape = shapeOf(x);
  x = e.convert(x, statisticsType(x));
  if (center)
    x = e.sub(x, e.broadcastFirst(meanLast(e, x), shape));
  Value inverse = e.unary<RsqrtOp>(e.add(meanLast(e, e.mul(x, x)), eps));
  return {e.mul(x, e.broadcastFirst(inverse, shape)), inverse};
}

// offset + weight in `type`: what a norm multiplies with.
static Value normWeight(Emitter &e, Value weight, double offset, Type type) {
  weight = e.convert(weight, type);
  return offset == 0 ? weight : e.add(weight, offset);
}

// value × (offset + weight) + bias (none if null), in the element type of
// `like`.
static Value scaleAndShift(Emitter &e, Value value, Value weight, double offset,
                           Value bias, Value like) {
  ArrayRef<int64_t> shape = shapeOf(value);
  Type type = tensorType(value).getElementType();
  value =
      e.mul(value, e.broadcastLast(normWeight(e, weight, offset, type), shape));
  if (bias)
    value = e.add(value, e.broadcastLast(e.convert(bias, type), shape));
  return e.convert(value, tensorType(like).getElementType());
}

SmallVector<Value> LayerNormOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Normalized x = normalize(e, getInput(), getEps().convertToDouble(), true);
  return {scaleAndShift(e, x.value, getWeight(), 0, getBias(), getInput())};
}

SmallVector<Value> RmsNormOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Normalized x = normalize(e, getInput(), getEps().convertToDouble(), false);
  return {scaleAndShift(e, x.value, getWeight(), getOffset().convertToDouble(),
                        {}, getInput())};
}

//===--- gradients ------------------------------------------------------===//

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

//===--- sharding rules -------------------------------------------------===//

OpRule LayerNormOp::getShardingRule() { return rowRule(*this); }

OpRule RmsNormOp::getShardingRule() { return rowRule(*this); }
