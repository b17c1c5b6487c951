// Composites in primitives: norms, softmax, rope, dropout, cross-entropy.
#include "dialects/graph/GraphDecompose.h"
#include <limits>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

Type tessera::graph::detail::statisticsType(Value x) {
  Type element = tensorType(x).getElementType();
  return element.isF64() ? element : Float32Type::get(element.getContext());
}

static ArrayRef<int64_t> shapeOf(Value x) { return tensorType(x).getShape(); }

static int64_t lastSize(Value x) { return shapeOf(x).back(); }

//===--- norms ----------------------------------------------------------===//

static Value meanLast(Emitter &e, Value x) {
  return e.mul(e.sumLast(x), 1.0 / static_cast<double>(lastSize(x)));
}

Normalized tessera::graph::detail::normalize(Emitter &e, Value x, double eps,
                                             bool center) {
  ArrayRef<int64_t> shape = shapeOf(x);
  x = e.convert(x, statisticsType(x));
  if (center)
    x = e.sub(x, e.broadcastFirst(meanLast(e, x), shape));
  Value inverse = e.unary<RsqrtOp>(e.add(meanLast(e, e.mul(x, x)), eps));
  return {e.mul(x, e.broadcastFirst(inverse, shape)), inverse};
}

Value tessera::graph::detail::normWeight(Emitter &e, Value weight,
                                         double offset, Type type) {
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

//===--- softmax --------------------------------------------------------===//

Exponentials tessera::graph::detail::exponentials(Emitter &e, Value x) {
  // A row of -inf would give -inf - -inf; the least finite maximum gives 0.
  Value max = e.maxLast(x);
  max = e.max(max, e.splatLike(std::numeric_limits<float>::lowest(), max));
  Value value = e.exp(e.sub(x, e.broadcastFirst(max, shapeOf(x))));
  Value sum = e.sumLast(value);
  return {value, sum, e.add(max, e.unary<LogOp>(sum))};
}

// A visible row sums to 1 or more, so that only rows of zeros are changed.
static Value avoidZero(Emitter &e, Value sum) {
  return e.max(sum, e.splatLike(std::numeric_limits<float>::min(), sum));
}

SmallVector<Value> SoftmaxOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Value x = e.convert(getInput(), statisticsType(getInput()));
  Exponentials exps = exponentials(e, x);
  Value sum = e.broadcastFirst(avoidZero(e, exps.sum), shapeOf(x));
  return {e.convert(e.div(exps.value, sum),
                    tensorType(getInput()).getElementType())};
}

//===--- rope -----------------------------------------------------------===//

// `Op`(angle) × scaling.
template <typename Op>
static Value angleTable(Emitter &e, Value angles, double scaling) {
  Value table = e.unary<Op>(angles);
  return scaling == 1.0 ? table : e.mul(table, scaling);
}

// position × frequencies[i]: [tokens, head_dim / 2], of each sequence if it has
// positions of its own.
static Value ropeAngles(Emitter &e, int64_t tokens, Value positions,
                        ArrayRef<double> frequencies, FloatType type) {
  int64_t half = frequencies.size();
  SmallVector<APFloat> rounded;
  for (double frequency : frequencies) {
    bool inexact;
    rounded.emplace_back(frequency);
    rounded.back().convert(type.getFloatSemantics(),
                           APFloat::rmNearestTiesToEven, &inexact);
  }
  auto rowType = RankedTensorType::get({half}, type);
  Value row = e.builder().create<ConstantOp>(
      e.location(), rowType,
      cast<ElementsAttr>(DenseElementsAttr::get(rowType, rounded)));
  auto i32 = IntegerType::get(type.getContext(), 32);
  if (!positions)
    positions = e.iota(RankedTensorType::get({tokens}, i32), 0);
  SmallVector<int64_t> shape(shapeOf(positions));
  shape.push_back(half);
  return e.mul(e.broadcastFirst(e.convert(positions, type), shape),
               e.broadcastLast(row, shape));
}

