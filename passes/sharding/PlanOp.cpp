// Plans one op: it is sharded along the most important sharding groups that it
// has, and otherwise as its operands are; an op on rows in device-local order
// follows its rows.
#include "dialects/graph/GraphQuantOps.h"
#include "passes/sharding/Cut.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

// The factor with that number among those of a dimension's loops.
Factor *Shardings::factorOf(Cut &cut, const OpRule::Dim &names,
                            unsigned number) const {
  for (unsigned name : names) {
    if (number < cut.loops[name].size())
      return &cut.loops[name][number];
    number -= cut.loops[name].size();
  }
  return nullptr;
}

//===--- cuts -------------------------------------------------------------===//

// Nothing shards integers (see Resharder) or dequantized matrices on the
// device: a factor of such an operand keeps the axes that shard it already, in
// their order.
bool Shardings::keepsSharding(Operation *op, const Cut &cut, unsigned loopDim,
                              unsigned factor, unsigned axis) const {
  SmallVector<unsigned, 2> axes = cut.loops[loopDim][factor].axes;
  axes.push_back(axis);
  for (auto [operand, dims] :
       llvm::zip(op->getOperands(), cut.computation.rule.operands)) {
    if (!isPinned(operand) || isSplat(operand) || isOpen(operand))
      continue;
    const Placement &have = asUsed(operand);
    for (auto [dim, names] : llvm::zip(have.dims, dims)) {
      unsigned k = factor;
      for (unsigned name : names) {
        if (name == loopDim &&
            (k >= dim.size() ||
             ArrayRef(dim[k].axes).take_front(axes.size()) != ArrayRef(axes)))
          return false;
        k += cut.loops[name].size();
      }
    }
  }
  return true;
}

// Keeps a sharding that an operand already has, which costs nothing; along a
// reduction only if all operands with the loop dimension have it.
void Shardings::inherit(Operation *op, unsigned axis, Cut &cut) const {
  const OpRule &rule = cut.computation.rule;
  for (auto [operand, dims] : llvm::zip(op->getOperands(), rule.operands)) {
    if (tensorType(operand).getRank() == 0)
      continue;
    auto place = findCut(asUsed(operand), axis);
    if (!place)
      continue;
    unsigned k = place->second;
    for (unsigned name : dims[place->first]) {
      if (k >= cut.loops[name].size()) {
        k -= cut.loops[name].size();
        continue;
      }
      Factor &factor = cut.loops[name][k];
      auto hasCut = [&](auto pair) {
        auto [value, others] = pair;
        bool uses = llvm::any_of(others, [&](const OpRule::Dim &dim) {
          return llvm::is_contained(dim, name);
        });
        return !uses || asUsed(value).uses(axis);
      };
      LoopKind kind = rule.loops[name].kind;
      if (kind == LoopKind::whole || kind == LoopKind::own ||
          numbersOwnRows(op, rule, name) || !fits(factor, axis) ||
          !keepsSharding(op, cut, name, k, axis) ||
          (kind == LoopKind::sum &&
           (rule.addend ||
            !llvm::all_of(llvm::zip(op->getOperands(), rule.operands),
                          hasCut))))
        break;
      factor.axes.push_back(axis);
      return;
    }
  }
}

// Nothing gathers a dequantized matrix: what reads it is sharded as it is.
bool Shardings::followMatrix(Operation *op, unsigned axis, Cut &cut) const {
  for (auto [operand, dims] :
       llvm::zip(op->getOperands(), cut.computation.rule.operands)) {
    if (!factors.isDequantized(operand))
      continue;
    auto place = findCut(asUsed(operand), axis);
    Factor *factor =
        place ? factorOf(cut, dims[place->first], place->second) : nullptr;
    if (!factor)
      continue;
    factor->axes.push_back(axis);
    return true;
  }
  return false;
}

std::optional<Cutting> Shardings::exceptionOf(Operation *op,
                                              unsigned axis) const {
  if (trial && trial->first == axis)
    return trial->second;
  const Exceptions *own = exceptionsAlong(axis);
  return own ? own->ofStep[classes.stepOf(op)] : std::nullopt;
}

