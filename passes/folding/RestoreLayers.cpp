#include "dialects/dist/DistOps.h"
#include "dialects/graph/FoldedAttrs.h"
#include "passes/folding/Extrapolate.h"
#include "passes/folding/Folding.h"
#include "passes/folding/LayerOrder.h"
#include "passes/folding/Ports.h"
#include "passes/folding/Units.h"
#include "passes/fusion/TopologicalOrder.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

namespace tessera {
#define GEN_PASS_DEF_RESTORELAYERS
#include "passes/folding/Passes.h.inc"
} // namespace tessera

namespace {
/// Copies the third of a function's four units for each unit that it
/// represents, after itself.
class Unfolder {
public:
  Unfolder(func::FuncOp function, Units &units, const Repetition &repetition)
      : function(function), units(units), copies(repetition.repeatCount() - 1) {
    for (std::vector<Value> &copy : copies)
      copy.resize(units.slotCount());
    ops.resize(copies.size());
    // Loops and returns are rebuilt.
    for (OpOperand *operand : units.leaving)
      if (!isa<graph::LoopOp, func::ReturnOp>(operand->getOwner()))
        leaving.push_back(operand);
  }

  LogicalResult run() {
    insertArguments();
    copyOps();
    expandLoops(function.getBody().front());
    for (unsigned number = 0; number < copies.size(); ++number)
      connect(number);
    insertResults();
    joinNeighbors();
    LayerOrder order(units, ops);
    for (Block *block : blocks)
      order.apply(*block);
    for (Block *block : blocks)
      if (Operation *op = LayerOrder::moveAfterProducers(*block))
        return op->emitError("folded layers are not alike: '")
               << op->getName() << "' reads what a later layer computes";
    return success();
  }

private:
  //===--- what a copy reads ----------------------------------------------===//

  // What copy `number` reads where the second unit reads `one` and the third
  // `two`. All copies have been made.
  Value mapped(unsigned number, Value one, Value two) const {
    auto before = units.placeOf(one), place = units.placeOf(two);
    if (one == two)
      return two;
    if (place && place->unit == 2)
      return copies[number][place->slot];
    if (place)
      return number == 0 ? units.at(2, place->slot)
                         : copies[number - 1][place->slot];
    // A value of the following unit, which is the next copy.
    return before && number + 1 < copies.size()
               ? copies[number + 1][before->slot]
               : two;
  }

  // Operands of the third unit from the following unit are now those of the
  // first copy.
  Value joined(Value one, Value two) const {
    auto before = units.placeOf(one);
    return one != two && before && before->unit == 2 && !units.placeOf(two)
               ? copies.front()[before->slot]
               : two;
  }

  // What reads of the last unit in the middle reads of the last copy.
  Value left(Value value) const {
    auto place = units.placeOf(value);
    return place && place->unit == 2 ? copies.back()[place->slot] : value;
  }

  void joinNeighbors() {
    for (auto [one, two] : llvm::zip(units.ops[1], units.ops[2]))
      for (auto [read, operand] : llvm::zip(readsOf(one), readsOf(two)))
        operand->set(joined(read->get(), operand->get()));
    for (OpOperand *operand : leaving)
      operand->set(left(operand->get()));
    for (const Units::Collector &table : units.collectors)
      spread(table);
  }

  // What a table has several times of the third unit it has of each copy.
  void spread(const Units::Collector &table) {
    for (unsigned number = 0; number < copies.size(); ++number)
      for (unsigned i = 0; i < table.size; ++i) {
        unsigned at = table.begin + (number + 1) * table.size + i;
        unsigned slot = units.placeOf(table.op->getOperand(at))->slot;
        table.op->setOperand(at, copies[number][slot]);
      }
  }

  //===--- ports ----------------------------------------------------------===//

  /// Groups of neighbors, each to be followed by as many for every copy.
  using Groups = SmallVector<std::pair<size_t, size_t>>; ///< begin, end
  static Groups groupsOf(ArrayRef<unsigned> positions) {
    Groups groups;
    for (size_t i = 0; i < positions.size(); ++i)
      if (i > 0 && positions[i] == positions[i - 1] + 1)
        ++groups.back().second;
      else
        groups.emplace_back(i, i + 1);
    return groups;
  }

