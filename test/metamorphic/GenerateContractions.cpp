// Contractions, reductions, gather and scatter, random numbers.
#include "test/metamorphic/Generator.h"
#include <numeric>

using namespace mlir;
using namespace tessera::graph;

namespace tessera::metamorphic {

static int64_t product(ArrayRef<int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1},
                         std::multiplies<>());
}

static std::string shuffled(Generator &g, std::string labels) {
  for (int64_t i = static_cast<int64_t>(labels.size()) - 1; i > 0; --i)
    std::swap(labels[i], labels[g.below(i + 1)]);
  return labels;
}

// x ∘ y with labels in random places and roles; null where too large.
static Value contraction(Generator &g, const Entry &x, Interval &range) {
  std::string lhs, batch, rows, summed, columns;
  std::array<int64_t, 26> sizes{};
  for (int64_t dim = 0; dim < x.rank(); ++dim) {
    char label = static_cast<char>('a' + dim);
    lhs += label;
    sizes[dim] = x.shape()[dim];
    int64_t role = g.below(100);
    // Most contractions sum over the last dimension.
    if (dim == x.rank() - 1)
      role = role / 2 + 50;
    (role < 20 ? batch : role < 60 ? rows : summed) += label;
  }
  for (int64_t i = g.chance(85) ? g.between(1, 2) : 0; i > 0; --i) {
    char label = static_cast<char>('n' + columns.size());
    columns += label;
    sizes[label - 'a'] = g.sizeUpTo(129);
  }
  bool plain = g.chance(60);
  std::string rhs = batch + summed + columns, out = batch + rows + columns;
  if (!plain) {
    rhs = shuffled(g, rhs);
    out = shuffled(g, out);
  }
  auto shapeOf = [&](StringRef term) {
    Shape shape;
    for (char label : term)
      shape.push_back(sizes[label - 'a']);
    return shape;
  };
  int64_t work = product(shapeOf(lhs)) * product(shapeOf(columns));
  if (product(shapeOf(out)) > 8400 || product(shapeOf(rhs)) > 8400 ||
      !g.afford(work + 1))
    return {};
  Entry y = g.like(g.tensor(shapeOf(rhs), x.element()));
  double terms = std::max<double>(product(shapeOf(summed)), 1);
  range = around(terms * x.range.magnitude() * y.range.magnitude());
  Type wide = x.element().isF64() || g.chance(60) ? x.element() : g.f32();
  std::string equation = lhs + "," + rhs + "->" + out;
  return g.e.einsum(equation, x.value, y.value, wide);
}

static bool einsum(Generator &g) {
  Entry x = g.floats(g.below(3));
  Interval range{0, 0};
  Value result = contraction(g, x, range);
  if (result)
    g.add(result, range);
  return static_cast<bool>(result);
}

// What fusion puts on a contraction's accumulators: bias, activation, scale,
// residual, conversion.
static bool linear(Generator &g) {
  Entry x = g.floats(2);
  int64_t outputs = g.sizeUpTo(129), inner = x.shape().back();
  Shape shape(x.shape());
  shape.back() = outputs;
  if (x.rank() > 5 || product(shape) > 8400 || inner * outputs > 8400 ||
      !g.afford(product(shape) * (inner + 4)))
    return false;
  bool transposed = g.chance(40);
  Entry weight =
      g.argument(transposed ? g.tensor({outputs, inner}, x.element())
                            : g.tensor({inner, outputs}, x.element()),
                 around(1));
  std::string lead = std::string("abcd").substr(0, x.rank() - 1);
  Value y =
      g.e.einsum(lead + "k," + (transposed ? "nk" : "kn") + "->" + lead + "n",
                 x.value, weight.value,
                 x.element().isF64() || g.chance(50) ? x.element() : g.f32());
  Entry result =
      g.add(y, around(std::max<double>(inner, 1) * x.range.magnitude()));
  auto type = result.type();
  if (g.chance(60)) {
    Entry bias =
        g.argument(g.tensor({outputs}, type.getElementType()), around(2));
    result = {g.e.add(result.value, g.e.broadcastLast(bias.value, shape)),
              result.range + bias.range};
  }
  result = g.limited(result, 64);
  if (g.chance(50))
    result = {g.chance(50) ? g.e.unary<SiluOp>(result.value)
                           : g.e.gelu(result.value, GeluKind::tanh),
              {-0.3, result.range.magnitude()}};
  if (g.chance(40)) {
    Entry other = g.like(type);
    bool gate = g.chance(40);
    result = {gate ? g.e.mul(result.value, other.value)
                   : g.e.add(result.value, other.value),
              gate ? result.range * other.range : result.range + other.range};
  }
  g.add(result.value, result.range);
  return true;
}

// Offsets of packed rows, some groups without any; or counts of padded ones.
static Value groupSizes(Generator &g, bool isPadded, int64_t groups,
                        int64_t rows) {
  if (isPadded)
    return g
        .argument(g.tensor({groups}, g.i32()), {0, static_cast<double>(rows)})
        .value;
  std::vector<int32_t> offsets{0};
  for (int64_t i = 0; i < groups; ++i)
    offsets.push_back(
        static_cast<int32_t>(g.chance(20) ? 0 : g.below(rows + 1)));
  llvm::sort(offsets);
  auto type = g.tensor({groups + 1}, g.i32());
  return g.builder.create<ConstantOp>(
      g.e.location(),
      cast<ElementsAttr>(DenseElementsAttr::get(type, ArrayRef(offsets))));
}

