// Grouped contractions: what is verified, what they mean in primitives, their
// gradients, work and sharding rules.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphVerify.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

//===--- verifiers ------------------------------------------------------===//

// Verifies that the rows of `x` have one of the two layouts, with `groups`
// groups.
static LogicalResult verifyRows(Operation *op, StringRef what, Value x,
                                Value sizes, int64_t groups) {
  RankedTensorType type = tensorType(x);
  if (type.getRank() != 2 && type.getRank() != 3)
    return op->emitOpError()
           << "expects " << what
           << " of [rows, width] or [groups, capacity, width], got " << type;
  bool isPadded = type.getRank() == 3;
  if (isPadded && type.getDimSize(0) != groups)
    return op->emitOpError() << "expects " << what << " of " << groups
                             << " groups, got " << type.getDimSize(0);
  return expectShape(op, isPadded ? "counts" : "offsets", tensorType(sizes),
                     {isPadded ? groups : groups + 1});
}

static LogicalResult verifyElements(Operation *op, Value lhs, Value rhs,
                                    Value result) {
  if (failed(expectSameElement(op, "lhs", tensorType(lhs), "rhs",
                               tensorType(rhs))))
    return failure();
  return expectSameOrWider(op, "the factors", tensorType(lhs), "the result",
                           tensorType(result));
}

LogicalResult GroupedMatmulOp::verify() {
  RankedTensorType rhs = tensorType(getRhs());
  if (failed(expectRank(*this, "an rhs", rhs, 3)))
    return failure();
  int64_t groups = rhs.getDimSize(0);
  if (groups < 1)
    return emitOpError("expects at least one group");
  if (failed(verifyRows(*this, "an lhs", getLhs(), getGroups(), groups)))
    return failure();
  int64_t k = shapeOf(getLhs()).back(), sum = getTransposed() ? 2 : 1;
  if (rhs.getDimSize(sum) != k)
    return emitOpError() << "sums over " << k << " of lhs and "
                         << rhs.getDimSize(sum) << " of rhs";
  return verifyElements(*this, getLhs(), getRhs(), getResult());
}

LogicalResult GroupedOuterOp::verify() {
  if (failed(expectRank(*this, "groups", tensorType(getGroups()), 1)))
    return failure();
  int64_t groups = shapeOf(getGroups())[0] - (isPadded() ? 0 : 1);
  if (groups < 1)
    return emitOpError("expects at least one group");
  if (failed(verifyRows(*this, "an lhs", getLhs(), getGroups(), groups)))
    return failure();
  SmallVector<int64_t> rhs(shapeOf(getLhs()));
  rhs.back() = shapeOf(getRhs()).empty() ? 0 : shapeOf(getRhs()).back();
  if (failed(expectShape(*this, "an rhs", tensorType(getRhs()), rhs)))
    return failure();
  return verifyElements(*this, getLhs(), getRhs(), getResult());
}

//===--- meaning --------------------------------------------------------===//

// Which rows are whose, as i1 [groups, rows]: of all packed rows, or of the
// group's own padded ones.
static Value emitMembers(Emitter &e, Value sizes, bool isPadded, int64_t groups,
                         int64_t rows) {
  Type i32 = e.builder().getI32Type();
  Value row = e.iota(RankedTensorType::get({groups, rows}, i32), 1);
  auto spread = [&](Value x) { return e.broadcastFirst(x, {groups, rows}); };
  if (isPadded)
    return e.compare(row, ComparePredicate::lt, spread(sizes));
  Value begins = e.compare(spread(e.slice(sizes, {0}, {groups})),
                           ComparePredicate::le, row);
  Value ends = e.compare(row, ComparePredicate::lt,
                         spread(e.slice(sizes, {1}, {groups})));
  return e.binary<AndOp>(begins, ends);
}

// [groups, rows, width]: each group's rows of `x`, zeros elsewhere. Not by
// multiplication, for what belongs to no group may be no number.
static Value emitOwnRows(Emitter &e, Value x, Value members) {
  SmallVector<int64_t> shape(shapeOf(members));
  shape.push_back(shapeOf(x).back());
  if (tensorType(x).getRank() == 2)
    x = e.broadcast(x, {1, 2}, shape);
  return e.select(e.broadcast(members, {0, 1}, shape), x, e.splatLike(0.0, x));
}