  // The attributes of copy `number` of a port.
  static DictionaryAttr copied(DictionaryAttr one, DictionaryAttr two,
                               unsigned number) {
    return cast<DictionaryAttr>(extrapolate(one, two, number + 2));
  }

  void insertArguments() {
    ArrayRef<unsigned> second = units.arguments[1], third = units.arguments[2];
    SmallVector<unsigned> at;
    SmallVector<Type> types;
    SmallVector<DictionaryAttr> attrs;
    SmallVector<Location> locations;
    SmallVector<std::pair<unsigned, unsigned>> added; ///< copy, slot
    for (auto [begin, end] : groupsOf(third))
      for (unsigned number = 0; number < copies.size(); ++number)
        for (size_t slot = begin; slot < end; ++slot) {
          BlockArgument argument = function.getArgument(third[slot]);
          at.push_back(third[end - 1] + 1);
          types.push_back(argument.getType());
          attrs.push_back(copied(function.getArgAttrDict(second[slot]),
                                 function.getArgAttrDict(third[slot]), number));
          locations.push_back(
              extrapolate(function.getArgument(second[slot]).getLoc(),
                          argument.getLoc(), number + 2));
          added.emplace_back(number, slot);
        }
    function.insertArguments(at, types, attrs, locations);
    for (size_t i = 0; i < at.size(); ++i)
      copies[added[i].first][added[i].second] = function.getArgument(at[i] + i);
  }

  void insertResults() {
    Operation *ret = function.getBody().front().getTerminator();
    ArrayRef<unsigned> second = units.results[1], third = units.results[2];
    SmallVector<unsigned> at;
    SmallVector<Type> types;
    SmallVector<DictionaryAttr> attrs;
    SmallVector<Value> values;
    for (auto [begin, end] : groupsOf(third))
      for (unsigned number = 0; number < copies.size(); ++number)
        for (size_t i = begin; i < end; ++i) {
          at.push_back(third[end - 1] + 1);
          types.push_back(function.getResultTypes()[third[i]]);
          attrs.push_back(copied(function.getResultAttrDict(second[i]),
                                 function.getResultAttrDict(third[i]), number));
          values.push_back(mapped(number, ret->getOperand(second[i]),
                                  ret->getOperand(third[i])));
        }
    function.insertResults(at, types, attrs);
    SmallVector<Value> own(ret->getOperands()), all;
    for (auto [one, two] : llvm::zip(second, third))
      own[two] = joined(own[one], own[two]);
    size_t next = 0;
    for (unsigned i = 0; i <= own.size(); ++i) {
      for (; next < at.size() && at[next] == i; ++next)
        all.push_back(values[next]);
      if (i < own.size())
        all.push_back(isOfMiddle(i) ? own[i] : left(own[i]));
    }
    ret->setOperands(all);
  }

  bool isOfMiddle(unsigned result) const {
    return llvm::binary_search(units.results[1], result) ||
           llvm::binary_search(units.results[2], result);
  }

  //===--- ops ------------------------------------------------------------===//

  void copyOps() {
    for (auto [number, copy] : llvm::enumerate(ops))
      for (auto [one, two] : llvm::zip(units.ops[1], units.ops[2])) {
        Operation *made = copy.emplace_back(two->clone());
        made->setLoc(extrapolate(one->getLoc(), two->getLoc(), number + 2));
        if (!haveEqualAttributes(one, two))
          made->setAttrs(cast<DictionaryAttr>(
              extrapolate(one->getAttrDictionary(), two->getAttrDictionary(),
                          static_cast<int64_t>(number) + 2)));
        for (auto [from, to] : llvm::zip(two->getResults(), made->getResults()))
          copies[number][units.placeOf(from)->slot] = to;
      }
  }

  void connect(unsigned number) {
    for (auto [one, made] : llvm::zip(units.ops[1], ops[number]))
      for (auto [read, operand] : llvm::zip(readsOf(one), readsOf(made)))
        operand->set(mapped(number, read->get(), operand->get()));
  }

  //===--- loops ----------------------------------------------------------===//

  /// A value that an extended loop carries: that of a position, or its copy.
  struct Carried {
    unsigned position;
    std::optional<unsigned> copy = std::nullopt;
    unsigned second = 0; ///< the position of the second unit's
  };

