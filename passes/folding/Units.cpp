#include "passes/folding/Units.h"
#include "dialects/graph/FoldedAttrs.h"
#include "passes/folding/LayerNames.h"
#include "passes/folding/Matcher.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

//===--- which layers -----------------------------------------------------===//

FailureOr<std::optional<Repetition>> Repetition::of(ModuleOp module) {
  Attribute attr = module->getAttr(graph::kFoldedAttr);
  if (!attr)
    return std::optional<Repetition>();
  auto numbers = dyn_cast<DenseI64ArrayAttr>(attr);
  constexpr int64_t kMost = 1 << 20;
  if (!numbers || numbers.size() != 3 || numbers[0] < 0 || numbers[1] < 1 ||
      numbers[2] < 5 || numbers[0] > kMost || numbers[1] > kMost ||
      numbers[2] > kMost)
    return module.emitError()
           << graph::kFoldedAttr
           << " is the first layer, how many are one unit, and how many units "
              "there are, 5 or more, got: "
           << attr;
  return std::optional<Repetition>({numbers[0], numbers[1], numbers[2]});
}

void Repetition::writeTo(ModuleOp module) const {
  module->setAttr(
      graph::kFoldedAttr,
      DenseI64ArrayAttr::get(module.getContext(), {first, period, units}));
}

std::optional<int64_t> Repetition::unitOf(int64_t layer) const {
  int64_t unit = (layer - first) / period;
  if (layer < first || unit >= units)
    return std::nullopt;
  return unit;
}

//===--- places -----------------------------------------------------------===//

void Units::place(Value value, unsigned unit, unsigned slot) {
  places[value] = {unit, slot};
  std::vector<Value> &own = values[unit];
  if (own.size() <= slot)
    own.resize(slot + 1);
  own[slot] = value;
}

void Units::replace(Value value, Value with) {
  auto [unit, slot] = places.at(value);
  places.erase(value);
  place(with, unit, slot);
}

//===--- attributes -------------------------------------------------------===//

Attribute folding::extrapolate(Attribute one, Attribute two, int64_t steps) {
  if (one == two)
    return one;
  if (auto a = dyn_cast_if_present<SplatElementsAttr>(one),
      b = dyn_cast_if_present<SplatElementsAttr>(two);
      a && b && a.getType() == b.getType() &&
      a.getElementType().isSignlessInteger()) {
    llvm::APInt from = a.getSplatValue<llvm::APInt>(),
                step = b.getSplatValue<llvm::APInt>() - from;
    return DenseElementsAttr::get(
        a.getType(),
        from +
            step *
                llvm::APInt(64, steps, true).sextOrTrunc(step.getBitWidth()));
  }
  auto from = dyn_cast_if_present<DenseI64ArrayAttr>(one),
       to = dyn_cast_if_present<DenseI64ArrayAttr>(two);
  if (!from || !to || from.size() != to.size())
    return {};
  SmallVector<int64_t> moved;
  for (auto [a, b] : llvm::zip(from.asArrayRef(), to.asArrayRef())) {
    int64_t step, distance, sum;
    if (__builtin_sub_overflow(b, a, &step) ||
        __builtin_mul_overflow(step, steps, &distance) ||
        __builtin_add_overflow(a, distance, &sum))
      return {};
    moved.push_back(sum);
  }
  return DenseI64ArrayAttr::get(one.getContext(), moved);
}

bool folding::haveEqualAttributes(Operation *one, Operation *other) {
  return one->getDiscardableAttrDictionary() ==
             other->getDiscardableAttrDictionary() &&
         one->getName().compareOpProperties(one->getPropertiesStorage(),
                                            other->getPropertiesStorage());
}

//===--- state ------------------------------------------------------------===//

namespace {
/// The state of a function that units have: which, and in the same order.
class States {
public:
  States(const Repetition &repetition, ArrayRef<int64_t> numbers)
      : repetition(repetition), numbers(numbers) {}