void Shardings::chooseCuts(Operation *op, Cut &cut) const {
  const OpRule &rule = cut.computation.rule;
  for (const Factors::Atoms &atoms : cut.computation.loops) {
    DimPlacement &loopDim = cut.loops.emplace_back();
    for (Factors::Atom atom : atoms)
      loopDim.push_back({atom.size, {}});
  }
  // Adding partial values to a whole base would add the base on every device.
  auto mayAdd = [&](unsigned axis) {
    if (!rule.addend)
      return true;
    Value base = op->getOperand(*rule.addend);
    return isZero(base) || isOpen(base) ||
           llvm::is_contained(asUsed(base).partial, axis);
  };
  auto mayCut = [&](unsigned axis, unsigned name) {
    LoopKind kind = rule.loops[name].kind;
    return !numbersOwnRows(op, rule, name) && factors.isReadAsMade(op) &&
           (kind == LoopKind::parallel ||
            (kind == LoopKind::sum && mayAdd(axis)));
  };
  auto cutFactor = [&](unsigned axis, unsigned name, unsigned k) {
    Factor &factor = cut.loops[name][k];
    if (!fits(factor, axis) || !keepsSharding(op, cut, name, k, axis))
      return false;
    factor.axes.push_back(axis);
    return true;
  };
  auto claim = [&](unsigned axis, Color color) {
    for (auto [name, atoms] : llvm::enumerate(cut.computation.loops))
      if (mayCut(axis, name))
        for (auto [k, atom] : llvm::enumerate(atoms))
          if (atom.color == color && cutFactor(axis, name, k))
            return true;
    return false;
  };
  for (unsigned axis = 0; axis < mesh.rank(); ++axis) {
    if (mesh.size(axis) == 1 || followRows(op, axis, cut) ||
        followMatrix(op, axis, cut))
      continue;
    if (rule.numbersRows) {
      numberRows(op, axis, cut);
      continue;
    }
    if (auto cutting = exceptionOf(op, axis)) {
      if (cutting->kind == Cutting::Kind::factor && mayCut(axis, cutting->name))
        (void)cutFactor(axis, cutting->name, cutting->factor);
      continue;
    }
    bool claimed = llvm::any_of(strategy->colors[axis], [&](Color color) {
      return claim(axis, color);
    });
    // What dequantizes a shard of ZeRO gathers it first.
    if (!claimed && !isa<graph::DequantizeOp>(op))
      inherit(op, axis, cut);
  }
  inheritOrder(op, cut);
}

// Axes of a factor in the order in which an operand has them: nothing moves.
void Shardings::inheritOrder(Operation *op, Cut &cut) const {
  auto isSameSet = [](ArrayRef<unsigned> a, ArrayRef<unsigned> b) {
    return a.size() == b.size() && llvm::all_of(a, [&](unsigned axis) {
             return llvm::is_contained(b, axis);
           });
  };
  for (auto [operand, dims] :
       llvm::zip(op->getOperands(), cut.computation.rule.operands)) {
    if (tensorType(operand).getRank() == 0)
      continue;
    for (auto [dim, names] : llvm::zip(asUsed(operand).dims, dims)) {
      unsigned k = 0;
      for (unsigned name : names)
        for (Factor &factor : cut.loops[name]) {
          if (k < dim.size() && factor.axes.size() > 1 &&
              isSameSet(factor.axes, dim[k].axes))
            factor.axes = dim[k].axes;
          ++k;
        }
    }
  }
}

static bool isCutAlong(ArrayRef<DimPlacement> loops, unsigned axis) {
  return llvm::any_of(loops, [&](const DimPlacement &loopDim) {
    return llvm::any_of(loopDim, [&](const Factor &factor) {
      return llvm::is_contained(factor.axes, axis);
    });
  });
}

// Partial values pass through ops that are linear in them, as long as the
// result is not larger and the op is the only user.
void Shardings::keepParts(Operation *op, Cut &cut) const {
  const OpRule &rule = cut.computation.rule;
  if (isa<graph::EinsumOp>(op) || rule.addend)
    return;
  // An exception other than `parts` requires reduced operands.
  auto addsUp = [&](unsigned axis) {
    auto cutting = exceptionOf(op, axis);
    return cutting && cutting->kind != Cutting::Kind::parts;
  };
  for (auto [number, set] : llvm::enumerate(rule.linear)) {
    SmallVector<unsigned, 2> parts;
    bool fitting = true;
    int64_t largest = 0;
    for (unsigned i : set) {
      Value operand = op->getOperand(i);
      largest = std::max(largest, tensorType(operand).getNumElements());
      if (isZero(operand) || isOpen(operand))
        continue;
      // Partial values along axes that shard the op are reduce-scattered first.
      auto own = asUsed(operand).partial;
      llvm::erase_if(own, [&](unsigned axis) {
        return isCutAlong(cut.loops, axis) || addsUp(axis);
      });
      fitting &= !own.empty() && operand.hasOneUse() &&
                 (parts.empty() || parts == own);
      parts = own;
    }
    for (Value result : op->getResults())
      fitting &= tensorType(result).getNumElements() <= largest;
    if (!fitting || parts.empty())
      continue;
    cut.parts = parts;
    cut.linear = number;
    return;
  }
}