  // The values of all copies follow each group of the third unit's values.
  SmallVector<Carried> extendedOrder(graph::LoopOp loop) const {
    SmallVector<unsigned> third;
    llvm::DenseMap<unsigned, unsigned> second; ///< by slot
    for (auto [i, result] : llvm::enumerate(loop.getResults())) {
      auto place = units.placeOf(result);
      if (place && place->unit == 1)
        second[place->slot] = i;
      if (place && place->unit == 2)
        third.push_back(i);
    }
    auto secondFor = [&](unsigned i) {
      auto place = units.placeOf(loop.getResult(i));
      return place ? second.lookup(place->slot) : 0;
    };
    SmallVector<Carried> order;
    unsigned next = 0;
    auto addUpTo = [&](unsigned position) {
      for (; next <= position; ++next)
        order.push_back({next, std::nullopt, secondFor(next)});
    };
    for (auto [begin, end] : groupsOf(third)) {
      addUpTo(third[end - 1]);
      for (unsigned number = 0; number < copies.size(); ++number)
        for (unsigned i : ArrayRef(third).slice(begin, end - begin))
          order.push_back({i, number, secondFor(i)});
    }
    if (loop.getNumResults() > 0)
      addUpTo(loop.getNumResults() - 1);
    return order;
  }

  Value yieldedFor(const Carried &entry, ValueRange values) const {
    Value value = values[entry.position];
    return entry.copy ? mapped(*entry.copy, values[entry.second], value)
                      : value;
  }

  Value initFor(graph::LoopOp loop, const Carried &entry) const {
    ValueRange inits = loop.getInits();
    Value init = inits[entry.position];
    if (entry.copy)
      return mapped(*entry.copy, inits[entry.second], init);
    auto place = units.placeOf(loop.getResult(entry.position));
    if (!place)
      return left(init);
    return place->unit == 2 ? joined(inits[entry.second], init) : init;
  }

  void expandLoops(Block &block) {
    blocks.push_back(&block);
    for (Operation &op : llvm::make_early_inc_range(block))
      if (auto loop = dyn_cast<graph::LoopOp>(op);
          loop && !units.contains(loop))
        expandLoop(loop);
  }

  // What a loop carries of the third unit it then carries of every copy.
  void expandLoop(graph::LoopOp loop) {
    SmallVector<Carried> order = extendedOrder(loop);
    Block &body = loop.getBody().front();
    if (order.size() == loop.getNumResults()) {
      for (OpOperand &init : loop->getOpOperands())
        init.set(left(init.get()));
      return expandLoops(body);
    }
    SmallVector<BlockArgument> carried(loop.getCarried());
    SmallVector<Value> inits, yielded;
    for (auto [i, entry] : llvm::enumerate(order)) {
      inits.push_back(initFor(loop, entry));
      if (!entry.copy)
        continue;
      BlockArgument like = carried[entry.position];
      Value made = body.insertArgument(1 + i, like.getType(), like.getLoc());
      if (auto place = units.placeOf(like))
        copies[*entry.copy][place->slot] = made;
    }
    expandLoops(body);
    for (const Carried &entry : order)
      yielded.push_back(yieldedFor(entry, loop.getYield().getValues()));
    loop.getYield()->setOperands(yielded);
    OpBuilder builder(loop);
    OperationState state(loop.getLoc(), loop->getName(), inits,
                         TypeRange(ValueRange(inits)), loop->getAttrs());
    state.addRegion()->takeBody(loop.getBody());
    replaceLoop(loop, cast<graph::LoopOp>(builder.create(state)), order);
  }

  // A list with an entry for each result, such as where each is on a mesh.
  static void extendLists(graph::LoopOp loop, graph::LoopOp made,
                          ArrayRef<Carried> order) {
    for (NamedAttribute attr : loop->getDiscardableAttrs()) {
      auto list = dyn_cast<ArrayAttr>(attr.getValue());
      if (!list || list.size() != loop.getNumResults())
        continue;
      SmallVector<Attribute> entries;
      for (const Carried &entry : order)
        entries.push_back(list[entry.position]);
      made->setDiscardableAttr(attr.getName(),
                               ArrayAttr::get(loop.getContext(), entries));
    }
  }

