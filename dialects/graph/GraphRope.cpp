// rope: what is verified, what it means in primitives, its gradient and its
// sharding rule.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphVerify.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

LogicalResult RopeOp::verify() {
  RankedTensorType input = tensorType(getInput());
  if (failed(expectRank(*this, "an input", input, 4)))
    return failure();
  int64_t headDim = input.getDimSize(3);
  if (headDim % 2)
    return emitOpError() << "expects an even head_dim, got " << headDim;
  if (static_cast<int64_t>(getFrequencies().size()) != headDim / 2)
    return emitOpError() << "expects " << headDim / 2
                         << " frequencies for head_dim " << headDim << ", got "
                         << getFrequencies().size();
  if (!llvm::all_of(getFrequencies(),
                    [](double f) { return std::isfinite(f); }))
    return emitOpError("expects finite frequencies");
  if (!getScaling().isFinite())
    return emitOpError("expects a finite scaling");
  if (getPositions())
    return expectShape(*this, "positions", tensorType(getPositions()),
                       input.getShape().take_front(2));
  return success();
}

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
      e.location(),
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

// input [batch, tokens, heads, head_dim]. Positions are a tensor, or follow
// from the token's index (LocalPositions.cpp).
OpRule RopeOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims dims = rule.loopsOf(getInput());
  rule.loops[dims[3][0]].kind = LoopKind::whole;
  rule.operands = {dims};
  if (getPositions())
    rule.operands.push_back({dims[0], dims[1]});
  rule.results = {dims}, rule.linear = {{0}};
  return rule;
}
