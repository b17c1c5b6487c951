// Error bounds of elementwise ops: what the operands' errors make of the
// result, and what computing and storing it adds.
#include "dialects/graph/GraphOps.h"
#include "test/metamorphic/ErrorBounds.h"
#include <cmath>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::interpreter;

namespace tessera::metamorphic {

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

namespace {

// One element of each operand.
struct Scalars {
  SmallVector<double> values, radii;
};

} // namespace

static double distance(double x, double y) {
  return x == y ? 0 : std::abs(x - y); // of equal infinities, 0
}

//===--- what the operands' errors become ---------------------------------===//

// Steepest slope of functions that are not monotone; 0 for all others.
static double slopeOf(Operation *op) {
  if (isa<AbsOp, SinOp, CosOp>(op))
    return 1;
  return isa<SiluOp, GeluOp>(op) ? 1.2 : 0;
}

// A function that is monotone in each operand has its extremes at corners.
static double cornerError(Elementwise op, const Scalars &in, double value) {
  double error = 0;
  size_t corners = size_t{1} << in.values.size();
  SmallVector<double> corner(in.values.size());
  for (size_t pick = 0; pick < corners; ++pick) {
    for (size_t i = 0; i < corner.size(); ++i) {
      corner[i] = in.values[i] + (pick >> i & 1 ? in.radii[i] : -in.radii[i]);
      if (tensorType(op->getOperand(i)).getElementType().isInteger(1))
        corner[i] = in.radii[i] == 0 ? in.values[i] : (pick >> i & 1);
    }
    double there = distance(op.evaluateScalar(corner), value);
    if (std::isnan(there))
      return kInfinity; // left the domain
    error = std::max(error, there);
  }
  return error;
}

static double selectError(const Scalars &in) {
  double onTrue = in.radii[1], onFalse = in.radii[2];
  if (in.radii[0] == 0)
    return in.values[0] != 0 ? onTrue : onFalse;
  return distance(in.values[1], in.values[2]) + std::max(onTrue, onFalse);
}

static double inheritedError(Elementwise op, const Scalars &in, double value) {
  if (isa<SelectOp>(op))
    return selectError(in);
  if (llvm::all_of(in.radii, [](double radius) { return radius == 0; }))
    return 0;
  if (llvm::any_of(in.radii, [](double radius) { return std::isinf(radius); }))
    return kInfinity;
  if (isa<CompareOp>(op)) // somewhere between them the answer may change
    return distance(in.values[0], in.values[1]) <= in.radii[0] + in.radii[1];
  if (isa<GeluGradOp>(op)) // |gelu'| ≤ 1.2 and |gelu''| ≤ 1
    return (std::abs(in.values[1]) + in.radii[1]) * in.radii[0] +
           1.2 * in.radii[1];
  if (isa<DivOp>(op) && std::abs(in.values[1]) <= in.radii[1])
    return kInfinity;
  if (isa<DivOp>(op) &&
      isa<IntegerType>(getElementTypeOrSelf(op->getResult(0))))
    return cornerError(op, in, value) + 1;
  if (double slope = slopeOf(op); slope != 0)
    return slope * in.radii[0];
  return cornerError(op, in, value);
}

//===--- what computing adds ----------------------------------------------===//

// In units in the last place of the magnitude that is returned. Math functions
// are within 4 ULP, formulas of several a few more.
static double computingError(Elementwise op, const Scalars &in, double value) {
  double y = std::abs(value), x = std::abs(in.values[0]);
  if (isa<NegOp, AbsOp, ReluOp, MaxOp, MinOp, SelectOp, ConvertOp>(op))
    return 0;
  if (isa<AddOp, SubOp, MulOp>(op))
    return y;
  if (isa<DivOp, SqrtOp, RsqrtOp>(op))
    return 4 * y;
  if (isa<SinOp, CosOp>(op))
    return 16; // near a zero the angle's own rounding is what counts
  if (isa<LogOp>(op))
    return 16 * y + 2;
  if (isa<PowOp>(op)) // exp(b log a)
    return 16 * y * (1 + std::abs(in.values[1] * std::log(x)));
  if (isa<GeluOp>(op)) // 1 + erf(x) cancels for negative x
    return 16 * (x + y);
  if (isa<GeluGradOp>(op))
    return 16 * std::abs(in.values[1]) * (1 + x);
  return 16 * y;
}

Bounded boundElementwise(Operation *raw, ArrayRef<const Bounded *> operands,
                         const Arithmetic &arithmetic) {
  auto op = cast<Elementwise>(raw);
  RankedTensorType type = tensorType(op->getResult(0));
  Type element = type.getElementType();
  bool isFloat = isa<FloatType>(element);
  double unit = element.isF64() ? 0x1p-53 : arithmetic.unit;
  Bounded result{Tensor(type.getShape()), Tensor(type.getShape())};
  Scalars in;
  in.values.resize(operands.size());
  in.radii.resize(operands.size());
  for (int64_t i = 0; i < result.value.size(); ++i) {
    for (auto [j, operand] : llvm::enumerate(operands)) {
      in.values[j] = operand->value.data[i];
      in.radii[j] = operand->radius.data[i];
    }
    double value = op.evaluateScalar(in.values);
    double error = inheritedError(op, in, value);
    // Results of the functions are finite; -inf stands only in masks.
    if (isFloat && std::isfinite(value)) {
      error += unit * computingError(op, in, value) +
               (arithmetic.narrow ? 0x1p-120 : 0);
      // A conversion between floats that widens rounds nothing, nor does what
      // only picks among its operands.
      if (!isa<NegOp, AbsOp, ReluOp, MaxOp, MinOp, SelectOp>(raw))
        error += storageError(element, value, arithmetic);
    }
    result.value.data[i] = value;
    result.radius.data[i] = std::isnan(error) ? kInfinity : error;
  }
  return result;
}

} // namespace tessera::metamorphic
