#include "passes/sharding/VerifyComputation.h"
#include "passes/sharding/Shardings.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

using Axes = SmallVector<unsigned, 2>;

static std::string side(StringRef what, unsigned number) {
  return (what + " " + Twine(number)).str();
}

namespace {
/// One op under its rule.
class Computation {
public:
  Computation(Operation *op, const OpRule &rule, const PlacementReader &reader)
      : op(op), rule(rule), reader(reader), cuts(rule.loops.size()) {}

  LogicalResult verify() {
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      if (failed(readLoops(operand, rule.operands[i], side("operand", i),
                           rule.sentOperand == i)))
        return failure();
    for (auto [i, result] : llvm::enumerate(op->getResults()))
      if (failed(readLoops(result, rule.results[i], side("result", i),
                           rule.sentResult == i)))
        return failure();
    if (failed(readOwnRows()) || failed(verifyOwnCuts()) ||
        failed(verifySentRows()) || failed(verifyRoom()))
      return failure();
    FailureOr<Axes> kept = keptParts();
    return failed(kept) ? failure() : verifyResults(*kept);
  }

private:
  LogicalResult readLoops(Value value, const OpRule::Dims &dims,
                          const std::string &name, bool isSent);
  LogicalResult readLoopDim(unsigned loopDim, DimPlacement cut,
                            const std::string &name);
  LogicalResult readOwnRows();
  LogicalResult verifyOwnCuts() const;
  LogicalResult verifySentRows() const;
  LogicalResult verifyRoom() const;
  bool isCutAlong(unsigned axis, ArrayRef<unsigned> loops) const;
  Axes summedOutside(const OpRule::Dims &dims) const;
  FailureOr<SmallVector<Axes>> partsOfOperands() const;
  FailureOr<Axes> keptParts() const;
  LogicalResult requireUncut(const Axes &kept, unsigned operand) const;
  LogicalResult verifyResults(const Axes &kept) const;

  /// How a loopDim is sharded, and the operand or result that said so first.
  struct Cut {
    std::optional<DimPlacement> factors;
    std::string by;
  };

  Operation *op;
  const OpRule &rule;
  const PlacementReader &reader;
  std::vector<Cut> cuts;
  Axes own; ///< of device-local row order
};
} // namespace

//===--- loops ------------------------------------------------------------===//

LogicalResult Computation::readLoopDim(unsigned loopDim, DimPlacement cut,
                                       const std::string &name) {
  normalizeFactors(cut, reader.mesh);
  bool isCut = llvm::any_of(
      cut, [](const Factor &factor) { return !factor.axes.empty(); });
  if (isCut && rule.loops[loopDim].kind == LoopKind::whole)
    return op->emitOpError() << name << " is sharded as " << reader.text(cut)
                             << ", but the op requires all of it";
  Cut &known = cuts[loopDim];
  if (!known.factors) {
    known = {std::move(cut), name};
    return success();
  }
  if (*known.factors == cut)
    return success();
  return op->emitOpError() << name << " is sharded as " << reader.text(cut)
                           << ", but " << known.by << ", the same loop, as "
                           << reader.text(*known.factors);
}

// From the fastest-varying loop dimension on. Skips rows that were sent, which
// are sharded differently.
LogicalResult Computation::readLoops(Value value, const OpRule::Dims &dims,
                                     const std::string &name, bool isSent) {
  const Placement &place = reader.of(value);
  for (auto [d, loops] : llvm::enumerate(dims)) {
    if (isSent && d == 0)
      continue;
    std::string where = name + " dimension " + std::to_string(d);
    DimPlacement rest = place.dims[d];
    for (size_t k = loops.size(); k-- > 0;) {
      int64_t size = rule.loops[loops[k]].size;
      auto split = splitFactors(rest, size, reader.mesh);
      if (!split)
        return op->emitOpError()
               << where << " is sharded as " << reader.text(place.dims[d])
               << ", which does not shard its factor of " << size;
      rest = split->first;
      if (failed(readLoopDim(loops[k], split->second,
                             loops.size() == 1
                                 ? where
                                 : where + " factor " + std::to_string(k))))
        return failure();
    }
  }
  return success();
}

//===--- device-local row order -------------------------------------------===//