Placement Shardings::assemble(const Cut &cut, const OpRule::Dims &dims) const {
  Placement placement;
  for (const OpRule::Dim &names : dims) {
    DimPlacement &dim = placement.dims.emplace_back();
    for (unsigned name : names)
      llvm::append_range(dim, cut.loops[name]);
  }
  return placement;
}

// Rows on the devices of their groups are not sharded along the axes along
// which they were sent.
Placement Shardings::placeRows(const Cut &cut, const OpRule::Dims &dims,
                               bool isSent) const {
  Placement placement = assemble(cut, dims);
  if (isSent)
    for (DimPlacement &dim : placement.dims)
      for (Factor &factor : dim)
        llvm::erase_if(factor.axes, [&](unsigned axis) {
          return llvm::is_contained(cut.own, axis) &&
                 llvm::is_contained(strategy->exchanged, axis);
        });
  return placement;
}

// The axes of reductions over loop dimensions that are not in `dims`.
static SmallVector<unsigned, 2> summedAxes(const OpRule &rule,
                                           ArrayRef<DimPlacement> loops,
                                           const OpRule::Dims &dims) {
  SmallVector<unsigned, 2> axes;
  for (auto [name, loopDim] : llvm::enumerate(loops)) {
    bool inside = llvm::any_of(dims, [&](const OpRule::Dim &dim) {
      return llvm::is_contained(dim, name);
    });
    if (rule.loops[name].kind != LoopKind::sum || inside)
      continue;
    for (const Factor &factor : loopDim)
      llvm::append_range(axes, factor.axes);
  }
  return axes;
}

// A result without device-local order is partial along the axes of that order,
// except those that shard it.
static SmallVector<unsigned, 2> endedAxes(ArrayRef<unsigned> own,
                                          const Placement &made) {
  SmallVector<unsigned, 2> axes;
  for (unsigned axis : own)
    if (!made.uses(axis))
      axes.push_back(axis);
  return axes;
}

// Decides how the op is sharded, given the placements of its operands.
LogicalResult Shardings::decide(const Step &step, Plan &plan) {
  Operation *op = step.op;
  Cut cut{factors.of(op), {}, {}, {}, {}};
  const OpRule &rule = cut.computation.rule;
  if (failed(checkOwnRows(op, rule)))
    return failure();
  chooseCuts(op, cut);
  keepParts(op, cut);
  complete(op, cut, plan);
  ++decided;
  return success();
}

void Shardings::complete(Operation *op, const Cut &cut, Plan &plan) {
  const OpRule &rule = cut.computation.rule;
  int64_t room = roomOf(op);
  for (OpOperand &operand : op->getOpOperands()) {
    unsigned i = operand.getOperandNumber();
    Placement wanted = placeRows(cut, rule.operands[i], rule.sentOperand == i);
    if (cut.linear && llvm::is_contained(rule.linear[*cut.linear], i))
      wanted.partial = cut.parts;
    if (rule.addend == i)
      wanted.partial = summedAxes(rule, cut.loops, rule.operands[i]);
    llvm::sort(wanted.partial);
    if (!rule.numbersRows && takesOwnRows(operand, rule))
      wanted.own = cut.own;
    if (rule.isPointwise ||
        (llvm::is_contained(rule.ownOperands, i) && !isInteger(operand.get())))
      wanted.room = room;
    plan.wanted.push_back(pool.intern(std::move(wanted)));
  }
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    const OpRule::Dims &dims = rule.results[i];
    Placement made = placeRows(cut, dims, rule.sentResult == i);
    made.partial = summedAxes(rule, cut.loops, dims);
    if (rule.isPointwise || llvm::is_contained(rule.ownResults, i))
      made.own = cut.own;
    else
      llvm::append_range(made.partial, endedAxes(cut.own, made));
    if (rule.sentResult == i)
      made.room = roomToSend(op, *plan.wanted[0], made);
    else if (!rule.sentOperand &&
             (rule.isPointwise ||
              (llvm::is_contained(rule.ownResults, i) && !isInteger(result))))
      made.room = room;
    llvm::append_range(made.partial, cut.parts);
    llvm::sort(made.partial);
    plan.made.push_back(pool.intern(std::move(made)));
  }
}

