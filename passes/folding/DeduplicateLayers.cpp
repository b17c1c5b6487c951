#include "dialects/graph/FoldedAttrs.h"
#include "passes/folding/Folding.h"
#include "passes/folding/Ports.h"
#include "passes/folding/Units.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/Hashing.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

namespace tessera {
#define GEN_PASS_DEF_DEDUPLICATELAYERS
#include "passes/folding/Passes.h.inc"
} // namespace tessera

// Those that are kept: two with neighbors on both sides, which prove to
// restore-layers that a third one would be the same, and both ends.
static constexpr int64_t kKept = 4;

//===--- which layers ---------------------------------------------------===//

namespace {
/// A summary of each layer: the types of its state and the calls of its blocks.
class Kinds {
public:
  void add(func::FuncOp function, const Ports &ports) {
    for (const Port &port :
         llvm::concat<const Port>(ports.arguments, ports.results))
      add(port.layer, port.type.getAsOpaquePointer());
    function.walk([&](func::CallOp call) {
      add(call->getAttrOfType<graph::LayerAttr>(graph::kLayerAttr),
          call.getCalleeAttr().getAsOpaquePointer());
    });
  }

  /// Of equal layers the longest row, counting what folding would remove.
  /// `apart` layers at both ends of a row are kept as they are.
  std::optional<Repetition> repetition(int64_t apart) const {
    std::optional<Repetition> best;
    int64_t most = 0, count = kinds.size();
    auto isLike = [&](int64_t one, int64_t other) {
      return kinds[one] && kinds[other] && *kinds[one] == *kinds[other];
    };
    for (int64_t period = 1; period * (kKept + 1) <= count; ++period)
      for (int64_t first = 0, end; first + period <= count; first = end) {
        for (end = first + period; end < count && isLike(end, end - period);)
          ++end;
        int64_t units = (end - first - 2 * apart) / period;
        int64_t removed = (units - kKept) * period;
        if (removed > most)
          most = removed, best = Repetition{first + apart, period, units};
        // A row may begin with the end of another.
        end = std::max(first + 1, end - period + 1);
      }
    return best;
  }

private:
  void add(graph::LayerAttr layer, const void *what) {
    if (!layer)
      return;
    auto index = static_cast<size_t>(layer.getIndex());
    if (kinds.size() <= index)
      kinds.resize(index + 1);
    kinds[index] = llvm::hash_combine(kinds[index].value_or(llvm::hash_code(0)),
                                      layer.isForward(), what);
  }

  std::vector<std::optional<llvm::hash_code>> kinds; ///< by layer
};

//===--- one function ---------------------------------------------------===//

/// Takes the units between the third and the last out of a function.
class Folder {
public:
  Folder(func::FuncOp function, Units &units, int64_t times)
      : function(function), units(units), last(units.count() - 2),
        times(IntegerAttr::get(IntegerType::get(function.getContext(), 64),
                               times)) {}

  void run() {
    mark();
    if (units.empty())
      return;
    Operation *ret = function.getBody().front().getTerminator();
    for (OpOperand *operand : units.leaving)
      operand->set(units.at(2, units.placeOf(operand->get())->slot));
    for (auto [op, from] : llvm::zip(units.ops[2], units.ops[last]))
      for (auto [operand, following] : llvm::zip(readsOf(op), readsOf(from)))
        join(*operand, following->get());
    for (auto [i, from] : llvm::zip(units.results[2], units.results[last]))
      join(ret->getOpOperand(i), ret->getOperand(from));
    // Tables repeat the value of the third unit, and keep their shapes.
    for (const Units::Collector &table : units.collectors)
      for (OpOperand &operand : table.op->getOpOperands())
        if (auto place = units.placeOf(operand.get()); isRemoved(place))
          operand.set(units.at(2, place->slot));
    eraseResults(ret);
    for (graph::LoopOp loop : units.loops)
      eraseCarried(loop);
    eraseOps();
    eraseArguments();
  }

  // All attributes of a function are set at once.
  void mark() {
    if (units.empty())
      return;
    for (Operation *op : units.ops[2])
      if (!broadcastsGlobal(op))
        op->setAttr(graph::kRepeatCountAttr, times);
    if (ArrayAttr all = function.getArgAttrsAttr())
      function.setArgAttrsAttr(marked(all, units.arguments[2]));
    if (ArrayAttr all = function.getResAttrsAttr())
      function.setResAttrsAttr(marked(all, units.results[2]));
  }

private:
  // CSE joins these of all layers; with a mark the third would keep its own.
  bool broadcastsGlobal(Operation *op) const {
    auto broadcast = dyn_cast<graph::BroadcastOp>(op);
    return broadcast && !units.placeOf(broadcast.getInput());
  }

  bool isRemoved(std::optional<Units::Place> place) const {
    return place && place->unit > 2;
  }

  // Operands of the third unit from the following unit become those of the last
  // unit in the middle.
  void join(OpOperand &operand, Value following) {
    if (isRemoved(units.placeOf(operand.get())))
      operand.set(following);
  }

  void eraseResults(Operation *ret) {
    llvm::BitVector gone = removed(units.results, function.getNumResults());
    ret->eraseOperands(gone);
    function.eraseResults(gone);
  }

