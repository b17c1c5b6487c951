// Constants and re-indexing.
#include "test/metamorphic/Generator.h"
#include <numeric>

using namespace mlir;
using namespace tessera::graph;

namespace tessera::metamorphic {

// Any tensor, mostly of floats.
static Entry anything(Generator &g, int64_t minRank) {
  auto fits = [&](const Entry &x) { return x.rank() >= minRank; };
  if (g.chance(25))
    if (auto entry = g.find(fits))
      return *entry;
  return g.floats(minRank);
}

// Another shape of as many elements: splits and merges of dimensions.
static Shape reshaped(Generator &g, ArrayRef<int64_t> from) {
  Shape shape(from);
  for (int64_t step = g.between(1, 2); step > 0; --step) {
    if (shape.size() > 1 && g.chance(50)) {
      int64_t dim = g.below(shape.size() - 1);
      shape[dim] *= shape[dim + 1];
      shape.erase(shape.begin() + dim + 1);
    } else if (!shape.empty() && shape.size() < 5) {
      int64_t dim = g.below(shape.size());
      Shape divisors;
      for (int64_t d = 1; d <= shape[dim]; ++d)
        if (shape[dim] % d == 0)
          divisors.push_back(d);
      int64_t d = divisors.empty() ? 1 : divisors[g.below(divisors.size())];
      shape[dim] /= d;
      shape.insert(shape.begin() + dim + g.below(2), d);
    } else {
      shape.insert(shape.begin(), 1);
    }
  }
  return shape;
}

static bool reshape(Generator &g) {
  Entry x = anything(g, 0);
  if (!g.afford(x.count()))
    return false;
  g.add(g.e.reshape(x.value, reshaped(g, x.shape())), x.range);
  return true;
}

static bool transpose(Generator &g) {
  Entry x = anything(g, 2);
  if (!g.afford(x.count()))
    return false;
  Shape permutation(x.rank());
  std::iota(permutation.begin(), permutation.end(), 0);
  for (int64_t i = x.rank() - 1; i > 0; --i)
    std::swap(permutation[i], permutation[g.below(i + 1)]);
  g.add(g.e.transpose(x.value, permutation), x.range);
  return true;
}

static bool broadcast(Generator &g) {
  Entry x = anything(g, 0);
  Shape dims, shape(x.shape());
  dims.resize(x.rank());
  std::iota(dims.begin(), dims.end(), 0);
  int64_t count = std::max<int64_t>(x.count(), 1);
  for (int64_t more = g.between(1, 2); more > 0 && shape.size() < 5; --more) {
    int64_t at = g.below(shape.size() + 1);
    int64_t size = g.sizeUpTo(std::max<int64_t>(4096 / count, 1));
    count *= std::max<int64_t>(size, 1);
    shape.insert(shape.begin() + at, size);
    for (int64_t &dim : dims)
      dim += dim >= at;
  }
  if (!g.afford(count))
    return false;
  g.add(g.e.broadcast(x.value, dims, shape), x.range);
  return true;
}

static bool slice(Generator &g) {
  Entry x = anything(g, 1);
  Shape start, shape;
  for (int64_t size : x.shape()) {
    int64_t part = g.chance(50)   ? size
                   : g.chance(30) ? size / 2
                                  : g.between(std::min<int64_t>(size, 1), size);
    shape.push_back(part);
    start.push_back(g.chance(30) ? size - part : g.between(0, size - part));
  }
  if (!g.afford(x.count()))
    return false;
  g.add(g.e.slice(x.value, start, shape), x.range);
  return true;
}

static bool pad(Generator &g) {
  Entry x = anything(g, 1);
  Shape low, shape;
  int64_t count = 1;
  for (int64_t size : x.shape()) {
    low.push_back(g.chance(60) ? 0 : g.between(1, 3));
    shape.push_back(low.back() + size + (g.chance(60) ? 0 : g.between(1, 9)));
    count *= shape.back();
  }
  if (count > 8400 || !g.afford(count))
    return false;
  g.add(g.e.pad(x.value, low, shape), x.range | Interval{0, 0});
  return true;
}

static bool concat(Generator &g) {
  Entry x = anything(g, 1);
  int64_t dim = g.below(x.rank());
  SmallVector<Value> inputs{x.value};
  Interval range = x.range;
  int64_t count = x.count();
  for (int64_t more = g.between(0, 2); more > 0; --more) {
    Shape shape(x.shape());
    if (g.chance(60))
      shape[dim] = g.sizeUpTo(64);
    Entry y = g.like(g.tensor(shape, x.element()));
    inputs.push_back(y.value);
    range = range | y.range;
    count += y.count();
  }
  if (count > 8400 || !g.afford(count))
    return false;
  g.add(g.e.concat(inputs, dim), range);
  return true;
}

static bool iota(Generator &g) {
  Shape shape = g.shape(g.between(1, 3));
  int64_t dim = g.below(shape.size());
  Type element = g.integerType();
  // Indices must fit the type.
  if (shape[dim] > 127 && element.getIntOrFloatBitWidth() == 8)
    element = g.i32();
  Value value = g.e.iota(g.tensor(shape, element), dim);
  if (!g.afford(tensorType(value).getNumElements()))
    return false;
  g.add(value, {0, static_cast<double>(std::max<int64_t>(shape[dim] - 1, 0))});
  return true;
}

static bool constant(Generator &g) {
  auto type = g.tensor(g.shape(g.between(0, 2)), g.floatType());
  if (type.getNumElements() > 64 || !g.afford(type.getNumElements()))
    return false;
  SmallVector<Attribute> values;
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    values.push_back(
        g.builder.getFloatAttr(type.getElementType(), g.number(-4, 4)));
  g.add(g.builder.create<ConstantOp>(
            g.e.location(),
            cast<ElementsAttr>(DenseElementsAttr::get(type, values))),
        around(4));
  return true;
}

ArrayRef<WeightedProduction> shapeProductions() {
  static const WeightedProduction table[] = {
      {5, reshape}, {6, transpose}, {5, broadcast}, {4, slice},
      {2, pad},     {4, concat},    {2, iota},      {2, constant},
  };
  return table;
}

} // namespace tessera::metamorphic
