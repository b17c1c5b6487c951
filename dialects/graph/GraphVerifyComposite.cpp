// Verifiers of composites, loops and clusters, and of the attributes that
// functions, their arguments and results, and calls carry.
#include "dialects/graph/FoldedAttrs.h"
#include "dialects/graph/GraphQuantOps.h"
#include "dialects/graph/GraphVerify.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

//===--- norms, rope, dropout -------------------------------------------===//

// A norm works along the last dimension with one parameter an element.
static LogicalResult verifyNorm(Operation *op, Value input, Value weight,
                                Value bias, double eps) {
  RankedTensorType type = tensorType(input);
  if (type.getRank() == 0)
    return op->emitOpError("expects an input of rank 1 or more");
  if (!(eps >= 0.0) || !std::isfinite(eps))
    return op->emitOpError() << "expects a finite eps of at least 0";
  if (failed(expectShape(op, "a weight", tensorType(weight),
                         type.getShape().take_back())))
    return failure();
  if (!bias)
    return success();
  if (failed(expectShape(op, "a bias", tensorType(bias),
                         type.getShape().take_back())))
    return failure();
  return expectSameElement(op, "weight", tensorType(weight), "bias",
                           tensorType(bias));
}

LogicalResult LayerNormOp::verify() {
  return verifyNorm(*this, getInput(), getWeight(), getBias(),
                    getEps().convertToDouble());
}

LogicalResult RmsNormOp::verify() {
  if (!getOffset().isFinite())
    return emitOpError("expects a finite offset");
  return verifyNorm(*this, getInput(), getWeight(), {},
                    getEps().convertToDouble());
}

LogicalResult SoftmaxOp::verify() {
  if (tensorType(getInput()).getRank() == 0)
    return emitOpError("expects an input of rank 1 or more");
  return success();
}

LogicalResult RopeOp::verify() {
  RankedTensorType input = tensorType(getInput());
  if (failed(expectRank(*this, "an input", input, 4)))
    return failure();
  int64_t headDim = input.getDimSize(3);
  if (headDim % 2)
    return emitOpError() << "expects an even head_dim, got " << headDim;
  if (static_cast<int64_t>(getFrequencies().size()) != headDim / 2)
    return emitOpError() << "expects " << headDim / 2
                         << " frequencies for head_dim " << headDim << ", got "
                         << getFrequencies().size();
  if (!llvm::all_of(getFrequencies(),
                    [](double f) { return std::isfinite(f); }))
    return emitOpError("expects finite frequencies");
  if (!getScaling().isFinite())
    return emitOpError("expects a finite scaling");
  if (getPositions())
    return expectShape(*this, "positions", tensorType(getPositions()),
                       input.getShape().take_front(2));
  return success();
}

LogicalResult DropoutOp::verify() {
  double rate = getRate().convertToDouble();
  if (!(rate >= 0.0 && rate < 1.0))
    return emitOpError() << "expects a rate in [0, 1), got " << rate;
  return expectStream(*this, getStream());
}

//===--- attention ------------------------------------------------------===//

// A bound of what goes through tanh.
template <typename Op> static LogicalResult verifyCap(Op op) {
  std::optional<llvm::APFloat> cap = op.getCap();
  if (cap && !(cap->isFinite() && cap->convertToDouble() > 0))
    return op.emitOpError("expects a cap above 0");
  return success();
}

// Kernels bound scores before they scale them.
template <typename Op> static LogicalResult verifyScores(Op op) {
  if (!op.getScale().isFinite())
    return op.emitOpError("expects a finite scale");
  if (op.getCap() && op.getScale().convertToDouble() <= 0)
    return op.emitOpError("expects a scale above 0 where scores have a cap");
  return verifyCap(op);
}

// What attention and its gradient have in common.
template <typename Op> static LogicalResult verifyAttention(Op op) {
  RankedTensorType query = tensorType(op.getQuery()),
                   key = tensorType(op.getKey()),
                   value = tensorType(op.getValue());
  if (failed(expectRank(op, "a query", query, 4)) ||
      failed(expectRank(op, "a key", key, 4)))
    return failure();
  int64_t heads = query.getDimSize(2), kvHeads = key.getDimSize(2);
  int64_t keys = op.getStart() ? key.getDimSize(1) : query.getDimSize(1);
  if (failed(expectShape(
          op, "a key", key,
          {query.getDimSize(0), keys, kvHeads, query.getDimSize(3)})) ||
      failed(expectShape(op, "a value", value, key.getShape())))
    return failure();
  if (kvHeads == 0 || heads % kvHeads)
    return op.emitOpError()
           << "expects heads to be a multiple of kv_heads, got " << heads
           << " and " << kvHeads;
  if (failed(expectSameElement(op, "query", query, "key", key)) ||
      failed(expectSameElement(op, "query", query, "value", value)))
    return failure();
  if (op.getWindow() && static_cast<int64_t>(*op.getWindow()) < 1)
    return op.emitOpError() << "expects a window of at least 1, got "
                            << static_cast<int64_t>(*op.getWindow());
  if (failed(verifyScores(op)))
    return failure();
  return expectShape(op, "an lse", tensorType(op.getLse()),
                     {query.getDimSize(0), heads, query.getDimSize(1)});
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyAttention(*this)))
    return failure();
  if (getResult().getType() != getQuery().getType())
    return emitOpError() << "expects a result of the query's type, got "
                         << getResult().getType();
  return success();
}

