// Elementwise ops.
#include "test/metamorphic/Generator.h"
#include <cmath>

using namespace mlir;
using namespace tessera::graph;

namespace tessera::metamorphic {

//===--- unary ------------------------------------------------------------===//

namespace {

struct Unary {
  Value (*emit)(Generator &, Value);
  double low;       // the domain: at least this if positive, any sign if not
  double magnitude; // and no larger than this
  Interval (*range)(Interval);
};

} // namespace

template <typename Op> static Value emit(Generator &g, Value x) {
  return g.e.unary<Op>(x);
}

template <double (*F)(double)> static Interval increasing(Interval x) {
  return {F(x.low), F(x.high)};
}
static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
static double relu(double x) { return std::max(x, 0.0); }

// A smooth gate: x for large x, 0 for small, with a dip between.
static Interval gated(Interval x) {
  return {-0.3, std::max(x.high, 0.0) + 0.1};
}
static Interval wave(Interval) { return around(1); }

static constexpr double kAny = -1;

static const Unary kUnary[] = {
    {emit<NegOp>, kAny, 1e9,
     [](Interval x) { return Interval{-x.high, -x.low}; }},
    {emit<AbsOp>, kAny, 1e9,
     [](Interval x) { return Interval{0, x.magnitude()}; }},
    {emit<ExpOp>, kAny, 6, increasing<std::exp>},
    {emit<LogOp>, 0.125, 1e9, increasing<std::log>},
    {emit<SqrtOp>, 0.125, 1e9, increasing<std::sqrt>},
    {emit<RsqrtOp>, 0.125, 1e9,
     [](Interval x) {
       return Interval{1 / std::sqrt(x.high), 1 / std::sqrt(x.low)};
     }},
    {emit<TanhOp>, kAny, 1e9, increasing<std::tanh>},
    {emit<ErfOp>, kAny, 1e9, increasing<std::erf>},
    {emit<SinOp>, kAny, 64, wave},
    {emit<CosOp>, kAny, 64, wave},
    {emit<SigmoidOp>, kAny, 1e9, increasing<sigmoid>},
    {emit<ReluOp>, kAny, 1e9, increasing<relu>},
    {emit<SiluOp>, kAny, 64, gated},
};

static bool unary(Generator &g) {
  const Unary &op = kUnary[g.below(std::size(kUnary))];
  Entry x = g.limited(g.floats(), op.magnitude);
  if (op.low > 0)
    x = g.positive(x, op.low);
  if (!g.afford(x.count()))
    return false;
  g.add(op.emit(g, x.value), op.range(x.range));
  return true;
}

static bool gelu(Generator &g) {
  Entry x = g.limited(g.floats(), 64);
  if (!g.afford(2 * x.count()))
    return false;
  auto kind = g.oneOf({GeluKind::erf, GeluKind::tanh, GeluKind::quick});
  // Gradients come after apply-precision.
  if (g.kind == Kind::mixed || g.chance(60)) {
    g.add(g.e.gelu(x.value, kind), gated(x.range));
    return true;
  }
  Entry cotangent = g.like(x.type());
  Value result = g.builder.create<GeluGradOp>(g.e.location(), x.value,
                                              cotangent.value, kind);
  g.add(result, cotangent.range * Interval{-0.2, 1.2});
  return true;
}

//===--- binary -----------------------------------------------------------===//

static bool arithmetic(Generator &g) {
  Entry x = g.floats();
  if (!g.afford(x.count()))
    return false;
  Entry y = g.like(x.type());
  switch (g.below(5)) {
  case 0:
    g.add(g.e.add(x.value, y.value), x.range + y.range);
    return true;
  case 1:
    g.add(g.e.sub(x.value, y.value), x.range - y.range);
    return true;
  case 2:
    g.add(g.e.mul(x.value, y.value), x.range * y.range);
    return true;
  case 3:
    y = g.positive(y, 0.25);
    g.add(g.e.div(x.value, y.value),
          x.range * Interval{1 / y.range.high, 1 / y.range.low});
    return true;
  default: {
    bool max = g.chance(50);
    g.add(max ? g.e.max(x.value, y.value) : g.e.min(x.value, y.value),
          x.range | y.range);
    return true;
  }
  }
}

static bool power(Generator &g) {
  Entry x = g.positive(g.limited(g.floats(), 16), 0.25);
  Entry y = g.limited(g.like(x.type()), 2);
  if (!g.afford(x.count()))
    return false;
  double large = std::max({x.range.high, 1 / x.range.low, 1.0});
  g.add(g.e.binary<PowOp>(x.value, y.value), {0, large * large});
  return true;
}

// What an integer of the type holds, where `range` may exceed it.
static Interval wrapped(Interval range, Type element) {
  double half = std::ldexp(1.0, element.getIntOrFloatBitWidth() - 1);
  return range.within({-half, half - 1}) ? range : Interval{-half, half - 1};
}

static bool integerArithmetic(Generator &g) {
  Entry x = g.integers();
  Entry y = g.like(x.type());
  // Beyond 2^53 the reference, which computes in double, is no reference.
  Interval product = x.range * y.range;
  if (product.magnitude() > 0x1p53 || !g.afford(x.count()))
    return false;
  Value result;
  Interval range{0, 0};
  switch (g.below(7)) {
  case 0:
    result = g.e.add(x.value, y.value), range = x.range + y.range;
    break;
  case 1:
    result = g.e.sub(x.value, y.value), range = x.range - y.range;
    break;
  case 2:
    result = g.e.mul(x.value, y.value), range = product;
    break;
  case 3:
    y = {g.e.max(y.value, g.e.splatLike(1, y.value)),
         {1, std::max(y.range.high, 1.0)}};
    result = g.e.div(x.value, y.value), range = around(x.range.magnitude());
    break;
  case 4:
    result = g.e.max(x.value, y.value), range = x.range | y.range;
    break;
  case 5:
    result = g.e.binary<AndOp>(x.value, y.value);
    range = {-0x1p62, 0x1p62};
    break;
  default:
    result = g.e.binary<OrOp>(x.value, y.value);
    range = {-0x1p62, 0x1p62};
    break;
  }
  if (range.magnitude() == 0x1p62) {
    double power = std::exp2(std::ceil(std::log2(
        std::max({x.range.magnitude(), y.range.magnitude(), 1.0}) + 1)));
    range = {-power, power - 1};
  }
  g.add(result, wrapped(range, x.element()));
  return true;
}

//===--- comparison, selection, conversion --------------------------------===//

static Entry condition(Generator &g, ArrayRef<int64_t> shape) {
  auto bools = g.tensor(shape, g.builder.getI1Type());
  if (g.chance(30))
    return g.like(bools);
  auto x = g.find([&](const Entry &x) {
    return x.shape() == shape && (x.isFloat() || x.isInteger());
  });
  if (!x)
    return g.like(bools);
  Entry y = g.like(x->type());
  auto predicate = static_cast<ComparePredicate>(
      g.below(getMaxEnumValForComparePredicate() + 1));
  return {g.e.compare(x->value, predicate, y.value), {0, 1}};
}

static bool compare(Generator &g) {
  Entry x = g.chance(70) ? g.floats() : g.integers();
  if (!g.afford(2 * x.count()))
    return false;
  Entry result = condition(g, x.shape());
  if (g.chance(30)) {
    Entry other = condition(g, x.shape());
    result.value = g.chance(50) ? g.e.binary<AndOp>(result.value, other.value)
                                : g.e.binary<OrOp>(result.value, other.value);
  }
  g.add(result.value, {0, 1});
  return true;
}

static bool select(Generator &g) {
  Entry x = g.chance(80) ? g.floats() : g.integers();
  if (!g.afford(2 * x.count()))
    return false;
  Entry chosen = condition(g, x.shape()), y = g.like(x.type());
  g.add(g.e.select(chosen.value, x.value, y.value), x.range | y.range);
  return true;
}

static bool convert(Generator &g) {
  auto any = g.find([](const Entry &) { return true; });
  Entry x = any ? *any : g.floats();
  if (!g.afford(x.count()))
    return false;
  Type to = g.chance(70) ? g.floatType() : g.integerType();
  if (g.kind == Kind::mixed && isa<FloatType>(to) && x.isFloat())
    return false; // nothing to convert to
  if (g.kind == Kind::interpreter && g.chance(10))
    to = IntegerType::get(g.builder.getContext(), 8, IntegerType::Unsigned);
  Interval range = x.range;
  if (isa<IntegerType>(to)) {
    if (x.isFloat() && to.isUnsignedInteger())
      x = g.positive(x, 0.125);
    if (x.isFloat())
      x = g.limited(x, 100);
    range = to.isUnsignedInteger() ? Interval{0, 255} : wrapped(x.range, to);
  }
  g.add(g.e.convert(x.value, to), range);
  return true;
}

ArrayRef<WeightedProduction> elementwiseProductions() {
  static const WeightedProduction table[] = {
      {14, unary},
      {5, gelu},
      {22, arithmetic},
      {2, power},
      {6, integerArithmetic},
      {4, compare},
      {7, select},
      {7, convert},
  };
  return table;
}

} // namespace tessera::metamorphic