static bool grouped(Generator &g) {
  int64_t groups = g.between(1, 5), rows = g.sizeUpTo(65), k = g.sizeUpTo(65),
          n = g.sizeUpTo(65);
  bool isPadded = g.chance(40);
  int64_t all = isPadded ? groups * rows : rows;
  // Its definition multiplies every row with every matrix.
  if (all * (k + n) > 8400 || groups * k * n > 8400 ||
      !g.afford(groups * rows * (k + 2) * (n + 2)))
    return false;
  auto rowsOf = [&](int64_t width, Type element) {
    return g.tensor(isPadded ? Shape{groups, rows, width} : Shape{rows, width},
                    element);
  };
  Type element = g.floatType();
  Type wide = element.isF64() || g.chance(60) ? element : g.f32();
  Entry x = g.like(rowsOf(k, element));
  Value sizes = groupSizes(g, isPadded, groups, rows);
  if (g.chance(40)) {
    Entry y = g.like(rowsOf(n, element));
    Value result = g.builder.create<GroupedOuterOp>(
        g.e.location(), g.tensor({groups, k, n}, wide), x.value, y.value,
        sizes);
    g.add(result, around(static_cast<double>(std::max<int64_t>(rows, 1)) *
                         x.range.magnitude() * y.range.magnitude()));
    return true;
  }
  bool transposed = g.chance(50);
  Entry weight = g.argument(
      g.tensor(transposed ? Shape{groups, n, k} : Shape{groups, k, n}, element),
      around(1));
  Value result = g.builder.create<GroupedMatmulOp>(
      g.e.location(), rowsOf(n, wide), x.value, weight.value, sizes,
      transposed);
  g.add(result, around(static_cast<double>(std::max<int64_t>(k, 1)) *
                       x.range.magnitude()));
  return true;
}

static bool reduce(Generator &g) {
  Entry x = g.chance(90) ? g.floats(1) : g.integers();
  if (x.rank() == 0 || !g.afford(x.count()))
    return false;
  auto kind = g.oneOf(
      {ReduceKind::sum, ReduceKind::sum, ReduceKind::max, ReduceKind::min});
  Shape dims;
  int64_t form = g.below(4);
  for (int64_t dim = 0; dim < x.rank(); ++dim)
    if (form == 0   ? dim == x.rank() - 1
        : form == 1 ? dim < x.rank() - 1
        : form == 2 ? true
                    : g.chance(50))
      dims.push_back(dim);
  double terms = 1;
  for (int64_t dim : dims) {
    if (x.shape()[dim] == 0 && kind != ReduceKind::sum)
      return false; // there is no maximum of nothing
    terms *= static_cast<double>(x.shape()[dim]);
  }
  if (dims.empty())
    return false;
  Interval range = x.range;
  if (kind == ReduceKind::sum)
    range = (x.range * Interval{terms, terms}) | Interval{0, 0};
  // The reference does not wrap sums around.
  if (x.isInteger() &&
      range.magnitude() >
          std::exp2(x.element().getIntOrFloatBitWidth() - 1) - 1)
    return false;
  g.add(g.e.reduce(x.value, kind, dims), range);
  return true;
}

static bool embedding(Generator &g) {
  auto table = g.find([](const Entry &x) {
    return x.isFloat() && x.rank() == 2 && x.shape()[0] > 0;
  });
  Entry from =
      table && g.chance(60)
          ? *table
          : g.argument(g.tensor({g.sizeUpTo(64) + 1, g.size()}, g.floatType()));
  Shape shape = g.shape(g.between(0, 2));
  int64_t count = product(shape) * from.shape()[1];
  if (count > 8400 || !g.afford(count))
    return false;
  Entry ids = g.ids(shape, from.shape()[0]);
  g.add(g.e.embedding(from.value, ids.value), from.range);
  return true;
}

static bool scatter(Generator &g) {
  Entry updates = g.floats(1);
  int64_t rows = g.sizeUpTo(64) + 1, width = updates.shape().back();
  Type element = updates.element();
  if (element.isBF16() && g.chance(60))
    element = g.f32();
  if (rows * width > 8400 || !g.afford(updates.count() + rows * width))
    return false;
  Entry base = g.like(g.tensor({rows, width}, element));
  Entry ids = g.ids(updates.shape().drop_back(), rows);
  auto terms = static_cast<double>(product(updates.shape().drop_back()));
  Value result = g.builder.create<ScatterAddOp>(g.e.location(), base.value,
                                                ids.value, updates.value);
  g.add(result, base.range + around(terms * updates.range.magnitude()));
  return true;
}

static bool random(Generator &g) {
  auto type = g.tensor(g.shape(g.between(1, 3)), g.f32());
  if (!g.afford(8 * type.getNumElements()))
    return false;
  auto scalar = [&](Interval range) {
    return g.argument(
        g.tensor({}, g.chance(50) ? g.i32() : g.builder.getI64Type()), range);
  };
  Entry seed = scalar({-0x1p31, 0x1p31 - 1}), step = scalar({0, 1000});
  Value offset = g.chance(50) ? scalar({0, 100}).value : Value();
  bool normal = g.chance(50);
  Value result = g.builder.create<RandomOp>(
      g.e.location(), type, seed.value, step.value, offset, g.below(1000),
      normal ? RandomKind::normal : RandomKind::uniform);
  g.add(result, normal ? around(6) : Interval{0, 1});
  return true;
}

ArrayRef<WeightedProduction> contractionProductions() {
  static const WeightedProduction table[] = {
      {7, einsum},  {7, linear}, {12, reduce}, {3, embedding},
      {3, scatter}, {2, random}, {3, grouped},
  };
  return table;
}

} // namespace tessera::metamorphic