// The axes of device-local row order, equal for all operands with rows.
LogicalResult Computation::readOwnRows() {
  if (rule.numbersRows)
    own = reader.of(op->getResult(0)).own;
  std::optional<unsigned> first;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    const Placement &place = reader.of(operand);
    bool takes = rule.isPointwise ? !isSplat(operand)
                                  : llvm::is_contained(rule.ownOperands, i);
    if (!takes && !place.own.empty())
      return op->emitOpError()
             << side("operand", i) << " is " << reader.text(place)
             << ", but the op requires rows in one order for all devices";
    if (!takes)
      continue;
    if (first && place.own != own)
      return op->emitOpError()
             << side("operand", i) << " is " << reader.text(place) << ", but "
             << side("operand", *first) << " has device-local row order along "
             << reader.text(own);
    if (!first)
      first = i, own = place.own;
  }
  return success();
}

bool Computation::isCutAlong(unsigned axis, ArrayRef<unsigned> loops) const {
  return llvm::any_of(loops, [&](unsigned loopDim) {
    return cuts[loopDim].factors &&
           llvm::any_of(*cuts[loopDim].factors, [&](const Factor &factor) {
             return llvm::is_contained(factor.axes, axis);
           });
  });
}

// Axes of device-local row order may shard `own` loop dimensions, and must if
// the op has groups; no other axis may.
LogicalResult Computation::verifyOwnCuts() const {
  for (auto [loopDim, cut] : llvm::enumerate(cuts)) {
    if (rule.loops[loopDim].kind != LoopKind::own || !cut.factors)
      continue;
    for (const Factor &factor : *cut.factors)
      for (unsigned axis : factor.axes)
        if (!llvm::is_contained(own, axis))
          return op->emitOpError()
                 << cut.by << " is sharded along " << reader.text(axis)
                 << ", along which all devices have one row order";
  }
  if (!rule.groups || rule.numbersRows)
    return success();
  SmallVector<unsigned> loops;
  for (auto [loopDim, cut] : llvm::enumerate(cuts))
    if (rule.loops[loopDim].kind == LoopKind::own)
      loops.push_back(loopDim);
  for (unsigned axis : own)
    if (!isCutAlong(axis, loops))
      return op->emitOpError("has device-local row order along ")
             << reader.text(axis) << ", which shards neither rows nor groups";
  return success();
}

// Rows on the devices of their groups are sharded like those on the devices of
// their tokens, except along axes of device-local order.
LogicalResult Computation::verifySentRows() const {
  if (!rule.sentOperand && !rule.sentResult)
    return success();
  Value sent = rule.sentOperand ? op->getOperand(*rule.sentOperand)
                                : op->getResult(*rule.sentResult),
        home = rule.sentOperand ? op->getResult(0) : op->getOperand(0);
  Placement there = reader.of(sent), here = reader.of(home);
  DimPlacement expected = here.dims[0], found = there.dims[0];
  for (Factor &factor : expected)
    llvm::erase_if(factor.axes, [&](unsigned axis) {
      return llvm::is_contained(own, axis) && !there.uses(axis);
    });
  normalizeFactors(expected, reader.mesh);
  normalizeFactors(found, reader.mesh);
  if (found == expected)
    return success();
  return op->emitOpError("has rows sharded as ")
         << reader.text(there.dims[0]) << " on the devices of their groups, "
         << "but as " << reader.text(here.dims[0])
         << " on those of their tokens";
}

// All rows that an op reads and makes have buffers of one size; an exchange
// alone changes it. A constant may have any.
LogicalResult Computation::verifyRoom() const {
  if (rule.sentOperand || rule.sentResult || op->getNumOperands() == 0)
    return success();
  std::optional<int64_t> room;
  auto isSame = [&](Value value, bool isRows) {
    if (!isRows || (!rule.isPointwise && isInteger(value)))
      return reader.of(value).room == 0;
    return *(room = room.value_or(reader.of(value).room)) ==
           reader.of(value).room;
  };
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    if (!isSame(operand,
                rule.isPointwise || llvm::is_contained(rule.ownOperands, i)))
      return op->emitOpError()
             << side("operand", i) << " is " << reader.text(reader.of(operand))
             << ", but other rows have another room";
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    if (!isSame(result,
                rule.isPointwise || llvm::is_contained(rule.ownResults, i)))
      return op->emitOpError()
             << side("result", i) << " is " << reader.text(reader.of(result))
             << ", but other rows have another room";
  return success();
}

//===--- partial values ---------------------------------------------------===//

