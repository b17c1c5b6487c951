// Routing of mixtures of experts. What decides an order is exact: arguments,
// and integers.
#include "test/metamorphic/Generator.h"

using namespace mlir;
using namespace tessera::graph;

namespace tessera::metamorphic {

// The greatest of each row, and what they are.
static bool topK(Generator &g) {
  int64_t rows = g.sizeUpTo(33), n = g.between(1, 17), k = g.between(1, n);
  if (!g.afford(rows * n * (2 * n + k)))
    return false;
  // Few whole numbers, so that many are equal.
  Entry drawn = g.argument(g.tensor({rows, n}, g.i32()), around(4));
  Value scores = g.e.convert(drawn.value, g.floatType());
  Value indices = g.e.topK(scores, k);
  g.add(g.e.pick(scores, indices), drawn.range);
  g.add(indices, {-1, static_cast<double>(n - 1)});
  return true;
}

static bool rankInGroup(Generator &g) {
  int64_t rows = g.between(1, 3), n = g.oneOf<int64_t>({1, 7, 33, 64, 300}),
          groups = g.between(1, 9);
  bool scored = n <= 64 && g.chance(40);
  if (!g.afford(rows * n * (scored ? 4 * n : 64 + 4 * groups)))
    return false;
  Entry ids = g.argument(g.tensor({rows, n}, g.i32()),
                         {-1, static_cast<double>(groups)});
  Value scores;
  if (scored)
    scores = g.argument(g.tensor({rows, n}, g.floatType()), around(2)).value;
  g.add(g.e.rankInGroup(ids.value, scores, groups),
        {0, static_cast<double>(n)});
  return true;
}

// Rows to their groups, perhaps a product for each, and back.
static bool experts(Generator &g) {
  int64_t tokens = std::max<int64_t>(g.sizeUpTo(40), 1), k = g.between(1, 3),
          groups = g.between(1, 5),
          width = std::max<int64_t>(g.sizeUpTo(33), 1),
          out = std::max<int64_t>(g.sizeUpTo(33), 1),
          rows = tokens * k + g.between(0, 2);
  bool multiplies = g.chance(60);
  if (!g.afford(tokens * k * (64 + 6 * (width + out)) +
                (multiplies ? groups * rows * (width + 2) * (out + 2) : 0)))
    return false;
  Type element = g.floatType();
  Entry x = g.like(g.tensor({tokens, width}, element));
  Entry ids = g.argument(g.tensor({tokens, k}, g.i32()),
                         {-1, static_cast<double>(groups)});
  GroupRowsOp order = g.e.groupRows(ids.value, groups);
  Value places = order.getSlots(), weights;
  if (g.chance(60))
    weights = g.argument(g.tensor({tokens, k}, element.isF64() || g.chance(40)
                                                   ? element
                                                   : g.f32()),
                         around(1))
                  .value;
  bool before = g.chance(30); // where the weights come in
  Value packed =
      g.e.dispatchRows(x.value, places, before ? weights : Value(), rows);
  double size = x.range.magnitude();
  if (multiplies) {
    Entry matrices =
        g.argument(g.tensor({groups, width, out}, element), around(0.5));
    packed = g.e.groupedMatmul(packed, matrices.value, order.getOffsets(),
                               /*transposed=*/false);
    size *= 0.5 * static_cast<double>(width);
  }
  g.add(g.e.combineRows(packed, places, before ? Value() : weights),
        around(size * static_cast<double>(k)));
  g.add(order.getOffsets(), {0, static_cast<double>(rows)});
  return true;
}

ArrayRef<WeightedProduction> routingProductions() {
  static const WeightedProduction table[] = {
      {2, topK}, {1, rankInGroup}, {3, experts}};
  return table;
}

} // namespace tessera::metamorphic