SmallVector<Value> GroupedMatmulOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  int64_t groups = shapeOf(getRhs())[0];
  Type element = tensorType(getResult()).getElementType();
  ArrayRef<int64_t> lhs = shapeOf(getLhs());
  Value members =
      emitMembers(e, getGroups(), isPadded(), groups, lhs[lhs.size() - 2]);
  StringRef right = getTransposed() ? "gnk" : "gkn";
  Type wide = statisticsType(getLhs());
  Value products =
      e.einsum(((isPadded() ? "grk," : "rk,") + right + "->grn").str(),
               getLhs(), getRhs(), wide);
  Value own = emitOwnRows(e, products, members);
  return {e.convert(isPadded() ? own : e.sum(own, {0}), element)};
}

SmallVector<Value> GroupedOuterOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  ArrayRef<int64_t> lhs = shapeOf(getLhs());
  Value members = emitMembers(e, getGroups(), isPadded(),
                              shapeOf(getResult())[0], lhs[lhs.size() - 2]);
  return {e.einsum("grm,grn->gmn", emitOwnRows(e, getLhs(), members),
                   emitOwnRows(e, getRhs(), members),
                   tensorType(getResult()).getElementType())};
}

//===--- gradients ------------------------------------------------------===//

SmallVector<Value> GroupedMatmulOp::buildVjp(OpBuilder &builder,
                                             ValueRange cotangents) {
  if (!cotangents[0])
    return SmallVector<Value>(3);
  Emitter e(builder, getLoc());
  // A result wider than its factors has a cotangent that is wider, too.
  Value g = e.convert(cotangents[0], tensorType(getLhs()).getElementType());
  Value dLhs = e.groupedMatmul(g, getRhs(), getGroups(), !getTransposed());
  Value dRhs = builder.create<GroupedOuterOp>(
      getLoc(), getTransposed() ? g : getLhs(), getTransposed() ? getLhs() : g,
      getGroups());
  return {dLhs, dRhs, Value()};
}

SmallVector<Value> GroupedOuterOp::buildVjp(OpBuilder &builder,
                                            ValueRange cotangents) {
  if (!cotangents[0])
    return SmallVector<Value>(3);
  Emitter e(builder, getLoc());
  Value g = e.convert(cotangents[0], tensorType(getLhs()).getElementType());
  return {e.groupedMatmul(getRhs(), g, getGroups(), /*transposed=*/true),
          e.groupedMatmul(getLhs(), g, getGroups(), /*transposed=*/false),
          Value()};
}

//===--- work -----------------------------------------------------------===//

// As if every row belonged to a group: how many do is data.
int64_t GroupedMatmulOp::getFlops() {
  return 2 * tensorType(getLhs()).getNumElements() *
         shapeOf(getResult()).back();
}

int64_t GroupedOuterOp::getFlops() {
  return 2 * tensorType(getLhs()).getNumElements() * shapeOf(getRhs()).back();
}

//===--- sharding rules -------------------------------------------------===//

OpRule GroupedMatmulOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims rhs = rule.loopsOf(getRhs()), lhs, groups, out;
  bool padded = isPadded();
  unsigned k = rhs[getTransposed() ? 2 : 1][0],
           n = rhs[getTransposed() ? 1 : 2][0];
  rule.loops[k].kind = LoopKind::sum;
  int64_t rows = getLhs().getType().getDimSize(padded ? 1 : 0);
  unsigned row = rule.loopDim(rows, LoopKind::whole);
  if (padded) {
    groups = {rhs[0]};
    lhs = {rhs[0], {row}, {k}};
    out = {rhs[0], {row}, {n}};
  } else {
    rule.groups = rhs[0][0];
    rule.loops[*rule.groups].kind = rule.loops[row].kind = LoopKind::own;
    rule.ownOperands = {0, 2}, rule.ownResults = {0};
    groups = {
        {rule.loopDim(getGroups().getType().getDimSize(0), LoopKind::whole)}};
    lhs = {{row}, {k}};
    out = {{row}, {n}};
  }
  rule.operands = {lhs, rhs, groups}, rule.results = {out};
  return rule;
}

OpRule GroupedOuterOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims out = rule.loopsOf(getResult()), lhs, rhs, groups;
  bool padded = isPadded();
  int64_t rows = getLhs().getType().getDimSize(padded ? 1 : 0);
  unsigned row = rule.loopDim(rows, LoopKind::whole);
  if (padded) {
    groups = {out[0]};
    lhs = {out[0], {row}, out[1]};
    rhs = {out[0], {row}, out[2]};
  } else {
    rule.groups = out[0][0];
    rule.loops[*rule.groups].kind = rule.loops[row].kind = LoopKind::own;
    rule.ownOperands = {0, 1, 2};
    groups = {
        {rule.loopDim(getGroups().getType().getDimSize(0), LoopKind::whole)}};
    lhs = {{row}, out[1]};
    rhs = {{row}, out[2]};
  }
  rule.operands = {lhs, rhs, groups}, rule.results = {out};
  return rule;
}
