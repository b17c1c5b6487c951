#include "passes/folding/Units.h"
#include "dialects/graph/FoldedAttrs.h"
#include "passes/folding/LayerNames.h"
#include "passes/folding/Matcher.h"
#include "passes/folding/Ports.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

//===--- which layers ---------------------------------------------------===//

FailureOr<std::optional<Repetition>> Repetition::of(ModuleOp module) {
  Attribute attr = module->getAttr(graph::kFoldedAttr);
  if (!attr)
    return std::optional<Repetition>();
  auto numbers = dyn_cast<DenseI64ArrayAttr>(attr);
  constexpr int64_t kMost = graph::kMostLayers;
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

//===--- positions
//-----------------------------------------------------------===//

// All results of an op belong to its unit, in consecutive slots.
std::optional<Units::Place> Units::placeOf(Value value) const {
  if (auto result = dyn_cast<OpResult>(value)) {
    auto first = positionsOfOps.find(result.getOwner());
    if (first != positionsOfOps.end())
      return Place{first->second.unit,
                   first->second.slot + result.getResultNumber()};
  }
  auto place = placesOfOthers.find(value);
  if (place == placesOfOthers.end())
    return std::nullopt;
  return place->second;
}

void Units::place(Value value, Place place) {
  placesOfOthers[value] = place;
  setValue(value, place);
}

void Units::setValue(Value value, Place place) {
  std::vector<Value> &own = values[place.unit];
  if (own.size() <= place.slot)
    own.resize(std::max(place.slot + 1, slots));
  own[place.slot] = value;
}

void Units::replace(Value value, Value with) {
  Place known = placesOfOthers.at(value);
  placesOfOthers.erase(value);
  place(with, known);
}

//===--- attributes -----------------------------------------------------===//

Attribute folding::extrapolate(Attribute one, Attribute two, int64_t steps) {
  if (one == two)
    return one;
  if (auto a = dyn_cast_if_present<SplatElementsAttr>(one),
      b = dyn_cast_if_present<SplatElementsAttr>(two);
      a && b && a.getType() == b.getType() &&
      a.getElementType().isSignlessInteger()) {
    auto value = [](SplatElementsAttr attr) {
      return attr.getSplatValue<llvm::APInt>();
    };
    unsigned width = value(a).getBitWidth();
    // What wraps does not grow evenly in any other type.
    bool overflows[3] = {};
    llvm::APInt step = value(b).ssub_ov(value(a), overflows[0]),
                distance = step.smul_ov(
                    llvm::APInt(64, steps, true).sextOrTrunc(width),
                    overflows[1]),
                sum = value(a).sadd_ov(distance, overflows[2]);
    bool fits = width >= 64 || llvm::isIntN(width, steps);
    if (!fits || llvm::is_contained(overflows, true))
      return {};
    return DenseElementsAttr::get(a.getType(), sum);
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
  return one->getRawDictionaryAttrs() == other->getRawDictionaryAttrs() &&
         one->getName().compareOpProperties(one->getPropertiesStorage(),
                                            other->getPropertiesStorage());
}

//===--- state ----------------------------------------------------------===//

namespace {
/// The arguments, or the results, of a function: which unit each belongs to.
class PortUnits {
public:
  PortUnits(const Repetition &repetition, ArrayRef<int64_t> numbers,
            ArrayRef<Port> ports)
      : repetition(repetition), numbers(numbers), ports(ports),
        lists(numbers.size()) {
    owners.reserve(ports.size());
    for (auto [i, port] : llvm::enumerate(ports)) {
      owners.push_back(unitOf(port));
      if (owners.back() >= 0)
        lists[owners.back()].push_back(i);
    }
  }

  /// Whether each unit in the middle has the same, and none is there that
  /// should not be.
  bool areAlike() const {
    if (llvm::is_contained(owners, kForeign))
      return false;
    for (size_t unit = 2; unit + 1 < lists.size(); ++unit) {
      const std::vector<unsigned> &before = lists[unit - 1], &own = lists[unit];
      int64_t distance =
          (numbers[unit] - numbers[unit - 1]) * repetition.period;
      if (before.size() != own.size())
        return false;
      for (auto [a, b] : llvm::zip(before, own))
        if (a >= b || !correspond(a, b, distance))
          return false;
    }
    return true;
  }

  ArrayRef<int> units() const { return owners; }
  std::vector<std::vector<unsigned>> takeLists() { return std::move(lists); }

private:
  static constexpr int kForeign = -3; ///< of a unit that is not there

  int unitOf(const Port &port) const {
    auto number =
        port.name ? repetition.unitOf(port.name->layer) : std::nullopt;
    if (!number) {
      auto role = port.attrs
                      ? port.attrs.getAs<graph::RoleAttr>(graph::kRoleAttr)
                      : nullptr;
      return role && (role.getValue() == graph::Role::parameter ||
                      role.getValue() == graph::Role::optimizer)
                 ? Ownership::kOuter
                 : Ownership::kNone;
    }
    const int64_t *unit = llvm::lower_bound(numbers, *number);
    return unit != numbers.end() && *unit == *number
               ? static_cast<int>(unit - numbers.begin())
               : kForeign;
  }

  // Whether the second is what the first is, some layers further.
  bool correspond(unsigned one, unsigned other, int64_t distance) const {
    const Port &a = ports[one], &b = ports[other];
    if (a.type != b.type || b.name->layer - a.name->layer != distance ||
        !a.name->isLike(*b.name) || a.attrs.size() != b.attrs.size())
      return false;
    for (auto [a, b] : llvm::zip(a.attrs, b.attrs))
      if (a != b &&
          (a.getName() != b.getName() || a.getName() != graph::kStateAttr))
        return false;
    return true;
  }

  const Repetition &repetition;
  ArrayRef<int64_t> numbers;
  ArrayRef<Port> ports;
  std::vector<int> owners;
  std::vector<std::vector<unsigned>> lists; ///< by unit
};
} // namespace

std::optional<Units> Units::match(func::FuncOp function, const Ports &ports,
                                  const Repetition &repetition,
                                  ArrayRef<int64_t> numbers,
                                  std::string &reason) {
  PortUnits arguments(repetition, numbers, ports.arguments),
      results(repetition, numbers, ports.results);
  if (!arguments.areAlike() || !results.areAlike()) {
    reason = "their state differs";
    return std::nullopt;
  }
  Units units;
  units.ops.resize(numbers.size());
  units.values.resize(numbers.size());
  units.arguments = arguments.takeLists();
  units.results = results.takeLists();
  if (units.empty())
    return units;
  Ownership owners(function, ports, arguments.units(), results.units());
  if (!Matcher(units, owners, repetition, numbers, reason).run(function))
    return std::nullopt;
  return units;
}