  /// The unit of something with these attributes.
  int unitOf(DictionaryAttr attrs) const {
    auto name = attrs ? attrs.getAs<StringAttr>(graph::kStateAttr) : nullptr;
    if (!name)
      return Ownership::kNone;
    auto layer = LayerName::parse(name.getValue());
    auto number = layer ? repetition.unitOf(layer->layer) : std::nullopt;
    auto role = attrs.getAs<graph::RoleAttr>(graph::kRoleAttr);
    if (!number)
      return role && (role.getValue() == graph::Role::parameter ||
                      role.getValue() == graph::Role::optimizer)
                 ? Ownership::kOuter
                 : Ownership::kNone;
    auto unit = llvm::lower_bound(numbers, *number);
    return unit != numbers.end() && *unit == *number
               ? static_cast<int>(unit - numbers.begin())
               : kForeign;
  }

  /// Whether the second is what the first is, some units further.
  bool correspond(DictionaryAttr one, DictionaryAttr other,
                  int64_t distance) const {
    if (one.size() != other.size())
      return false;
    for (auto [a, b] : llvm::zip(one, other)) {
      if (a == b)
        continue;
      if (a.getName() != b.getName() || a.getName() != graph::kStateAttr)
        return false;
      auto from = LayerName::parse(cast<StringAttr>(a.getValue()).getValue()),
           to = LayerName::parse(cast<StringAttr>(b.getValue()).getValue());
      if (!from || !to || !from->isLike(*to) ||
          to->layer - from->layer != distance * repetition.period)
        return false;
    }
    return true;
  }

  static constexpr int kForeign = -3; ///< of a unit that is not there

private:
  const Repetition &repetition;
  ArrayRef<int64_t> numbers;
};
} // namespace

// Whether each unit in the middle has the same of a list of attributes and
// types.
static bool alike(const States &states, ArrayRef<int64_t> numbers,
                  const std::vector<std::vector<unsigned>> &lists,
                  ArrayRef<Type> types,
                  llvm::function_ref<DictionaryAttr(unsigned)> attrsOf) {
  for (size_t unit = 2; unit + 1 < lists.size(); ++unit) {
    const std::vector<unsigned> &before = lists[unit - 1], &own = lists[unit];
    if (before.size() != own.size())
      return false;
    for (auto [a, b] : llvm::zip(before, own))
      if (types[a] != types[b] ||
          !states.correspond(attrsOf(a), attrsOf(b),
                             numbers[unit] - numbers[unit - 1]))
        return false;
  }
  return true;
}

std::optional<Units> Units::match(func::FuncOp function,
                                  const Repetition &repetition,
                                  ArrayRef<int64_t> numbers,
                                  std::string &reason) {
  States states(repetition, numbers);
  Units units;
  unsigned count = numbers.size();
  units.ops.resize(count);
  units.arguments.resize(count);
  units.results.resize(count);
  units.values.resize(count);
  bool isForeign = false;
  auto sort = [&](unsigned i, DictionaryAttr attrs, SmallVector<int> &owners,
                  std::vector<std::vector<unsigned>> &lists) {
    int unit = states.unitOf(attrs);
    isForeign |= unit == States::kForeign;
    owners.push_back(unit);
    if (unit >= 0)
      lists[unit].push_back(i);
  };
  SmallVector<int> ofArguments, ofResults;
  auto argAttrs = [&](unsigned i) { return function.getArgAttrDict(i); };
  auto resultAttrs = [&](unsigned i) { return function.getResultAttrDict(i); };
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    sort(i, argAttrs(i), ofArguments, units.arguments);
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    sort(i, resultAttrs(i), ofResults, units.results);
  if (isForeign ||
      !alike(states, numbers, units.arguments, function.getArgumentTypes(),
             argAttrs) ||
      !alike(states, numbers, units.results, function.getResultTypes(),
             resultAttrs)) {
    reason = "their state differs";
    return std::nullopt;
  }
  if (units.empty())
    return units;
  Ownership owners(function, ofArguments, ofResults);
  if (!Matcher(units, owners, repetition, numbers, reason).run(function))
    return std::nullopt;
  return units;
}
