// Assembly, builders and small methods of the graph ops, and the Emitter.
#include "dialects/graph/GraphOps.h"
#include "dialects/graph/Build.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace tessera::graph;

#define GET_OP_CLASSES
#include "dialects/graph/GraphOps.cpp.inc"

//===--- loop -----------------------------------------------------------===//

void LoopOp::build(
    OpBuilder &builder, OperationState &state, int64_t trip, ValueRange inits,
    llvm::function_ref<void(OpBuilder &, Location, Value, ValueRange)> body) {
  OpBuilder::InsertionGuard guard(builder);
  state.addOperands(inits);
  state.addTypes(TypeRange(inits));
  state.getOrAddProperties<Properties>().trip = builder.getI64IntegerAttr(trip);
  Region *region = state.addRegion();
  Block *block = builder.createBlock(region);
  block->addArgument(RankedTensorType::get({}, builder.getI32Type()),
                     state.location);
  for (Value init : inits)
    block->addArgument(init.getType(), state.location);
  builder.setInsertionPointToStart(block);
  body(builder, state.location, block->getArgument(0),
       block->getArguments().drop_front());
}

// graph.loop 4 (%i, %acc = %init, ...) : (type, ...) { ... }
void LoopOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getTrip() << " (";
  printer.printRegionArgument(getBody().front().getArgument(0), {},
                              /*omitType=*/true);
  for (auto [argument, init] : llvm::zip(getCarried(), getInits())) {
    printer << ", ";
    printer.printRegionArgument(argument, {}, /*omitType=*/true);
    printer << " = " << init;
  }
  printer << ") : (" << getInits().getTypes() << ")";
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {"trip"});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

ParseResult LoopOp::parse(OpAsmParser &parser, OperationState &state) {
  int64_t trip;
  SmallVector<OpAsmParser::Argument> arguments(1);
  SmallVector<OpAsmParser::UnresolvedOperand> inits;
  if (parser.parseInteger(trip) || parser.parseLParen() ||
      parser.parseArgument(arguments[0]))
    return failure();
  while (succeeded(parser.parseOptionalComma()))
    if (parser.parseArgument(arguments.emplace_back()) || parser.parseEqual() ||
        parser.parseOperand(inits.emplace_back()))
      return failure();
  SmallVector<Type> types;
  SMLoc at = parser.getCurrentLocation();
  if (parser.parseRParen() || parser.parseColon() || parser.parseLParen())
    return failure();
  if (failed(parser.parseOptionalRParen()))
    if (parser.parseTypeList(types) || parser.parseRParen())
      return failure();
  if (types.size() != inits.size())
    return parser.emitError(at, "expected one type for each carried value");
  Builder &builder = parser.getBuilder();
  arguments[0].type = RankedTensorType::get({}, builder.getI32Type());
  for (auto [argument, type] :
       llvm::zip(MutableArrayRef(arguments).drop_front(), types))
    argument.type = type;
  state.addTypes(types);
  state.getOrAddProperties<Properties>().trip = builder.getI64IntegerAttr(trip);
  auto emitError = [&] { return parser.emitError(at); };
  return failure(
      parser.resolveOperands(inits, types, at, state.operands) ||
      parser.parseOptionalAttrDictWithKeyword(state.attributes) ||
      failed(verifyInherentAttrs(state.name, state.attributes, emitError)) ||
      parser.parseRegion(*state.addRegion(), arguments));
}

//===--- small methods --------------------------------------------------===//

YieldOp LoopOp::getYield() {
  return cast<YieldOp>(getBody().front().getTerminator());
}

YieldOp ClusterOp::getYield() {
  return cast<YieldOp>(getBody().front().getTerminator());
}

ClusterKind ReduceOp::getClusterKind() {
  int64_t rank = getInput().getType().getRank();
  ArrayRef<int64_t> dims = getDims();
  if (static_cast<int64_t>(dims.size()) == rank)
    return ClusterKind::reduce_all;
  return dims.size() == 1 && dims[0] == rank - 1 ? ClusterKind::row
                                                 : ClusterKind::column;
}

//===--- Emitter --------------------------------------------------------===//

Value Emitter::splat(double value, RankedTensorType type) {
  Type element = type.getElementType();
  Attribute attr =
      isa<FloatType>(element)
          ? Attribute(b.getFloatAttr(element, value))
          : Attribute(b.getIntegerAttr(element, static_cast<int64_t>(value)));
  return b.create<ConstantOp>(
      loc, cast<ElementsAttr>(DenseElementsAttr::get(type, attr)));
}

Value Emitter::iota(RankedTensorType type, int64_t dim) {
  return b.create<IotaOp>(loc, type, dim);
}