// The operand's placement along other axes, plus what `cutting` requires of it:
// partial values, and integers that are already sharded.
Placement Shardings::suiting(OpOperand &operand,
                             const Factors::Computation &computation,
                             unsigned axis, const Cutting &cutting) const {
  const OpRule &rule = computation.rule;
  unsigned i = operand.getOperandNumber();
  Value value = operand.get();
  Placement placement = asUsed(value).without(axis);
  bool adds = false;
  if (cutting.kind == Cutting::Kind::parts) {
    adds = llvm::is_contained(rule.linear[cutting.name], i) && !isSplat(value);
  } else if (cutting.kind == Cutting::Kind::factor) {
    adds = rule.addend == i && rule.loops[cutting.name].kind == LoopKind::sum;
    if (isPinned(value) && !isSplat(value))
      for (auto [dim, names] : llvm::zip(placement.dims, rule.operands[i])) {
        unsigned k = cutting.factor;
        for (unsigned name : names) {
          if (name == cutting.name && k < dim.size())
            dim[k].axes.push_back(axis);
          k += computation.loops[name].size();
        }
      }
  }
  if (adds) {
    placement.partial.push_back(axis);
    llvm::sort(placement.partial);
  }
  return placement;
}

std::optional<Plan> Shardings::planIf(unsigned number, unsigned axis,
                                      const Cutting &cutting) {
  const Step &step = classes.step(number);
  Operation *op = step.op;
  Cut cut{factors.of(op), {}, {}, {}, {}};
  SmallVector<std::pair<ValueClass, const Placement *>> before, during;
  for (const Congruence::Use &use : step.uses) {
    ValueClass value = classes.settledLike(use.value).value_or(use.value);
    before.emplace_back(value, values[value]);
    during.emplace_back(value,
                        pool.intern(suiting(op->getOpOperand(use.operand),
                                            cut.computation, axis, cutting)));
  }
  for (auto [value, placement] : during)
    values[value] = placement;
  trial = {axis, cutting};
  chooseCuts(op, cut);
  keepParts(op, cut);
  trial.reset();
  for (auto [value, placement] : llvm::reverse(before))
    values[value] = placement;
  ++decided;
  bool isCut = isCutAlong(cut.loops, axis),
       passes = llvm::is_contained(cut.parts, axis);
  if (isCut != (cutting.kind == Cutting::Kind::factor) ||
      passes != (cutting.kind == Cutting::Kind::parts))
    return std::nullopt;
  Plan plan;
  complete(op, cut, plan);
  return plan;
}

LogicalResult Shardings::planOp(unsigned number) {
  const Step &step = classes.step(number);
  const Plan *decision = nullptr;
  Situation situation;
  if (step.kind) {
    situation.push_back(*step.kind);
    if (const auto &exceptions = strategy->exceptions)
      if (const auto &cutting = exceptions->ofStep[number])
        situation.push_back((uintptr_t(cutting->name) << 32 |
                             cutting->factor << 2 |
                             static_cast<unsigned>(cutting->kind)) +
                            1);
    for (const Congruence::Use &use : step.uses) {
      situation.push_back(reinterpret_cast<uintptr_t>(&asUsed(use.value)));
      situation.push_back(use.isSplat | use.isZero << 1 | use.hasOneUse << 2 |
                          (!open.empty() && open.contains(use.value)) << 3);
    }
    auto same = known.find(situation);
    decision = same == known.end() ? nullptr : same->second;
  }
  if (!decision) {
    Plan &plan = planStore.emplace_back();
    if (failed(decide(step, plan)))
      return failure();
    decision = &plan;
    if (step.kind)
      known.try_emplace(std::move(situation), decision);
  }
  plans[number] = decision;
  for (auto [use, wanted] : llvm::zip(step.uses, decision->wanted))
    if (!open.empty() && open.erase(use.value))
      values[use.value] = wanted;
  for (auto [value, made] : llvm::zip(step.results, decision->made))
    values[value] = made;
  return success();
}