// The axes that shard reductions over loop dimensions that `dims` lacks.
Axes Computation::summedOutside(const OpRule::Dims &dims) const {
  Axes axes;
  for (auto [loopDim, cut] : llvm::enumerate(cuts)) {
    bool inside = llvm::any_of(dims, [&](const OpRule::Dim &dim) {
      return llvm::is_contained(dim, loopDim);
    });
    if (rule.loops[loopDim].kind != LoopKind::sum || inside || !cut.factors)
      continue;
    for (const Factor &factor : *cut.factors)
      llvm::append_range(axes, factor.axes);
  }
  llvm::sort(axes);
  return axes;
}

// The axes along which each operand is partial, except those along which an
// addend must be.
FailureOr<SmallVector<Axes>> Computation::partsOfOperands() const {
  SmallVector<Axes> parts;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    const Placement &place = reader.of(operand);
    if (!place.partial.empty() && place.kind != dist::ReduceKind::sum)
      return op->emitOpError()
             << side("operand", i) << " is " << reader.text(place)
             << ", but an operand can only be partial with kind sum";
    Axes &own = parts.emplace_back(place.partial);
    if (rule.addend != i)
      continue;
    for (unsigned axis : summedOutside(rule.operands[i])) {
      if (!llvm::is_contained(own, axis))
        return op->emitOpError()
               << side("operand", i) << " is " << reader.text(place)
               << ", but every device along " << reader.text(axis)
               << " adds a partial value to it";
      llvm::erase(own, axis);
    }
  }
  return parts;
}

// No operand may be sharded along the axes of partial values that the op keeps.
LogicalResult Computation::requireUncut(const Axes &kept,
                                        unsigned operand) const {
  for (const Cut &cut : cuts)
    if (cut.factors)
      for (const Factor &factor : *cut.factors)
        for (unsigned axis : factor.axes)
          if (llvm::is_contained(kept, axis))
            return op->emitOpError()
                   << side("operand", operand) << " is partial along "
                   << reader.text(axis) << ", but " << cut.by
                   << " is sharded along it";
  return success();
}

// The axes along which partial values pass through the op.
FailureOr<Axes> Computation::keptParts() const {
  FailureOr<SmallVector<Axes>> parts = partsOfOperands();
  if (failed(parts))
    return failure();
  auto partial =
      llvm::find_if(*parts, [](const Axes &own) { return !own.empty(); });
  if (partial == parts->end())
    return Axes();
  unsigned first = partial - parts->begin();
  auto isKeptBy = [&](ArrayRef<unsigned> set) {
    return llvm::all_of(llvm::enumerate(*parts), [&](const auto &own) {
      return own.value() ==
             (llvm::is_contained(set, own.index()) ? *partial : Axes());
    });
  };
  if (llvm::any_of(rule.linear, isKeptBy))
    return failed(requireUncut(*partial, first)) ? FailureOr<Axes>(failure())
                                                 : *partial;
  InFlightDiagnostic error = op->emitOpError();
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    error << (i ? ", " : "") << side("operand", i) << " is "
          << reader.text(reader.of(operand));
  return error << "; the op is not linear in such partial values";
}

LogicalResult Computation::verifyResults(const Axes &kept) const {
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    // Zeros are also the sum of zeros.
    if (isZero(result))
      continue;
    const Placement &place = reader.of(result);
    Axes expected = summedOutside(rule.results[i]);
    llvm::append_range(expected, kept);
    bool ownRows = rule.isPointwise || llvm::is_contained(rule.ownResults, i);
    for (unsigned axis : own)
      if (!ownRows && !place.withoutPartial().uses(axis))
        expected.push_back(axis);
    if (place.own != (ownRows ? own : Axes()))
      return op->emitOpError()
             << side("result", i) << " is " << reader.text(place)
             << ", but the op produces device-local row order along "
             << reader.text(ownRows ? own : Axes());
    llvm::sort(expected);
    if (place.partial != expected || place.kind != dist::ReduceKind::sum)
      return op->emitOpError()
             << side("result", i) << " is " << reader.text(place)
             << ", but the op produces "
             << (expected.empty()
                     ? "no partial value"
                     : "partial values along " + reader.text(expected));
  }
  return success();
}

LogicalResult sharding::verifyComputation(Operation *op, const OpRule &rule,
                                          const PlacementReader &reader) {
  return Computation(op, rule, reader).verify();
}