Value Emitter::gelu(Value x, GeluKind kind) {
  return b.create<GeluOp>(loc, x, kind);
}

Value Emitter::compare(Value x, ComparePredicate predicate, Value y) {
  return b.create<CompareOp>(loc, x, y, predicate);
}

Value Emitter::select(Value condition, Value x, Value y) {
  return b.create<SelectOp>(loc, condition, x, y);
}

Value Emitter::convert(Value x, Type element) {
  return tensorType(x).getElementType() == element
             ? x
             : b.create<ConvertOp>(loc, tensorType(x).clone(element), x);
}

Value Emitter::reshape(Value x, ArrayRef<int64_t> shape) {
  return tensorType(x).getShape() == shape
             ? x
             : b.create<ReshapeOp>(loc, tensorType(x).clone(shape), x);
}

Value Emitter::transpose(Value x, ArrayRef<int64_t> permutation) {
  return b.create<TransposeOp>(loc, x, permutation);
}

Value Emitter::broadcast(Value x, ArrayRef<int64_t> dims,
                         ArrayRef<int64_t> shape) {
  return tensorType(x).getShape() == shape
             ? x
             : b.create<BroadcastOp>(loc, tensorType(x).clone(shape), x, dims);
}

Value Emitter::broadcastScalar(Value x, ArrayRef<int64_t> shape) {
  return broadcast(x, {}, shape);
}

Value Emitter::broadcastLast(Value x, ArrayRef<int64_t> shape) {
  return broadcast(x, {static_cast<int64_t>(shape.size()) - 1}, shape);
}

Value Emitter::broadcastFirst(Value x, ArrayRef<int64_t> shape) {
  return broadcast(x, llvm::to_vector(llvm::seq<int64_t>(0, shape.size() - 1)),
                   shape);
}

Value Emitter::slice(Value x, ArrayRef<int64_t> start,
                     ArrayRef<int64_t> shape) {
  return b.create<SliceOp>(loc, tensorType(x).clone(shape), x, start);
}

Value Emitter::concat(ValueRange xs, int64_t dim) {
  return b.create<ConcatOp>(loc, xs, dim);
}

Value Emitter::pad(Value x, ArrayRef<int64_t> low, ArrayRef<int64_t> shape) {
  return b.create<PadOp>(loc, tensorType(x).clone(shape), x, low);
}

Value Emitter::dynamicSlice(Value x, Value index) {
  return b.create<DynamicSliceOp>(loc, x, index);
}

Value Emitter::reduce(Value x, ReduceKind kind, ArrayRef<int64_t> dims) {
  return dims.empty() ? x : b.create<ReduceOp>(loc, x, kind, dims);
}

Value Emitter::sumLast(Value x) {
  return sum(x, {tensorType(x).getRank() - 1});
}

Value Emitter::maxLast(Value x) {
  return reduce(x, ReduceKind::max, {tensorType(x).getRank() - 1});
}

Value Emitter::sumAll(Value x) {
  return sum(x,
             llvm::to_vector(llvm::seq<int64_t>(0, tensorType(x).getRank())));
}

Value Emitter::einsum(StringRef equation, Value lhs, Value rhs, Type element) {
  RankedTensorType type = graph::detail::einsumType(equation, lhs, rhs);
  return b.create<EinsumOp>(loc, element ? type.clone(element) : type, lhs, rhs,
                            equation);
}

Value Emitter::groupedMatmul(Value lhs, Value rhs, Value groups,
                             bool transposed) {
  return b.create<GroupedMatmulOp>(loc, lhs, rhs, groups, transposed);
}

Value Emitter::embedding(Value table, Value ids) {
  return b.create<EmbeddingOp>(loc, table, ids);
}

Value Emitter::scatterRows(Value updates, Value ids, Value base) {
  return b.create<ScatterRowsOp>(loc, base, ids, updates);
}

Value Emitter::layerNorm(Value x, Value weight, Value bias, double eps) {
  return b.create<LayerNormOp>(loc, x, weight, bias, b.getF64FloatAttr(eps));
}

Value Emitter::rmsNorm(Value x, Value weight, double eps, double offset) {
  return b.create<RmsNormOp>(loc, x, weight, b.getF64FloatAttr(eps),
                             b.getF64FloatAttr(offset));
}

Value Emitter::softCap(Value x, std::optional<double> cap) {
  return cap ? mul(unary<TanhOp>(mul(x, 1 / *cap)), *cap) : x;
}

Value Emitter::softCapGradient(Value cotangent, Value capped,
                               std::optional<double> cap) {
  if (!cap)
    return cotangent;
  Value part = mul(capped, 1 / *cap);
  return mul(cotangent, sub(splatLike(1, part), mul(part, part)));
}
