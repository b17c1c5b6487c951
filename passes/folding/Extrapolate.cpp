#include "passes/folding/Extrapolate.h"
#include "dialects/graph/GraphOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

static std::optional<int64_t> extrapolate(int64_t one, int64_t two,
                                          int64_t steps) {
  int64_t step, distance, sum;
  if (__builtin_sub_overflow(two, one, &step) ||
      __builtin_mul_overflow(step, steps, &distance) ||
      __builtin_add_overflow(one, distance, &sum))
    return std::nullopt;
  return sum;
}

// Names that differ by one number: "h.1.w", "h.2.w".
static Attribute extrapolate(StringAttr one, StringAttr two, int64_t steps) {
  StringRef a = one.getValue(), b = two.getValue();
  auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  while (differ != a.begin() && llvm::isDigit(differ[-1]))
    --differ;
  StringRef before(a.begin(), differ - a.begin());
  a = a.drop_front(before.size()), b = b.drop_front(before.size());
  uint32_t from, to;
  if (a.consumeInteger(10, from) || b.consumeInteger(10, to) || a != b)
    return {};
  std::optional<int64_t> number = ::extrapolate(from, to, steps);
  if (!number || *number < 0)
    return {};
  return StringAttr::get(one.getContext(), before + Twine(*number) + a);
}

static Attribute extrapolate(graph::LayerAttr one, graph::LayerAttr two,
                             int64_t steps) {
  std::optional<int64_t> index =
      ::extrapolate(one.getIndex(), two.getIndex(), steps);
  if (!index || *index < 0 || *index >= graph::kMostLayers ||
      one.getDirection() != two.getDirection())
    return {};
  return graph::LayerAttr::get(one.getContext(), *index, one.getDirection());
}

// What wraps does not grow evenly in any other type.
static Attribute extrapolate(SplatElementsAttr one, SplatElementsAttr two,
                             int64_t steps) {
  if (one.getType() != two.getType() ||
      !one.getElementType().isSignlessInteger())
    return {};
  auto a = one.getSplatValue<llvm::APInt>(),
       b = two.getSplatValue<llvm::APInt>();
  unsigned width = a.getBitWidth();
  bool overflows[3] = {};
  llvm::APInt step = b.ssub_ov(a, overflows[0]),
              distance =
                  step.smul_ov(llvm::APInt(64, steps, true).sextOrTrunc(width),
                               overflows[1]),
              sum = a.sadd_ov(distance, overflows[2]);
  bool fits = width >= 64 || llvm::isIntN(width, steps);
  if (!fits || llvm::is_contained(overflows, true))
    return {};
  return DenseElementsAttr::get(one.getType(), sum);
}

static Attribute extrapolate(DenseI64ArrayAttr one, DenseI64ArrayAttr two,
                             int64_t steps) {
  if (one.size() != two.size())
    return {};
  SmallVector<int64_t> moved;
  for (auto [a, b] : llvm::zip(one.asArrayRef(), two.asArrayRef())) {
    std::optional<int64_t> number = ::extrapolate(a, b, steps);
    if (!number)
      return {};
    moved.push_back(*number);
  }
  return DenseI64ArrayAttr::get(one.getContext(), moved);
}

static Attribute extrapolate(DictionaryAttr one, DictionaryAttr two,
                             int64_t steps) {
  if (one.size() != two.size())
    return {};
  SmallVector<NamedAttribute> moved;
  for (auto [a, b] : llvm::zip(one, two)) {
    Attribute value = folding::extrapolate(a.getValue(), b.getValue(), steps);
    if (!value || a.getName() != b.getName())
      return {};
    moved.emplace_back(a.getName(), value);
  }
  return DictionaryAttr::getWithSorted(one.getContext(), moved);
}

template <typename... Kinds>
static Attribute extrapolateAs(Attribute one, Attribute two, int64_t steps) {
  Attribute result;
  auto attempt = [&]<typename Kind>(Kind *) {
    if (isa_and_present<Kind>(one) && isa_and_present<Kind>(two))
      result = ::extrapolate(cast<Kind>(one), cast<Kind>(two), steps);
  };
  (attempt(static_cast<Kinds *>(nullptr)), ...);
  return result;
}

Attribute folding::extrapolate(Attribute one, Attribute two, int64_t steps) {
  return one == two
             ? one
             : extrapolateAs<StringAttr, graph::LayerAttr, SplatElementsAttr,
                             DenseI64ArrayAttr, DictionaryAttr>(one, two,
                                                                steps);
}

Location folding::extrapolate(Location one, Location two, int64_t steps) {
  auto a = dyn_cast<NameLoc>(one), b = dyn_cast<NameLoc>(two);
  if (!a || !b)
    return two;
  Attribute name = folding::extrapolate(a.getName(), b.getName(), steps);
  return NameLoc::get(name ? cast<StringAttr>(name) : b.getName(),
                      extrapolate(a.getChildLoc(), b.getChildLoc(), steps));
}
