// What each elementwise op computes. A formula is written once and read twice:
// over doubles it is the reference, over `Scalar` it emits arith and math ops.
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace tessera::graph;

//===--- emission -------------------------------------------------------===//

namespace {

// A scalar or vector value that formulas can be written with.
struct Scalar {
  OpBuilder &b;
  Location loc;
  Value value;

  template <typename Op> Scalar apply() const {
    return {b, loc, b.create<Op>(loc, value)};
  }
  template <typename Op> Scalar apply(const Scalar &other) const {
    return {b, loc, b.create<Op>(loc, value, other.value)};
  }
  bool isFloat() const { return isa<FloatType>(getElementTypeOrSelf(value)); }
  Scalar constant(double number) const {
    Type type = value.getType(), element = getElementTypeOrSelf(type);
    TypedAttr attr = isa<FloatType>(element)
                         ? TypedAttr(b.getFloatAttr(element, number))
                         : TypedAttr(b.getIntegerAttr(element, number));
    if (auto shaped = dyn_cast<ShapedType>(type))
      attr = DenseElementsAttr::get(shaped, attr);
    return {b, loc, b.create<arith::ConstantOp>(loc, attr)};
  }
};

template <typename Float, typename Int>
Scalar either(const Scalar &x, const Scalar &y) {
  return x.isFloat() ? x.apply<Float>(y) : x.apply<Int>(y);
}

Scalar operator+(const Scalar &x, const Scalar &y) {
  return either<arith::AddFOp, arith::AddIOp>(x, y);
}
Scalar operator-(const Scalar &x, const Scalar &y) {
  return either<arith::SubFOp, arith::SubIOp>(x, y);
}
Scalar operator*(const Scalar &x, const Scalar &y) {
  return either<arith::MulFOp, arith::MulIOp>(x, y);
}
Scalar operator/(const Scalar &x, const Scalar &y) {
  return either<arith::DivFOp, arith::DivSIOp>(x, y);
}
Scalar max(const Scalar &x, const Scalar &y) {
  return either<arith::MaximumFOp, arith::MaxSIOp>(x, y);
}
Scalar min(const Scalar &x, const Scalar &y) {
  return either<arith::MinimumFOp, arith::MinSIOp>(x, y);
}
Scalar operator+(double x, const Scalar &y) { return y.constant(x) + y; }
Scalar operator-(double x, const Scalar &y) { return y.constant(x) - y; }
Scalar operator*(double x, const Scalar &y) { return y.constant(x) * y; }
Scalar operator/(double x, const Scalar &y) { return y.constant(x) / y; }
Scalar max(const Scalar &x, double y) { return max(x, x.constant(y)); }
Scalar operator-(const Scalar &x) { return x.apply<arith::NegFOp>(); }
Scalar abs(const Scalar &x) { return x.apply<math::AbsFOp>(); }
Scalar exp(const Scalar &x) { return x.apply<math::ExpOp>(); }
Scalar log(const Scalar &x) { return x.apply<math::LogOp>(); }
Scalar log1p(const Scalar &x) { return x.apply<math::Log1pOp>(); }
Scalar sqrt(const Scalar &x) { return x.apply<math::SqrtOp>(); }
Scalar rsqrt(const Scalar &x) { return x.apply<math::RsqrtOp>(); }
Scalar tanh(const Scalar &x) { return x.apply<math::TanhOp>(); }
// Where an error of 2^-21 relative to 1 is one of the result.
Scalar tanhNear1(const Scalar &x) {
  return {x.b, x.loc,
          x.b.create<math::TanhOp>(x.loc, x.value, arith::FastMathFlags::afn)};
}
Scalar erf(const Scalar &x) { return x.apply<math::ErfOp>(); }
Scalar sin(const Scalar &x) { return x.apply<math::SinOp>(); }
Scalar cos(const Scalar &x) { return x.apply<math::CosOp>(); }

} // namespace

