#include "passes/kernels/attention/ScoreModifier.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/attention/PagedAttention.h"

using namespace mlir;
using namespace tessera;
using P = arith::CmpIPredicate;

ScoreModifier::ScoreModifier(const KernelOps &e, const PagedShape &shape)
    : e(e), scale(shape.scale), cap(shape.cap), causal(true),
      window(shape.window) {}

static ArrayRef<int64_t> tileOf(Value tile) {
  return cast<VectorType>(tile.getType()).getShape();
}

Value ScoreModifier::bound(Value scores) const {
  if (cap == 0)
    return scores;
  Value in = e.splat(scale / cap, tileOf(scores)),
        out = e.splat(cap / scale, tileOf(scores));
  Value part = e.b.create<arith::MulFOp>(e.loc, scores, in);
  Value bounded = e.b.create<math::TanhOp>(e.loc, part);
  return e.b.create<arith::MulFOp>(e.loc, bounded, out);
}

Value ScoreModifier::slope(Value bounded, bool areMasked) const {
  if (cap == 0)
    return {};
  ArrayRef<int64_t> shape = tileOf(bounded);
  Value part =
      e.b.create<arith::MulFOp>(e.loc, bounded, e.splat(scale / cap, shape));
  if (areMasked)
    part = e.b.create<arith::MaximumFOp>(e.loc, part, e.splat(-1, shape));
  Value one = e.splat(1, shape);
  Value square = e.b.create<arith::MulFOp>(e.loc, part, part);
  return e.b.create<arith::SubFOp>(e.loc, one, square);
}

Value ScoreModifier::both(Value one, Value other) const {
  if (!one || !other)
    return one ? one : other;
  return e.b.create<arith::AndIOp>(e.loc, one, other);
}

Value ScoreModifier::either(Value one, Value other) const {
  if (!one || !other)
    return one ? one : other;
  return e.b.create<arith::OrIOp>(e.loc, one, other);
}

Value ScoreModifier::isCrossed(Value key, Value keyEnd, Value firstHidden,
                               Value lastQuery) const {
  Value crossed;
  if (causal)
    crossed = e.compare(P::sgt, keyEnd, firstHidden);
  if (window > 0)
    crossed = either(crossed,
                     e.compare(P::sge, e.sub(lastQuery, key), e.index(window)));
  return crossed;
}

Value ScoreModifier::isVisible(Value keys, Value queries,
                               Value lastKeys) const {
  Value visible;
  if (causal)
    visible = e.compare(P::sle, keys, lastKeys);
  if (window > 0) {
    auto type = cast<VectorType>(keys.getType());
    Value size = e.b.create<arith::ConstantOp>(
        e.loc, DenseElementsAttr::get(type, static_cast<int32_t>(window)));
    Value distance = e.b.create<arith::SubIOp>(e.loc, queries, keys);
    visible = both(visible, e.compare(P::slt, distance, size));
  }
  return visible;
}
