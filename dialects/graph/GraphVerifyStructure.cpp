// Verifiers of loops and clusters, and of the attributes that functions, their
// arguments and results, and calls carry.
#include "dialects/graph/FoldedAttrs.h"
#include "dialects/graph/GraphQuantOps.h"
#include "dialects/graph/GraphVerify.h"
#include "dialects/graph/LoopAttrs.h"
#include "dialects/graph/StoredLayout.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

//===--- loops and clusters ---------------------------------------------===//

// Error unless the body ends in a graph.yield of `types`. Called before the
// body itself is verified, so nothing about it is known but that it has an op.
static LogicalResult verifyYield(Operation *op, Block &body, TypeRange types) {
  auto yield = dyn_cast<YieldOp>(body.back());
  if (!yield)
    return op->emitOpError("expects its body to end in graph.yield");
  if (yield.getValues().getTypes() != types)
    return op->emitOpError() << "yields (" << yield.getValues().getTypes()
                             << ") where (" << types << ") is expected";
  return success();
}

// A misspelt name of an attribute of the op would be one that nothing reads.
static LogicalResult verifyNames(Operation *op) {
  for (NamedAttribute attr : op->getDiscardableAttrs())
    if (!attr.getName().strref().contains('.'))
      return op->emitOpError() << "has no attribute " << attr.getName();
  return success();
}

LogicalResult LoopOp::verify() {
  if (static_cast<int64_t>(getTrip()) < 1)
    return emitOpError() << "expects a trip count of at least 1, got "
                         << static_cast<int64_t>(getTrip());
  Type number = RankedTensorType::get({}, IntegerType::get(getContext(), 32));
  if (getCounted() && getOverflow())
    return emitOpError("expects to be `counted` or `overflow`, not both");
  if (getCounted() &&
      (getInits().empty() || getInits().front().getType() != number))
    return emitOpError() << "expects the number of iterations, " << number
                         << ", to be its first carried value";
  if (failed(verifyNames(*this)))
    return failure();
  Block &body = getBody().front();
  SmallVector<Type> expected{number};
  llvm::append_range(expected, getInits().getTypes());
  if (body.getArgumentTypes() != TypeRange(expected))
    return emitOpError() << "expects body arguments (" << TypeRange(expected)
                         << "), got (" << TypeRange(body.getArgumentTypes())
                         << ")";
  return verifyYield(*this, body, getResults().getTypes());
}

static LogicalResult verifyAccumulates(ClusterOp op, ArrayRef<int64_t> pairs) {
  if (pairs.size() % 2)
    return op.emitOpError(
        "expects accumulates to be pairs of an input and an output");
  llvm::SmallDenseSet<int64_t> inputs, outputs;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    int64_t input = pairs[i], output = pairs[i + 1];
    if (input < 0 || input >= static_cast<int64_t>(op.getInputs().size()) ||
        output < 0 || output >= static_cast<int64_t>(op.getResults().size()))
      return op.emitOpError() << "accumulates pair (" << input << ", " << output
                              << ") is outside its inputs and outputs";
    if (op.getInputs()[input].getType() != op.getResult(output).getType())
      return op.emitOpError() << "accumulates pair (" << input << ", " << output
                              << ") joins different types";
    if (!inputs.insert(input).second || !outputs.insert(output).second)
      return op.emitOpError() << "accumulates pair (" << input << ", " << output
                              << ") names an input or output twice";
  }
  return success();
}

LogicalResult ClusterOp::verify() {
  Block &body = getBody().front();
  if (getName().empty())
    return emitOpError("expects a name");
  if (body.getArgumentTypes() != getInputs().getTypes())
    return emitOpError() << "expects body arguments (" << getInputs().getTypes()
                         << "), got (" << TypeRange(body.getArgumentTypes())
                         << ")";
  for (Operation &op : body)
    if (!isa_and_nonnull<GraphDialect>(op.getDialect()) ||
        isa<LoopOp, ClusterOp>(op))
      return emitOpError()
             << "cannot hold '" << op.getName()
             << "'; a cluster has graph ops only, without regions";
  if (failed(verifyYield(*this, body, getResults().getTypes())))
    return failure();
  return verifyAccumulates(*this,
                           getAccumulates().value_or(ArrayRef<int64_t>()));
}

//===--- attributes -----------------------------------------------------===//

LogicalResult
LayerAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                  int64_t index, Direction) {
  return index >= 0 && index < kMostLayers
             ? success()
             : emitError() << "expects a layer in [0, " << kMostLayers
                           << "), got " << index;
}