// The same vocabulary over doubles, where <cmath> lacks it. As in arith, NaN
// wins in maxima and minima.
static double rsqrt(double x) { return 1.0 / std::sqrt(x); }
static double abs(double x) { return std::fabs(x); }
static double tanhNear1(double x) { return std::tanh(x); }
static double max(double x, double y) { return std::isnan(x) || x > y ? x : y; }
static double min(double x, double y) { return std::isnan(x) || x < y ? x : y; }

// The value that an integer of `type` holds after wrapping around.
static double wrap(int64_t value, Type type) {
  unsigned width = type.getIntOrFloatBitWidth();
  if (type.isInteger(1) || type.isUnsignedInteger())
    return static_cast<double>(APInt(64, value).trunc(width).getZExtValue());
  return static_cast<double>(APInt(64, value).trunc(width).getSExtValue());
}

//===--- unary ----------------------------------------------------------===//

// `FORMULA` in x, over Scalar and over double.
#define TESSERA_UNARY(OP, FORMULA)                                             \
  Value OP::emitScalar(OpBuilder &b, ValueRange operands) {                    \
    Scalar x{b, getLoc(), operands[0]};                                        \
    return (FORMULA).value;                                                    \
  }                                                                            \
  double OP::evaluateScalar(ArrayRef<double> operands) {                       \
    double x = operands[0];                                                    \
    return FORMULA;                                                            \
  }

TESSERA_UNARY(NegOp, -x)
TESSERA_UNARY(AbsOp, abs(x))
TESSERA_UNARY(ExpOp, exp(x))
TESSERA_UNARY(LogOp, log(x))
TESSERA_UNARY(Log1pOp, log1p(x))
TESSERA_UNARY(SqrtOp, sqrt(x))
TESSERA_UNARY(RsqrtOp, rsqrt(x))
TESSERA_UNARY(TanhOp, tanh(x))
TESSERA_UNARY(ErfOp, erf(x))
TESSERA_UNARY(SinOp, sin(x))
TESSERA_UNARY(CosOp, cos(x))
TESSERA_UNARY(SigmoidOp, 1.0 / (1.0 + exp(-x)))
TESSERA_UNARY(ReluOp, max(x, 0.0))
TESSERA_UNARY(SiluOp, x / (1.0 + exp(-x)))

// Hendrycks & Gimpel 2016, "Gaussian error linear units", section 2.
static constexpr double kTanhScale =
    std::numbers::sqrt2 * std::numbers::inv_sqrtpi; // sqrt(2/π)
static constexpr double kTanhCube = 0.044715;
static constexpr double kQuick = 1.702;

template <typename T> static T gelu(const T &x, GeluKind kind) {
  switch (kind) {
  case GeluKind::erf:
    return 0.5 * x * (1.0 + erf(std::numbers::sqrt2 / 2 * x));
  case GeluKind::tanh:
    return 0.5 * x *
           (1.0 + tanhNear1(kTanhScale * (x + kTanhCube * x * x * x)));
  case GeluKind::quick:
    return x / (1.0 + exp(-(kQuick * x)));
  }
  llvm_unreachable("all kinds are handled");
}

