// Gradients of the primitives: for each op, what the cotangent of its result
// gives to each operand. Null means no gradient.
#include "dialects/graph/Build.h"
#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphComposite.h"
#include <numbers>

using namespace mlir;
using namespace tessera::graph;
using tessera::graph::detail::none;

using Gradients = SmallVector<Value>;

static bool isFloat(Value x) {
  return isa<FloatType>(tensorType(x).getElementType());
}

//===--- elementwise ----------------------------------------------------===//

// `GRADIENTS` in the emitter e, the cotangent g, the operands x and y (of unary
// ops both are x) and the result z. Integers have no gradient.
#define TESSERA_GRADIENT(OP, ...)                                              \
  SmallVector<Value> OP::buildVjp(OpBuilder &builder, ValueRange cotangents) { \
    Value g = cotangents[0];                                                   \
    if (!g || !isFloat(getResult()))                                           \
      return none(*this);                                                      \
    Emitter e(builder, getLoc());                                              \
    [[maybe_unused]] Value x = getOperation()->getOperand(0);                  \
    [[maybe_unused]] Value y = getOperation()->getOperands().back();           \
    [[maybe_unused]] Value z = getResult();                                    \
    return Gradients{__VA_ARGS__};                                             \
  }

#define TESSERA_NO_GRADIENT(OP)                                                \
  SmallVector<Value> OP::buildVjp(OpBuilder &, ValueRange) {                   \
    return none(*this);                                                        \
  }

static Value zeroLike(Emitter &e, Value x) { return e.splatLike(0.0, x); }

static Value oneMinus(Emitter &e, Value x) {
  return e.sub(e.splatLike(1.0, x), x);
}

static Value compareZero(Emitter &e, Value x, ComparePredicate predicate) {
  return e.compare(x, predicate, zeroLike(e, x));
}

// g × sign(x), 0 at 0.
static Value timesSign(Emitter &e, Value g, Value x) {
  Value atMostZero = e.select(compareZero(e, x, ComparePredicate::lt), e.neg(g),
                              zeroLike(e, g));
  return e.select(compareZero(e, x, ComparePredicate::gt), g, atMostZero);
}

// sigmoid(x) + x sigmoid(x) (1 - sigmoid(x)), where z = x sigmoid(x)
static Value siluSlope(Emitter &e, Value x, Value z) {
  Value s = e.unary<SigmoidOp>(x);
  return e.add(s, e.mul(z, oneMinus(e, s)));
}

// g to the side that `predicate` picks.
static Gradients pick(Emitter &e, Value g, Value x, ComparePredicate predicate,
                      Value y) {
  Value left = e.compare(x, predicate, y), zero = zeroLike(e, g);
  return {e.select(left, g, zero), e.select(left, zero, g)};
}

TESSERA_GRADIENT(NegOp, e.neg(g))
TESSERA_GRADIENT(AbsOp, timesSign(e, g, x))
TESSERA_GRADIENT(ExpOp, e.mul(g, z))
TESSERA_GRADIENT(LogOp, e.div(g, x))
TESSERA_GRADIENT(Log1pOp, e.div(g, e.add(x, 1.0)))
TESSERA_GRADIENT(SqrtOp, e.div(e.mul(g, 0.5), z))
TESSERA_GRADIENT(RsqrtOp, e.mul(e.mul(g, -0.5), e.mul(z, e.mul(z, z))))
TESSERA_GRADIENT(TanhOp, e.mul(g, oneMinus(e, e.mul(z, z))))
TESSERA_GRADIENT(ErfOp, e.mul(e.mul(g, 2 * std::numbers::inv_sqrtpi),
                              e.exp(e.neg(e.mul(x, x)))))
TESSERA_GRADIENT(SinOp, e.mul(g, e.unary<CosOp>(x)))
TESSERA_GRADIENT(CosOp, e.neg(e.mul(g, e.unary<SinOp>(x))))
TESSERA_GRADIENT(SigmoidOp, e.mul(g, e.mul(z, oneMinus(e, z))))
TESSERA_GRADIENT(ReluOp, e.select(compareZero(e, x, ComparePredicate::gt), g,
                                  zeroLike(e, g)))
TESSERA_GRADIENT(SiluOp, e.mul(g, siluSlope(e, x, z)))
TESSERA_GRADIENT(GeluOp, builder.create<GeluGradOp>(getLoc(), x, g, getKind()))
TESSERA_NO_GRADIENT(GeluGradOp)

TESSERA_GRADIENT(AddOp, g, g)
TESSERA_GRADIENT(SubOp, g, e.neg(g))
TESSERA_GRADIENT(MulOp, e.mul(g, y), e.mul(g, x))
TESSERA_GRADIENT(DivOp, e.div(g, y), e.neg(e.div(e.mul(g, z), y)))
TESSERA_GRADIENT(MaxOp, pick(e, g, x, ComparePredicate::ge, y))
TESSERA_GRADIENT(MinOp, pick(e, g, x, ComparePredicate::le, y))
TESSERA_GRADIENT(PowOp, e.mul(g, e.mul(y, e.binary<PowOp>(x, e.add(y, -1.0)))),
                 e.mul(g, e.mul(z, e.unary<LogOp>(x))))