  void replaceLoop(graph::LoopOp loop, graph::LoopOp made,
                   ArrayRef<Carried> order) {
    extendLists(loop, made, order);
    for (auto [entry, result] : llvm::zip(order, made.getResults()))
      if (entry.copy)
        copies[*entry.copy]
              [units.placeOf(loop.getResult(entry.position))->slot] = result;
    for (auto [entry, result] : llvm::zip(order, made.getResults())) {
      if (entry.copy)
        continue;
      Value old = loop.getResult(entry.position);
      old.replaceAllUsesWith(result);
      if (units.placeOf(old))
        units.replace(old, result);
    }
    loop.erase();
  }

  func::FuncOp function;
  Units &units;
  std::vector<std::vector<Value>> copies;    ///< by slot, as in Units
  std::vector<std::vector<Operation *>> ops; ///< of copies, in the unit's order
  SmallVector<Block *> blocks;               ///< the function's and its loops'
  std::vector<OpOperand *> leaving;          ///< operands of other ops
};

// Whether there is a decomposed reduce-scatter. Its last sum fuses with the
// next layer, and its position among that one's ops is not that of others.
bool sendsProducts(ModuleOp module) {
  auto isProduct = [](dist::PermuteOp permute) {
    Operation *op = permute.getInput().getDefiningOp();
    if (auto convert = dyn_cast_if_present<graph::ConvertOp>(op))
      op = convert.getInput().getDefiningOp();
    return isa_and_present<graph::EinsumOp>(op);
  };
  return module
      .walk([&](dist::PermuteOp permute) {
        return isProduct(permute) ? WalkResult::interrupt()
                                  : WalkResult::advance();
      })
      .wasInterrupted();
}

struct RestoreLayers : tessera::impl::RestoreLayersBase<RestoreLayers> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<std::optional<Repetition>> repetition = Repetition::of(module);
    if (failed(repetition))
      return signalPassFailure();
    if (!*repetition)
      return markAllAnalysesPreserved();
    std::vector<std::pair<func::FuncOp, Units>> programs;
    for (auto function : module.getOps<func::FuncOp>()) {
      if (!function.isPublic())
        continue;
      FailureOr<Units> units = Units::matchFolded(function, **repetition);
      if (failed(units))
        return signalPassFailure();
      programs.emplace_back(function, std::move(*units));
    }
    if (keepLocal && !hasCollective(module))
      return;
    if (keepEqual && !sendsProducts(module) &&
        llvm::none_of(programs, [](const auto &program) {
          return program.second.needKernelsOfTheirOwn();
        }))
      return;
    for (auto &[function, units] : programs)
      if (failed(unfold(function, units, **repetition)))
        return signalPassFailure();
    module->removeAttr(graph::kFoldedAttr);
  }

private:
  static LogicalResult unfold(func::FuncOp function, Units &units,
                              const Repetition &repetition) {
    if (units.empty())
      return success();
    if (failed(verifySteps(function, units, repetition.units)))
      return failure();
    return Unfolder(function, units, repetition).run();
  }

  // That what grows from layer to layer does so up to the last copy.
  static LogicalResult verifySteps(func::FuncOp function, const Units &units,
                                   int64_t count) {
    auto growsTooFar = [&](Attribute one, Attribute two) {
      return !extrapolate(one, two, count - 3);
    };
    for (auto [one, two] : llvm::zip(units.ops[1], units.ops[2]))
      if (!haveEqualAttributes(one, two) &&
          growsTooFar(one->getAttrDictionary(), two->getAttrDictionary()))
        return two->emitError("has an attribute that grows too far over ")
               << count << " layers";
    for (auto [one, two] : llvm::zip(units.arguments[1], units.arguments[2]))
      if (growsTooFar(function.getArgAttrDict(one),
                      function.getArgAttrDict(two)))
        return function.emitError("argument ")
               << two << " has an attribute that grows too far over " << count
               << " layers";
    for (auto [one, two] : llvm::zip(units.results[1], units.results[2]))
      if (growsTooFar(function.getResultAttrDict(one),
                      function.getResultAttrDict(two)))
        return function.emitError("result ")
               << two << " has an attribute that grows too far over " << count
               << " layers";
    return success();
  }
};
} // namespace