SmallVector<Value> RopeOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Value x = e.convert(getInput(), statisticsType(getInput()));
  SmallVector<int64_t> half(shapeOf(x));
  half[3] /= 2;
  Value angles = ropeAngles(e, half[1], getPositions(), getFrequencies(),
                            cast<FloatType>(tensorType(x).getElementType()));
  double scaling = getScaling().convertToDouble();
  Value cos = angleTable<CosOp>(e, angles, scaling);
  Value sin = angleTable<SinOp>(e, angles, getInverse() ? -scaling : scaling);
  // Positions of their own make the table one for each sequence.
  SmallVector<int64_t> dims = getPositions() ? SmallVector<int64_t>{0, 1, 3}
                                             : SmallVector<int64_t>{1, 3};
  cos = e.broadcast(cos, dims, half);
  sin = e.broadcast(sin, dims, half);
  Value low = e.slice(x, {0, 0, 0, 0}, half);
  Value high = e.slice(x, {0, 0, 0, half[3]}, half);
  Value rotated = e.concat({e.sub(e.mul(low, cos), e.mul(high, sin)),
                            e.add(e.mul(high, cos), e.mul(low, sin))},
                           3);
  return {e.convert(rotated, tensorType(getInput()).getElementType())};
}

//===--- dropout --------------------------------------------------------===//

SmallVector<Value> DropoutOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  double rate = getRate().convertToDouble();
  if (rate == 0.0)
    return {getInput()};
  Value uniform = builder.create<RandomOp>(
      getLoc(),
      RankedTensorType::get(shapeOf(getInput()), builder.getF32Type()),
      getSeed(), getStep(), getOffset(), getStream(), RandomKind::uniform);
  Value keep =
      e.compare(uniform, ComparePredicate::ge, e.splatLike(rate, uniform));
  // In f32, because 1/(1-rate) rounded to bf16 would bias the sum.
  Value x = e.convert(getInput(), statisticsType(getInput()));
  Value scaled =
      e.select(keep, e.mul(x, 1.0 / (1.0 - rate)), e.splatLike(0.0, x));
  return {e.convert(scaled, tensorType(getInput()).getElementType())};
}

//===--- linear cross-entropy -------------------------------------------===//

namespace {
// What the loss and its gradients are made of. Shapes: [tokens, vocab], also of
// `logits`, and [tokens] for `targets`, `counted` (i1) and `loss`.
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

static Head buildHead(Emitter &e, Value input, Value weight, Value targets,
                      int64_t ignore, std::optional<double> cap) {
  Type type = statisticsType(input);
  Value logits = e.softCap(e.einsum("tk,vk->tv", input, weight, type), cap);
  ArrayRef<int64_t> shape = shapeOf(logits);
  // A vocabulary does not fit the indices of narrower integers.
  if (tensorType(targets).getElementTypeBitWidth() < 32)
    targets = e.convert(targets, e.builder().getI32Type());
  Head head;
  head.logits = logits;
  head.exps = exponentials(e, logits);
  head.targets = targets;
  head.counted = e.compare(targets, ComparePredicate::ne,
                           e.splatLike(static_cast<double>(ignore), targets));
  Value picked = e.sumLast(e.select(emitIsTarget(e, targets, shape), logits,
                                    e.splatLike(0.0, logits)));
  Value loss = e.sub(head.exps.logSum, picked);
  head.loss = e.select(head.counted, loss, e.splatLike(0.0, loss));
  return head;
}

static Value totalLoss(Emitter &e, const Head &head, Value loss) {
  return e.convert(e.sumAll(head.loss), tensorType(loss).getElementType());
}

SmallVector<Value> LinearCrossEntropyOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Head head = buildHead(e, getInput(), getWeight(), getTargets(),
                        static_cast<int64_t>(getIgnore()), capOf(*this));
  return {totalLoss(e, head, getLoss())};
}

SmallVector<Value> LinearCrossEntropyGradOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Head head = buildHead(e, getInput(), getWeight(), getTargets(),
                        static_cast<int64_t>(getIgnore()), capOf(*this));
  ArrayRef<int64_t> shape = shapeOf(head.exps.value);
  Type type = tensorType(head.exps.value).getElementType();
  // d loss / d logits = (softmax - one-hot) × cotangent where counted, else 0.
  Value softmax =
      e.div(head.exps.value, e.broadcastFirst(head.exps.sum, shape));
  Value ones = e.convert(emitIsTarget(e, head.targets, shape), type);
  Value cotangent =
      e.broadcastScalar(e.convert(getCotangent(), type), {shape[0]});
  cotangent = e.select(head.counted, cotangent, e.splatLike(0.0, cotangent));
  Value dLogits =
      e.mul(e.sub(softmax, ones), e.broadcastFirst(cotangent, shape));
  dLogits = e.softCapGradient(dLogits, head.logits, capOf(*this));
  dLogits = e.convert(dLogits, tensorType(getInput()).getElementType());
  return {totalLoss(e, head, getLoss()),
          e.einsum("tv,vk->tk", dLogits, getWeight()),
          e.einsum("tv,tk->vk", dLogits, getInput(),
                   tensorType(getDWeight()).getElementType())};
}