// A program is found by its name at run time. Since the name begins with the
// kind, a module has one program of each kind without buckets.
static LogicalResult verifyProgram(Operation *op, Attribute attr) {
  auto function = dyn_cast<func::FuncOp>(op);
  auto program = dyn_cast<ProgramAttr>(attr);
  if (!function || !program)
    return op->emitError() << "expects '" << kProgramAttr
                           << "' on a func.func, a #graph.program<...>";
  StringRef kind = stringifyProgram(program.getValue()),
            name = function.getName();
  bool hasBuckets = llvm::is_contained(
      {Program::prefill, Program::decode, Program::embed}, program.getValue());
  if (hasBuckets ? name.starts_with((kind + "_").str()) : name == kind)
    return success();
  return op->emitError() << "expects the name @" << kind
                         << (hasBuckets ? "_BUCKET" : "") << " of a " << attr;
}

static LogicalResult verifyInFlight(Operation *op, Attribute attr) {
  auto loop = dyn_cast<LoopOp>(op);
  auto trips = dyn_cast<IntegerAttr>(attr);
  // The op itself is verified later.
  if (loop && loop.getTripAttr() && !loop.getCounted() && !loop.getOverflow() &&
      trips && trips.getType().isSignlessInteger(64) && trips.getInt() >= 1 &&
      trips.getInt() <= static_cast<int64_t>(loop.getTrip()))
    return success();
  return op->emitError() << "expects '" << kInFlightAttr
                         << "' on a graph.loop whose number of iterations is "
                            "fixed, an i64 from 1 to it";
}

LogicalResult GraphDialect::verifyOperationAttribute(Operation *op,
                                                     NamedAttribute attr) {
  StringRef name = attr.getName();
  if (name == kProgramAttr)
    return verifyProgram(op, attr.getValue());
  if (name == kLayerAttr &&
      (isa<FunctionOpInterface>(op) || !isa<LayerAttr>(attr.getValue())))
    return op->emitError() << "expects '" << kLayerAttr
                           << "' on an op in a function, a #graph.layer<...>";
  if (name == kInFlightAttr)
    return verifyInFlight(op, attr.getValue());
  // A misspelt name would change what the program computes.
  constexpr StringLiteral kOthers[] = {
      kLayerAttr,     kBlockAttr,  kMicrobatchSumAttr, kStopGradientAttr,
      kFoldedAttr,    kFlopsAttr,  kRepeatCountAttr,   kDocumentsPerTermAttr,
      kQuantizedAttr, kOriginAttr, kKeepF32Attr};
  if (!llvm::is_contained(kOthers, name))
    return op->emitError() << "unknown attribute '" << name << "' of '"
                           << op->getName() << "'";
  return success();
}

static LogicalResult verifyFunctionAttr(Operation *op, NamedAttribute attr) {
  StringRef name = attr.getName();
  if (name == kStateAttr || name == kInputAttr || name == kOutputAttr) {
    auto text = dyn_cast<StringAttr>(attr.getValue());
    if (!text || text.getValue().empty())
      return op->emitError() << "expects a name in '" << name << "'";
    return success();
  }
  if (name == kRoleAttr)
    return isa<RoleAttr>(attr.getValue())
               ? success()
               : op->emitError()
                     << "expects #graph<role ...> in '" << name << "'";
  if (name == kLayerAttr) {
    auto layer = dyn_cast<LayerAttr>(attr.getValue());
    return layer && layer.isForward()
               ? success()
               : op->emitError()
                     << "expects #graph.layer<INDEX> in '" << name << "'";
  }
  if (name == kQuantizedAttr)
    return QuantizedOrigin::read(attr.getValue())
               ? success()
               : op->emitError()
                     << "expects {source, part = \"values\" or \"scales\", "
                        "bits, group, shape} in '"
                     << name << "'";
  if (name == kStoredAttr)
    return readStored(attr.getValue())
               ? success()
               : op->emitError()
                     << "expects {bits = 4 or 8, group = a multiple of 32}, or "
                        "super_blocks of 4 to 6 bits with group = 256, in '"
                     << name << "'";
  if (name == kRepeatCountAttr) {
    auto times = dyn_cast<IntegerAttr>(attr.getValue());
    return times && times.getType().isSignlessInteger(64) &&
                   times.getInt() >= 1 && times.getInt() <= kMostLayers
               ? success()
               : op->emitError() << "expects a number of layers, 1 to "
                                 << kMostLayers << ", in '" << name << "'";
  }
  if (name == kDecayAttr || name == kFrozenAttr || name == kKeepF32Attr ||
      name == kMetricAttr)
    return isa<UnitAttr>(attr.getValue())
               ? success()
               : op->emitError() << "expects no value for '" << name << "'";
  return op->emitError() << "does not know the attribute '" << name
                         << "' of an argument or result";
}

LogicalResult GraphDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                     unsigned,
                                                     NamedAttribute attr) {
  return verifyFunctionAttr(op, attr);
}

LogicalResult GraphDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                        unsigned,
                                                        NamedAttribute attr) {
  return verifyFunctionAttr(op, attr);
}