// d gelu(x) / dx.
template <typename T> static T geluSlope(const T &x, GeluKind kind) {
  switch (kind) {
  case GeluKind::erf: {
    constexpr double density = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    return 0.5 * (1.0 + erf(std::numbers::sqrt2 / 2 * x)) +
           density * x * exp(-(0.5 * x * x));
  }
  case GeluKind::tanh: {
    T t = tanhNear1(kTanhScale * (x + kTanhCube * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) *
                                 (kTanhScale * (1.0 + 3 * kTanhCube * x * x));
  }
  case GeluKind::quick: {
    T s = 1.0 / (1.0 + exp(-(kQuick * x)));
    return s + kQuick * x * s * (1.0 - s);
  }
  }
  llvm_unreachable("all kinds are handled");
}

Value GeluOp::emitScalar(OpBuilder &b, ValueRange operands) {
  return gelu(Scalar{b, getLoc(), operands[0]}, getKind()).value;
}
double GeluOp::evaluateScalar(ArrayRef<double> operands) {
  return gelu(operands[0], getKind());
}

Value GeluGradOp::emitScalar(OpBuilder &b, ValueRange operands) {
  Scalar x{b, getLoc(), operands[0]}, cotangent{b, getLoc(), operands[1]};
  return (cotangent * geluSlope(x, getKind())).value;
}
double GeluGradOp::evaluateScalar(ArrayRef<double> operands) {
  return operands[1] * geluSlope(operands[0], getKind());
}

//===--- binary ---------------------------------------------------------===//

// `FORMULA` in x and y, over Scalar and over double; `INTEGER` is the
// reference over int64_t, before wrapping around.
#define TESSERA_BINARY(OP, FORMULA, INTEGER)                                   \
  Value OP::emitScalar(OpBuilder &b, ValueRange operands) {                    \
    Scalar x{b, getLoc(), operands[0]}, y{b, getLoc(), operands[1]};           \
    return (FORMULA).value;                                                    \
  }                                                                            \
  double OP::evaluateScalar(ArrayRef<double> operands) {                       \
    Type type = tensorType(getResult()).getElementType();                      \
    if (isa<FloatType>(type)) {                                                \
      double x = operands[0], y = operands[1];                                 \
      return FORMULA;                                                          \
    }                                                                          \
    auto x = static_cast<int64_t>(operands[0]),                                \
         y = static_cast<int64_t>(operands[1]);                                \
    return wrap(INTEGER, type);                                                \
  }

// Unsigned, where overflow is defined.
static uint64_t bits(int64_t x) { return static_cast<uint64_t>(x); }

TESSERA_BINARY(AddOp, x + y, bits(x) + bits(y))
TESSERA_BINARY(SubOp, x - y, bits(x) - bits(y))
TESSERA_BINARY(MulOp, x *y, bits(x) * bits(y))
// Division by zero is undefined in kernels; the reference says 0.
TESSERA_BINARY(DivOp, x / y, y == 0 ? 0 : y == -1 ? 0 - bits(x) : bits(x / y))
TESSERA_BINARY(MaxOp, max(x, y), std::max(x, y))
TESSERA_BINARY(MinOp, min(x, y), std::min(x, y))

Value PowOp::emitScalar(OpBuilder &b, ValueRange operands) {
  return b.create<math::PowFOp>(getLoc(), operands[0], operands[1]);
}
double PowOp::evaluateScalar(ArrayRef<double> operands) {
  return std::pow(operands[0], operands[1]);
}

Value AndOp::emitScalar(OpBuilder &b, ValueRange operands) {
  return b.create<arith::AndIOp>(getLoc(), operands[0], operands[1]);
}
double AndOp::evaluateScalar(ArrayRef<double> operands) {
  return static_cast<double>(static_cast<int64_t>(operands[0]) &
                             static_cast<int64_t>(operands[1]));
}

Value OrOp::emitScalar(OpBuilder &b, ValueRange operands) {
  return b.create<arith::OrIOp>(getLoc(), operands[0], operands[1]);
}
double OrOp::evaluateScalar(ArrayRef<double> operands) {
  return static_cast<double>(static_cast<int64_t>(operands[0]) |
                             static_cast<int64_t>(operands[1]));
}

//===--- comparison, selection ------------------------------------------===//

Value CompareOp::emitScalar(OpBuilder &b, ValueRange operands) {
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  // In the order of ComparePredicate; integers are signed.
  static constexpr std::pair<F, I> predicates[] = {
      {F::OEQ, I::eq},  {F::UNE, I::ne},  {F::OLT, I::slt},
      {F::OLE, I::sle}, {F::OGT, I::sgt}, {F::OGE, I::sge}};
  auto [onFloats, onInts] = predicates[static_cast<unsigned>(getPredicate())];
  if (isa<FloatType>(getElementTypeOrSelf(operands[0])))
    return b.create<arith::CmpFOp>(getLoc(), onFloats, operands[0],
                                   operands[1]);
  return b.create<arith::CmpIOp>(getLoc(), onInts, operands[0], operands[1]);
}

double CompareOp::evaluateScalar(ArrayRef<double> operands) {
  double x = operands[0], y = operands[1];
  switch (getPredicate()) {
  case ComparePredicate::eq:
    return x == y;
  case ComparePredicate::ne:
    return x != y;
  case ComparePredicate::lt:
    return x < y;
  case ComparePredicate::le:
    return x <= y;
  case ComparePredicate::gt:
    return x > y;
  case ComparePredicate::ge:
    return x >= y;
  }
  llvm_unreachable("all predicates are handled");
}

Value SelectOp::emitScalar(OpBuilder &b, ValueRange operands) {
  return b.create<arith::SelectOp>(getLoc(), operands[0], operands[1],
                                   operands[2]);
}
double SelectOp::evaluateScalar(ArrayRef<double> operands) {
  return operands[0] != 0.0 ? operands[1] : operands[2];
}

//===--- conversion -----------------------------------------------------===//

// The shape of `like` (a scalar or a vector) with another element type.
static Type withElement(Type like, Type element) {
  if (auto vector = dyn_cast<VectorType>(like))
    return vector.clone(element);
  return element;
}

// The type in which scalars of `element` are held; arith integers are signless.
static Type heldIn(Type element) {
  if (isa<IntegerType>(element))
    return IntegerType::get(element.getContext(),
                            element.getIntOrFloatBitWidth());
  return element.isF64() ? element : Float32Type::get(element.getContext());
}

static bool isUnsigned(Type type) {
  return type.isInteger(1) || type.isUnsignedInteger();
}

// f32 or f64 → the values of `to`, again held in f32 or f64.
static Value roundFloat(OpBuilder &b, Location loc, Value x, Type to) {
  Type held = withElement(x.getType(), heldIn(to));
  Type narrow = withElement(x.getType(), to);
  unsigned from = getElementTypeOrSelf(x).getIntOrFloatBitWidth();
  if (to.getIntOrFloatBitWidth() < from)
    x = b.create<arith::TruncFOp>(loc, narrow, x);
  if (x.getType() != held)
    x = b.create<arith::ExtFOp>(loc, held, x);
  return x;
}

Value ConvertOp::emitScalar(OpBuilder &b, ValueRange operands) {
  Value x = operands[0];
  Type from = tensorType(getInput()).getElementType();
  Type to = tensorType(getResult()).getElementType();
  if (from == to)
    return x;
  Location loc = getLoc();
  if (isa<FloatType>(from) && isa<FloatType>(to))
    return roundFloat(b, loc, x, to);
  Type type = withElement(x.getType(), heldIn(to));
  if (isa<FloatType>(from))
    return to.isUnsignedInteger()
               ? b.create<arith::FPToUIOp>(loc, type, x).getResult()
               : b.create<arith::FPToSIOp>(loc, type, x).getResult();
  if (isa<FloatType>(to)) {
    x = isUnsigned(from) ? b.create<arith::UIToFPOp>(loc, type, x).getResult()
                         : b.create<arith::SIToFPOp>(loc, type, x).getResult();
    return roundFloat(b, loc, x, to);
  }
  unsigned fromWidth = from.getIntOrFloatBitWidth();
  unsigned toWidth = to.getIntOrFloatBitWidth();
  if (fromWidth == toWidth)
    return x;
  if (fromWidth > toWidth)
    return b.create<arith::TruncIOp>(loc, type, x);
  return isUnsigned(from) ? b.create<arith::ExtUIOp>(loc, type, x).getResult()
                          : b.create<arith::ExtSIOp>(loc, type, x).getResult();
}

double ConvertOp::evaluateScalar(ArrayRef<double> operands) {
  Type from = tensorType(getInput()).getElementType();
  Type to = tensorType(getResult()).getElementType();
  if (isa<FloatType>(to))
    return operands[0];
  if (isa<FloatType>(from))
    return std::trunc(operands[0]);
  return wrap(static_cast<int64_t>(operands[0]), to);
}