LogicalResult AttentionGradOp::verify() {
  if (failed(verifyAttention(*this)))
    return failure();
  for (auto [value, what] : {std::pair(getOutput(), "an output"),
                             std::pair(getCotangent(), "a cotangent")})
    if (value.getType() != getQuery().getType())
      return emitOpError() << "expects " << what << " of the query's type, got "
                           << value.getType();
  return success();
}

LogicalResult PagedAttentionOp::verify() {
  RankedTensorType query = tensorType(getQuery()), keys = tensorType(getKeys()),
                   table = tensorType(getTable());
  if (failed(expectRank(*this, "a query", query, 4)) ||
      failed(expectRank(*this, "keys", keys, 4)) ||
      failed(expectRank(*this, "a page table", table, 2)))
    return failure();
  int64_t batch = query.getDimSize(0), heads = query.getDimSize(2),
          kvHeads = keys.getDimSize(2);
  if (failed(expectShape(*this, "keys", keys,
                         {keys.getDimSize(0), keys.getDimSize(1), kvHeads,
                          query.getDimSize(3)})) ||
      failed(expectShape(*this, "a page table", table,
                         {batch, table.getDimSize(1)})) ||
      failed(expectShape(*this, "starts", tensorType(getStarts()), {batch})))
    return failure();
  if (kvHeads == 0 || heads % kvHeads)
    return emitOpError() << "expects heads to be a multiple of kv_heads, got "
                         << heads << " and " << kvHeads;
  if (keys.getNumElements() == 0 || table.getDimSize(1) == 0)
    return emitOpError("expects at least one page of at least one key");
  if (failed(expectSameElement(*this, "query", query, "keys", keys)))
    return failure();
  if (getWindow() && static_cast<int64_t>(*getWindow()) < 1)
    return emitOpError() << "expects a window of at least 1, got "
                         << static_cast<int64_t>(*getWindow());
  return verifyScores(*this);
}

//===--- linear cross-entropy -------------------------------------------===//

static LogicalResult verifyHead(Operation *op, RankedTensorType input,
                                RankedTensorType weight,
                                RankedTensorType targets) {
  if (failed(expectRank(op, "an input", input, 2)) ||
      failed(expectRank(op, "a weight", weight, 2)))
    return failure();
  if (failed(expectShape(op, "a weight", weight,
                         {weight.getDimSize(0), input.getDimSize(1)})) ||
      failed(expectShape(op, "targets", targets, {input.getDimSize(0)})))
    return failure();
  if (weight.getDimSize(0) == 0)
    return op->emitOpError("expects a vocabulary of at least 1");
  return expectSameElement(op, "input", input, "weight", weight);
}

LogicalResult LinearCrossEntropyOp::verify() {
  if (failed(verifyCap(*this)))
    return failure();
  return verifyHead(*this, tensorType(getInput()), tensorType(getWeight()),
                    tensorType(getTargets()));
}

LogicalResult LinearCrossEntropyGradOp::verify() {
  RankedTensorType input = tensorType(getInput()),
                   weight = tensorType(getWeight()),
                   dWeight = tensorType(getDWeight());
  if (failed(verifyCap(*this)))
    return failure();
  if (failed(verifyHead(*this, input, weight, tensorType(getTargets()))))
    return failure();
  if (getDInput().getType() != input)
    return emitOpError() << "expects dInput of the input's type, got "
                         << getDInput().getType();
  if (failed(expectShape(*this, "dWeight", dWeight, weight.getShape())))
    return failure();
  return expectSameOrWider(*this, "the weight", weight, "dWeight", dWeight);
}

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

LogicalResult LoopOp::verify() {
  if (static_cast<int64_t>(getTrip()) < 1)
    return emitOpError() << "expects a trip count of at least 1, got "
                         << static_cast<int64_t>(getTrip());
  Block &body = getBody().front();
  SmallVector<Type> expected{
      RankedTensorType::get({}, IntegerType::get(getContext(), 32))};
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

LogicalResult GraphDialect::verifyOperationAttribute(Operation *op,
                                                     NamedAttribute attr) {
  StringRef name = attr.getName();
  if (name == kProgramAttr)
    return verifyProgram(op, attr.getValue());
  if (name == kLayerAttr &&
      (isa<FunctionOpInterface>(op) || !isa<LayerAttr>(attr.getValue())))
    return op->emitError() << "expects '" << kLayerAttr
                           << "' on an op in a function, a #graph.layer<...>";
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
  if (name == kRepeatCountAttr) {
    auto times = dyn_cast<IntegerAttr>(attr.getValue());
    return times && times.getType().isSignlessInteger(64) &&
                   times.getInt() >= 1 && times.getInt() <= kMostLayers
               ? success()
               : op->emitError() << "expects a number of layers, 1 to "
                                 << kMostLayers << ", in '" << name << "'";
  }
  if (name == kDecayAttr || name == kFixedAttr || name == kWideAttr ||
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
