#include "passes/folding/Units.h"
#include "dialects/graph/FoldedAttrs.h"
#include "passes/folding/Extrapolate.h"
#include "passes/folding/Matcher.h"
#include "passes/folding/Ports.h"
#include "passes/fusion/FusionGraph.h"

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

int Repetition::unitOf(graph::LayerAttr layer,
                       ArrayRef<int64_t> numbers) const {
  int64_t past = layer ? layer.getIndex() - first : -1;
  if (past < 0 || past >= units * period)
    return kOuter;
  const int64_t *unit = llvm::lower_bound(numbers, past / period);
  return unit != numbers.end() && *unit == past / period
             ? static_cast<int>(unit - numbers.begin())
             : kForeign;
}

//===--- positions --------------------------------------------------------===//

// All results of an op belong to its unit, in consecutive slots.
std::optional<Units::Place> Units::placeOf(Value value) const {
  if (auto result = dyn_cast<OpResult>(value)) {
    auto first = positionsOfOps.find(result.getOwner());
    if (first != positionsOfOps.end())
      return Place{first->second.unit,
                   first->second.slot + result.getResultNumber()};
  }
  auto place = positionsOfOthers.find(value);
  if (place == positionsOfOthers.end())
    return std::nullopt;
  return place->second;
}

void Units::place(Value value, Place place) {
  positionsOfOthers[value] = place;
  setValue(value, place);
}

void Units::setValue(Value value, Place place) {
  std::vector<Value> &own = values[place.unit];
  if (own.size() <= place.slot)
    own.resize(std::max(place.slot + 1, slots));
  own[place.slot] = value;
}

void Units::replace(Value value, Value with) {
  Place known = positionsOfOthers.at(value);
  positionsOfOthers.erase(value);
  place(with, known);
}

//===--- operands -------------------------------------------------------===//

SmallVector<OpOperand *> folding::readsOf(Operation *op) {
  SmallVector<OpOperand *> reads;
  for (OpOperand &operand : op->getOpOperands())
    reads.push_back(&operand);
  if (op->hasTrait<OpTrait::IsIsolatedFromAbove>())
    return reads;
  for (Region &region : op->getRegions())
    region.walk([&](Operation *inner) {
      for (OpOperand &operand : inner->getOpOperands())
        if (!region.isAncestor(operand.get().getParentRegion()))
          reads.push_back(&operand);
    });
  return reads;
}

//===--- attributes -----------------------------------------------------===//

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
    if (llvm::is_contained(owners, Repetition::kForeign))
      return false;
    for (size_t unit = 2; unit + 1 < lists.size(); ++unit) {
      const std::vector<unsigned> &before = lists[unit - 1], &own = lists[unit];
      if (before.size() != own.size())
        return false;
      for (size_t i = 0; i < own.size(); ++i)
        if (before[i] >= own[i] ||
            !continues(ports[lists[1][i]], ports[lists[2][i]], ports[own[i]],
                       numbers[unit] - numbers[1]))
          return false;
    }
    return true;
  }

  ArrayRef<int> units() const { return owners; }
  std::vector<std::vector<unsigned>> takeLists() { return std::move(lists); }

private:
  int unitOf(const Port &port) const {
    int unit = repetition.unitOf(port.layer, numbers);
    auto role = port.attrs ? port.attrs.getAs<graph::RoleAttr>(graph::kRoleAttr)
                           : nullptr;
    bool isWeight = role && (role.getValue() == graph::Role::parameter ||
                             role.getValue() == graph::Role::optimizer);
    return unit == Repetition::kOuter && !isWeight ? Ownership::kNone : unit;
  }

  // Whether the third is what the first is, some units further.
  bool continues(const Port &one, const Port &two, const Port &other,
                 int64_t steps) const {
    int64_t distance = other.layer.getIndex() - one.layer.getIndex();
    return one.type == other.type && distance == steps * repetition.period &&
           extrapolate(one.attrs, two.attrs, steps) == other.attrs;
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
  Ownership owners(function, ports, arguments.units(), results.units(),
                   repetition, numbers);
  if (!Matcher(units, owners, repetition, numbers, reason).run(function))
    return std::nullopt;
  return units;
}

// Repeat counts are not compared.
static void removeMarks(func::FuncOp function) {
  auto without = [&](DictionaryAttr attrs) {
    NamedAttrList list(attrs);
    list.erase(graph::kRepeatCountAttr);
    return list.getDictionary(function.getContext());
  };
  SmallVector<DictionaryAttr> arguments, results;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    arguments.push_back(without(function.getArgAttrDict(i)));
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    results.push_back(without(function.getResultAttrDict(i)));
  function.setAllArgAttrs(arguments);
  function.setAllResultAttrs(results);
  function.walk([](Operation *op) { op->removeAttr(graph::kRepeatCountAttr); });
}

FailureOr<Units> Units::matchFolded(func::FuncOp function,
                                    const Repetition &repetition) {
  removeMarks(function);
  std::string reason;
  std::optional<Units> units = match(function, Ports(function), repetition,
                                     {0, 1, 2, repetition.units - 1}, reason);
  if (!units)
    return function.emitError("folded layers are not alike: ")
           << reason << "; " << graph::kFoldedAttr
           << " says that the third represents others; change the second and "
              "the third alike, or run restore-layers before";
  return std::move(*units);
}

// Whether the two ops need different kernels: an attribute differs that is not
// the layer, nor where a number is read from memory.
static bool needTwoKernels(Operation *one, Operation *other) {
  if (haveEqualAttributes(one, other))
    return false;
  NamedAttrList attrs(one->getAttrDictionary()),
      others(other->getAttrDictionary());
  attrs.erase(graph::kLayerAttr);
  others.erase(graph::kLayerAttr);
  if (attrs == others)
    return false;
  auto slice = dyn_cast<graph::SliceOp>(one);
  return !slice || !isReadInMemory(slice) ||
         !isReadInMemory(cast<graph::SliceOp>(other));
}

bool Units::needKernelsOfTheirOwn() const {
  auto isOfPlanning = [](const Collector &each) {
    auto concat = dyn_cast<graph::ConcatOp>(each.op);
    return concat && isStack(concat);
  };
  return !llvm::all_of(collectors, isOfPlanning) ||
         (!empty() && llvm::any_of(llvm::zip(ops[1], ops[2]), [](auto pair) {
           return needTwoKernels(std::get<0>(pair), std::get<1>(pair));
         }));
}