TESSERA_NO_GRADIENT(AndOp)
TESSERA_NO_GRADIENT(OrOp)
TESSERA_NO_GRADIENT(CompareOp)
TESSERA_GRADIENT(SelectOp, Value(), e.select(x, g, zeroLike(e, g)),
                 e.select(x, zeroLike(e, g), g))
TESSERA_GRADIENT(ConvertOp, isFloat(x)
                                ? e.convert(g, tensorType(x).getElementType())
                                : Value())

//===--- constants and re-indexing --------------------------------------===//

// The dimensions of a rank that are not among `dims`.
static SmallVector<int64_t> others(int64_t rank, ArrayRef<int64_t> dims) {
  SmallVector<int64_t> result;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (!llvm::is_contained(dims, dim))
      result.push_back(dim);
  return result;
}

static SmallVector<int64_t> inverse(ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> result(permutation.size());
  for (auto [i, dim] : llvm::enumerate(permutation))
    result[dim] = i;
  return result;
}

TESSERA_NO_GRADIENT(ConstantOp)
TESSERA_NO_GRADIENT(IotaOp)
TESSERA_NO_GRADIENT(RandomOp)
TESSERA_GRADIENT(ReshapeOp, e.reshape(g, shapeOf(x)))
TESSERA_GRADIENT(TransposeOp, e.transpose(g, inverse(getPermutation())))
TESSERA_GRADIENT(BroadcastOp,
                 e.sum(g, others(tensorType(g).getRank(), getDims())))
TESSERA_GRADIENT(SliceOp, e.pad(g, getStart(), shapeOf(x)))
TESSERA_GRADIENT(PadOp, e.slice(g, getLow(), shapeOf(x)))
TESSERA_GRADIENT(DynamicSliceOp,
                 builder.create<DynamicUpdateOp>(getLoc(),
                                                 e.zeros(tensorType(x)), g,
                                                 getIndex()),
                 Value())
TESSERA_GRADIENT(DynamicUpdateOp,
                 builder.create<DynamicUpdateOp>(
                     getLoc(), g, e.zeros(tensorType(getUpdate())), getIndex()),
                 e.dynamicSlice(g, getIndex()), Value())

SmallVector<Value> ConcatOp::buildVjp(OpBuilder &builder,
                                      ValueRange cotangents) {
  if (!cotangents[0] || !isFloat(getResult()))
    return none(*this);
  Emitter e(builder, getLoc());
  Gradients result;
  SmallVector<int64_t> start(tensorType(getResult()).getRank(), 0);
  for (Value input : getInputs()) {
    result.push_back(e.slice(cotangents[0], start, shapeOf(input)));
    start[getDim()] += tensorType(input).getDimSize(getDim());
  }
  return result;
}

//===--- contractions, reductions, gather -------------------------------===//

SmallVector<Value> EinsumOp::buildVjp(OpBuilder &builder,
                                      ValueRange cotangents) {
  if (!cotangents[0])
    return none(*this);
  Emitter e(builder, getLoc());
  Einsum eq = llvm::cantFail(Einsum::parse(getEquation()));
  // A result wider than its inputs has a cotangent that is wider, too.
  Value g = e.convert(cotangents[0], tensorType(getLhs()).getElementType());
  return {e.einsum(Einsum{eq.out, eq.rhs, eq.lhs}.str(), g, getRhs()),
          e.einsum(Einsum{eq.lhs, eq.out, eq.rhs}.str(), getLhs(), g)};
}

// Equal shares of g for the elements of x that are the extremum z of their row.
static Value shareAmongEqual(Emitter &e, Value g, Value x, Value z,
                             ArrayRef<int64_t> dims) {
  ArrayRef<int64_t> shape = shapeOf(x);
  SmallVector<int64_t> kept = others(shape.size(), dims);
  Type narrow = tensorType(g).getElementType();
  Type wide = narrow.isF64() ? narrow : e.builder().getF32Type();
  Value equal = e.compare(x, ComparePredicate::eq, e.broadcast(z, kept, shape));
  Value count = e.sum(e.convert(equal, wide), dims);
  Value share = e.convert(e.div(e.convert(g, wide), count), narrow);
  return e.select(equal, e.broadcast(share, kept, shape), zeroLike(e, x));
}

TESSERA_GRADIENT(ReduceOp,
                 getKind() == ReduceKind::sum
                     ? e.broadcast(g,
                                   others(tensorType(x).getRank(), getDims()),
                                   shapeOf(x))
                     : shareAmongEqual(e, g, x, z, getDims()))

TESSERA_GRADIENT(EmbeddingOp,
                 builder.create<ScatterAddOp>(getLoc(), e.zeros(tensorType(x)),
                                              getIds(), g),
                 Value())

TESSERA_GRADIENT(ScatterAddOp, g, Value(),
                 e.convert(e.embedding(g, getIds()),
                           tensorType(getUpdates()).getElementType()))

// The loss does not depend on a KV cache.
SmallVector<Value> ScatterRowsOp::buildVjp(OpBuilder &, ValueRange) {
  return none(*this);
}