  // Lists with an entry for each result.
  static void narrowLists(graph::LoopOp loop, const llvm::BitVector &gone) {
    for (NamedAttribute attr : llvm::to_vector(loop->getDiscardableAttrs())) {
      auto list = dyn_cast<ArrayAttr>(attr.getValue());
      if (!list || list.size() != gone.size())
        continue;
      SmallVector<Attribute> kept;
      for (auto [i, entry] : llvm::enumerate(list))
        if (!gone.test(i))
          kept.push_back(entry);
      loop->setDiscardableAttr(attr.getName(),
                               ArrayAttr::get(loop.getContext(), kept));
    }
  }

  void eraseCarried(graph::LoopOp loop) {
    OpBuilder builder(loop);
    Block &body = loop.getBody().front();
    llvm::BitVector gone(loop.getNumResults());
    llvm::DenseMap<unsigned, Value> initOfLast; ///< by slot
    for (auto [i, result] : llvm::enumerate(loop.getResults()))
      if (auto place = units.placeOf(result); isRemoved(place)) {
        gone.set(i);
        if (place->unit == last)
          initOfLast[place->slot] = loop.getInits()[i];
      }
    SmallVector<Value> inits, kept;
    for (auto [i, result] : llvm::enumerate(loop.getResults())) {
      if (gone.test(i))
        continue;
      if (auto place = units.placeOf(result); place && place->unit == 2)
        join(loop->getOpOperand(i), initOfLast.lookup(place->slot));
      inits.push_back(loop.getInits()[i]);
      kept.push_back(result);
    }
    if (gone.none())
      return;
    loop.getYield()->eraseOperands(gone);
    OperationState state(loop.getLoc(), loop->getName(), inits,
                         TypeRange(ValueRange(kept)), loop->getAttrs());
    state.addRegion();
    auto made = cast<graph::LoopOp>(builder.create(state));
    narrowLists(made, gone);
    made.getBody().takeBody(loop.getBody());
    for (int i = gone.find_last(); i >= 0; i = gone.find_prev(i)) {
      // Only ops that go use it.
      body.getArgument(i + 1).dropAllUses();
      body.eraseArgument(i + 1);
    }
    for (auto [from, to] : llvm::zip(kept, made.getResults())) {
      from.replaceAllUsesWith(to);
      if (units.placeOf(from))
        units.replace(from, to);
    }
    for (int i : gone.set_bits())
      loop.getResult(i).dropAllUses();
    loop.erase();
  }

  void eraseOps() {
    for (unsigned unit = 3; unit <= last; ++unit)
      for (Operation *op : units.ops[unit])
        op->dropAllReferences();
    for (unsigned unit = 3; unit <= last; ++unit)
      for (Operation *op : units.ops[unit]) {
        op->dropAllUses();
        op->erase();
      }
  }

  void eraseArguments() {
    llvm::BitVector gone = removed(units.arguments, function.getNumArguments());
    function.eraseArguments(gone);
  }

  llvm::BitVector removed(const std::vector<std::vector<unsigned>> &lists,
                          unsigned count) const {
    llvm::BitVector gone(count);
    for (unsigned unit = 3; unit <= last; ++unit)
      for (unsigned i : lists[unit])
        gone.set(i);
    return gone;
  }

  ArrayAttr marked(ArrayAttr all, ArrayRef<unsigned> numbers) const {
    SmallVector<Attribute> attrs(all.getValue());
    for (unsigned i : numbers) {
      NamedAttrList list(cast<DictionaryAttr>(attrs[i]));
      list.set(graph::kRepeatCountAttr, times);
      attrs[i] = list.getDictionary(times.getContext());
    }
    return ArrayAttr::get(times.getContext(), attrs);
  }

  func::FuncOp function;
  Units &units;
  unsigned last; ///< of those in the middle
  IntegerAttr times;
};

struct DeduplicateLayers
    : tessera::impl::DeduplicateLayersBase<DeduplicateLayers> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<std::optional<Repetition>> folded = Repetition::of(module);
    if (failed(folded))
      return signalPassFailure();
    if (*folded) {
      if (failed(markAgain(**folded)))
        signalPassFailure();
      return;
    }
    Kinds kinds;
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isPublic())
        kinds.add(function, Ports(function));
    std::optional<Repetition> found = kinds.repetition(keepEnds ? 1 : 0);
    if (found && fold(*found))
      return;
    if (explain && !found)
      module.emitRemark("layers are not folded: no ")
          << (keepEnds ? "seven" : "five")
          << " in a row have the same state and blocks";
    markAllAnalysesPreserved();
  }

private:
  bool fold(const Repetition &repetition) {
    std::vector<std::pair<func::FuncOp, Units>> programs;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (!function.isPublic())
        continue;
      std::string reason;
      std::optional<Units> units = Units::match(
          function, Ports(function), repetition,
          llvm::to_vector(llvm::seq<int64_t>(0, repetition.units)), reason);
      if (!units) {
        if (explain)
          function.emitRemark("layers are not folded: ") << reason;
        return false;
      }
      programs.emplace_back(function, std::move(*units));
    }
    for (auto &[function, units] : programs)
      Folder(function, units, repetition.repeatCount()).run();
    repetition.writeTo(getOperation());
    return true;
  }

  // Ops and state that were added since, such as gradients and moments.
  LogicalResult markAgain(const Repetition &repetition) {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (!function.isPublic())
        continue;
      FailureOr<Units> units = Units::matchFolded(function, repetition);
      if (failed(units))
        return failure();
      Folder(function, *units, repetition.repeatCount()).mark();
    }
    return success();
  }
};
} // namespace
