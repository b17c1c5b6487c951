// Composites, and the combinations in which models use them.
#include "test/metamorphic/Generator.h"
#include <cmath>

using namespace mlir;
using namespace tessera::graph;

namespace tessera::metamorphic {

static bool softmax(Generator &g) {
  Entry x = g.floats(1);
  // A row of nothing has no maximum.
  if (x.shape().back() == 0 || !g.afford(6 * x.count()))
    return false;
  g.add(g.e.unary<SoftmaxOp>(x.value), {0, 1});
  return true;
}

// Normalized along the last dimension, perhaps with a residual before it.
static bool norm(Generator &g) {
  Entry x = g.floats(1);
  if (x.shape().back() == 0 || !g.afford(10 * x.count()))
    return false;
  if (g.chance(40)) {
    Entry residual = g.like(x.type());
    x = g.add(g.e.add(x.value, residual.value), x.range + residual.range);
  }
  Type element = x.element();
  if (element.isBF16() && g.chance(50))
    element = g.f32(); // parameters may be wider than activations
  auto type = g.tensor({x.shape().back()}, element);
  Entry weight = g.argument(type, {0.5, 1.5});
  double eps = g.oneOf({1e-5, 1e-2, 1e-6});
  Value result;
  if (g.chance(50)) {
    result = g.e.rmsNorm(x.value, weight.value, eps);
  } else {
    Value bias = g.chance(70) ? g.argument(type, around(1)).value : Value();
    result = g.e.layerNorm(x.value, weight.value, bias, eps);
  }
  g.add(result, around(1.5 * std::sqrt(x.shape().back()) + 1));
  return true;
}

static Entry turned(Generator &g, const Entry &x) {
  SmallVector<double> frequencies;
  for (int64_t i = 0; i < x.shape()[3] / 2; ++i)
    frequencies.push_back(
        std::pow(10000.0, -2.0 * static_cast<double>(i) /
                              static_cast<double>(x.shape()[3])));
  double scaling = g.chance(70) ? 1.0 : 1.25;
  Value result = g.builder.create<RopeOp>(
      g.e.location(), x.value, /*positions=*/Value(),
      g.builder.getDenseF64ArrayAttr(frequencies),
      g.builder.getF64FloatAttr(scaling),
      g.chance(20) ? g.builder.getUnitAttr() : UnitAttr());
  return {result, around(2 * scaling * x.range.magnitude())};
}

static bool rope(Generator &g) {
  Shape shape{g.sizeUpTo(3), g.sizeUpTo(33), g.sizeUpTo(4),
              2 * g.oneOf<int64_t>({1, 2, 4, 8, 9, 16})};
  auto type = g.tensor(shape, g.floatType());
  if (!g.afford(8 * type.getNumElements()))
    return false;
  Entry result = turned(g, g.like(type));
  g.add(result.value, result.range);
  return true;
}

static bool dropout(Generator &g) {
  Entry x = g.floats();
  if (!g.afford(8 * x.count()))
    return false;
  auto scalar = g.tensor({}, g.builder.getI64Type());
  Entry seed = g.argument(scalar, {-0x1p40, 0x1p40}),
        step = g.argument(scalar, {0, 1000});
  Value offset =
      x.rank() && g.chance(40) ? g.argument(scalar, {0, 50}).value : Value();
  double rate = g.oneOf({0.0, 0.1, 0.25, 0.5});
  Value result = g.builder.create<DropoutOp>(
      g.e.location(), x.value, seed.value, step.value, offset,
      g.builder.getF64FloatAttr(rate),
      g.builder.getI64IntegerAttr(g.below(100)));
  g.add(result, around(x.range.magnitude() / (1 - rate)));
  return true;
}

//===--- attention --------------------------------------------------------===//

// First keys of documents of equal lengths, other ones in each sequence: they
// do not decrease. With a start they may be before, among or after the keys.
static Value firstKeys(Generator &g, int64_t batch, int64_t tokens,
                       int64_t keys, bool hasStart) {
  Shape shape{batch, tokens};
  Entry lengths =
      g.argument(g.tensor({batch}, g.i32()), {1, static_cast<double>(tokens)});
  Value length = g.e.broadcast(lengths.value, {0}, shape);
  Value first = g.e.div(g.e.iota(g.tensor(shape, g.i32()), 1), length);
  first = g.e.mul(first, length);
  if (!hasStart)
    return first;
  Entry from = g.argument(g.tensor({}, g.i32()), {static_cast<double>(-tokens),
                                                  static_cast<double>(keys)});
  return g.e.add(first, g.e.broadcastScalar(from.value, shape));
}

static bool attention(Generator &g) {
  int64_t batch = g.between(1, 2),
          tokens = std::max<int64_t>(g.sizeUpTo(64), 1);
  int64_t kvHeads = g.between(1, 2), group = g.oneOf<int64_t>({1, 1, 2, 3});
  int64_t headDim = g.oneOf<int64_t>({1, 2, 3, 4, 8, 8, 16, 16, 17, 32, 64});
  int64_t heads = kvHeads * group;
  bool gradient = g.kind != Kind::mixed && g.chance(40);
  int64_t work = batch * heads * tokens * tokens * (2 * headDim + 8);
  if (batch * tokens * heads * headDim > 8400 ||
      !g.afford(gradient ? 3 * work : work))
    return false;
  Type element = g.floatType();
  // Queries of a share of a sequence stand somewhere among the keys, or before
  // or behind them.
  bool hasStart = g.chance(35);
  int64_t keys =
      hasStart ? std::max<int64_t>(g.sizeUpTo(2 * tokens), 1) : tokens;
  auto queryType = g.tensor({batch, tokens, heads, headDim}, element),
       keyType = g.tensor({batch, keys, kvHeads, headDim}, element);
  Entry query = g.limited(g.like(queryType), 4),
        key = g.limited(g.like(keyType), 4), value = g.like(keyType);
  if (headDim % 2 == 0 && g.chance(30)) {
    query = turned(g, query);
    key = turned(g, key);
  }
  auto scale = g.builder.getF64FloatAttr(
      g.chance(80) ? 1 / std::sqrt(static_cast<double>(headDim)) : 0.25);
  UnitAttr causal = g.chance(60) ? g.builder.getUnitAttr() : UnitAttr();
  IntegerAttr window = g.chance(35) ? g.builder.getI64IntegerAttr(g.between(
                                          1, std::max<int64_t>(tokens, 2)))
                                    : IntegerAttr();
  FloatAttr cap = g.chance(25)
                      ? g.builder.getF64FloatAttr(g.oneOf<double>({1.5, 8.0}))
                      : FloatAttr();
  Value start;
  if (hasStart)
    start = g.argument(g.tensor({}, g.i32()), {static_cast<double>(-tokens),
                                               static_cast<double>(keys)})
                .value;
  Value first;
  if (g.chance(35))
    first = firstKeys(g, batch, tokens, keys, hasStart);
  // By the sizes, so that other graphs are those that they were.
  Value last, sinks;
  if (first && causal && (tokens + keys + headDim) % 2 == 0) {
    last = firstKeys(g, batch, tokens, keys, hasStart);
    last = g.e.add(last, g.e.splatLike(static_cast<double>(tokens / 2), last));
  }
  if ((tokens + keys + heads + headDim) % 4 == 0)
    sinks = g.argument(g.tensor({heads}, g.f32()), around(4)).value;
  auto op = g.builder.create<AttentionOp>(
      g.e.location(), query.value, key.value, value.value, start, first, last,
      sinks, scale, causal, window, cap);
  double score = static_cast<double>(headDim) * query.range.magnitude() *
                     key.range.magnitude() +
                 8;
  g.add(op.getResult(), value.range | Interval{0, 0});
  if (!gradient) {
    // Of a query that sees no key it is no number to compute with.
    if (!hasStart && g.chance(30))
      g.add(op.getLse(), around(score));
    return true;
  }
  Entry cotangent = g.limited(g.like(queryType), 2);
  auto grad = g.builder.create<AttentionGradOp>(
      g.e.location(), query.value, key.value, value.value, op.getResult(),
      op.getLse(), cotangent.value, start, first, last, scale, causal, window,
      cap);
  double bound = 8.0 * static_cast<double>(headDim * (tokens + keys) * group) *
                 std::max(1.0, value.range.magnitude());
  for (Value result : grad.getResults())
    g.add(result, around(bound));
  return true;
}

// x → heads → rope → attention → x: the forms that fusion sees in models.
static bool selfAttention(Generator &g) {
  int64_t tokens = std::max<int64_t>(g.sizeUpTo(33), 1),
          heads = g.between(1, 4), headDim = g.oneOf<int64_t>({2, 4, 8, 16});
  int64_t width = heads * headDim, batch = g.between(1, 2);
  if (!g.afford(batch * tokens * width * (4 * width + 4 * tokens)))
    return false;
  Type element = g.floatType();
  Entry x = g.limited(g.like(g.tensor({batch, tokens, width}, element)), 2);
  Entry weight = g.argument(g.tensor({width, 3 * width}, element), around(0.5));
  Value all = g.e.einsum("btk,kn->btn", x.value, weight.value);
  Value parts[3];
  for (int64_t i = 0; i < 3; ++i)
    parts[i] =
        g.e.reshape(g.e.slice(all, {0, 0, i * width}, {batch, tokens, width}),
                    {batch, tokens, heads, headDim});
  Interval range = around(static_cast<double>(width));
  Entry query = turned(g, {parts[0], range}),
        key = turned(g, {parts[1], range});
  auto op = g.builder.create<AttentionOp>(
      g.e.location(), query.value, key.value, parts[2], /*start=*/Value(),
      /*first=*/Value(), /*last=*/Value(),
      /*sinks=*/Value(),
      g.builder.getF64FloatAttr(1 / std::sqrt(static_cast<double>(headDim))),
      g.builder.getUnitAttr(), IntegerAttr(), FloatAttr());
  Value merged = g.e.reshape(op.getResult(), {batch, tokens, width});
  Entry out = g.argument(g.tensor({width, width}, element), around(0.5));
  Value result = g.e.einsum("btk,kn->btn", merged, out.value);
  g.add(g.e.add(result, x.value),
        around(static_cast<double>(width * width) + 2));
  return true;
}

//===--- cross-entropy ----------------------------------------------------===//

static bool crossEntropy(Generator &g) {
  int64_t tokens = g.sizeUpTo(64), width = g.sizeUpTo(33),
          vocabulary = g.sizeUpTo(129) + 1;
  bool gradient = g.kind != Kind::mixed && g.chance(50);
  if (!g.afford((gradient ? 3 : 1) * tokens * vocabulary * (width + 10) + 1))
    return false;
  Type element = g.floatType();
  Entry x = g.limited(g.like(g.tensor({tokens, width}, element)), 2);
  Entry weight = g.limited(g.like(g.tensor({vocabulary, width}, element)), 1);
  Entry targets = g.ids({tokens}, vocabulary);
  int64_t ignore = g.chance(50) ? -100 : g.below(vocabulary);
  if (ignore == -100 && g.chance(60)) {
    Entry masked = g.argument(g.tensor({tokens}, g.builder.getI1Type()));
    targets.value = g.e.select(masked.value, targets.value,
                               g.e.splatLike(-100, targets.value));
  }
  double bound = static_cast<double>(std::max<int64_t>(tokens, 1)) *
                 (4.0 * static_cast<double>(width) + 8);
  auto scalar = g.tensor({}, g.f32());
  auto ignored = g.builder.getI64IntegerAttr(ignore);
  FloatAttr cap = g.chance(25)
                      ? g.builder.getF64FloatAttr(g.oneOf<double>({0.75, 4.0}))
                      : FloatAttr();
  auto losses = g.chance(50) ? scalar : g.tensor({tokens}, g.f32());
  if (!gradient) {
    g.add(g.builder.create<LinearCrossEntropyOp>(g.e.location(), losses,
                                                 x.value, weight.value,
                                                 targets.value, ignored, cap),
          {-1, bound});
    return true;
  }
  Entry cotangent = g.argument(losses, {0.25, 1});
  Type wide = element.isF64() || g.chance(50) ? element : g.f32();
  auto op = g.builder.create<LinearCrossEntropyGradOp>(
      g.e.location(), scalar, x.type(), g.tensor({vocabulary, width}, wide),
      x.value, weight.value, targets.value, cotangent.value, ignored, cap);
  g.add(op.getLoss(), {-1, bound});
  g.add(op.getDInput(), around(2));
  g.add(op.getDWeight(), around(2.0 * static_cast<double>(tokens) + 1));
  return true;
}

//===--- model parts ------------------------------------------------------===//

// norm → gate and up projections → silu(gate) × up → down → + residual
static bool gatedMlp(Generator &g) {
  int64_t width = std::max<int64_t>(g.sizeUpTo(33), 1),
          inner = std::max<int64_t>(g.sizeUpTo(64), 1);
  Shape shape{std::max<int64_t>(g.sizeUpTo(33), 1), width};
  if (g.chance(50))
    shape.insert(shape.begin(), 2);
  int64_t rows = shape.size() == 3 ? 2 * shape[1] : shape[0];
  if (!g.afford(3 * rows * width * inner))
    return false;
  Type element = g.floatType();
  Entry x = g.limited(g.like(g.tensor(shape, element)), 4);
  Entry scale = g.argument(g.tensor({width}, element), {0.5, 1.5});
  Entry gate = g.argument(g.tensor({inner, width}, element), around(0.5)),
        up = g.argument(g.tensor({inner, width}, element), around(0.5)),
        down = g.argument(g.tensor({width, inner}, element), around(0.5));
  std::string lead = shape.size() == 3 ? "ab" : "a";
  std::string equation = lead + "k,nk->" + lead + "n";
  Value h = g.e.rmsNorm(x.value, scale.value, 1e-5);
  Value y = g.e.mul(g.e.unary<SiluOp>(g.e.einsum(equation, h, gate.value)),
                    g.e.einsum(equation, h, up.value));
  Value z = g.e.einsum(equation, y, down.value);
  auto k = static_cast<double>(width);
  g.add(g.e.add(x.value, z),
        around(4 + static_cast<double>(inner) * k * k * 1.2));
  return true;
}

ArrayRef<WeightedProduction> compositeProductions() {
  static const WeightedProduction table[] = {
      {4, softmax},   {6, norm},          {2, rope},         {3, dropout},
      {4, attention}, {2, selfAttention}, {3, crossEntropy}, {3, gatedMlp},
  };
  return table;
}

} // namespace tessera::metamorphic
