#include "dialects/dist/CollectiveMatmulAttr.h"
#include "dialects/dist/DistOps.h"
#include "dialects/dist/PairAttr.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/InliningUtils.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace tessera::dist;

#include "dialects/dist/DistDialect.cpp.inc"
#include "dialects/dist/DistEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/dist/DistAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/dist/DistTypes.cpp.inc"

namespace {
// Inlining keeps the order of ops, and with it that of collectives.
struct DistInliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final {
    return true;
  }
};
} // namespace

void DistDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/dist/DistAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/dist/DistTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/dist/DistOps.cpp.inc"
      >();
  addInterfaces<DistInliner>();
}

//===--- axis references: "name" or "name":(pre)size ----------------------===//

static void printAxis(AsmPrinter &printer, AxisRefAttr axis) {
  printer.printString(axis.getName());
  if (!axis.isWhole())
    printer << ":(" << axis.getPre() << ")" << axis.getSize();
}

// Null without a name.
static FailureOr<AxisRefAttr> parseOptionalAxis(AsmParser &parser) {
  std::string name;
  int64_t pre = 1, size = 0;
  SMLoc loc = parser.getCurrentLocation();
  if (failed(parser.parseOptionalString(&name)))
    return AxisRefAttr();
  if (succeeded(parser.parseOptionalColon()))
    if (parser.parseLParen() || parser.parseInteger(pre) ||
        parser.parseRParen() || parser.parseInteger(size))
      return failure();
  auto axis = AxisRefAttr::getChecked([&] { return parser.emitError(loc); },
                                      parser.getContext(), name, pre, size);
  if (!axis)
    return failure();
  return axis;
}

static FailureOr<AxisRefAttr> parseAxis(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  FailureOr<AxisRefAttr> axis = parseOptionalAxis(parser);
  if (succeeded(axis) && !*axis)
    return parser.emitError(loc, "expected the name of an axis");
  return axis;
}

// {"data", "tensor":(1)2}
static void printAxes(AsmPrinter &printer, ArrayRef<AxisRefAttr> axes) {
  printer << "{";
  llvm::interleaveComma(axes, printer,
                        [&](AxisRefAttr axis) { printAxis(printer, axis); });
  printer << "}";
}

static ParseResult parseAxes(AsmParser &parser,
                             SmallVectorImpl<AxisRefAttr> &axes) {
  return parser.parseCommaSeparatedList(
      AsmParser::Delimiter::Braces, [&]() -> ParseResult {
        FailureOr<AxisRefAttr> axis = parseAxis(parser);
        if (failed(axis))
          return failure();
        axes.push_back(*axis);
        return success();
      });
}

void AxisRefAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printAxis(printer, *this);
  printer << ">";
}

Attribute AxisRefAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<AxisRefAttr> axis = parseAxis(parser);
  return failed(axis) || parser.parseGreater() ? Attribute() : *axis;
}

// 128, or 128:"tensor", or 128:{"data", "tensor"}; without a size only the
// axes.
static void printFactor(AsmPrinter &printer, FactorAttr factor) {
  printer << factor.getSize();
  if (factor.getAxes().empty())
    return;
  printer << ":";
  if (factor.getAxes().size() == 1)
    printAxis(printer, factor.getAxes().front());
  else
    printAxes(printer, factor.getAxes());
}

static FailureOr<FactorAttr> parseFactor(AsmParser &parser) {
  int64_t size = 0;
  SmallVector<AxisRefAttr> axes;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseInteger(size))
    return failure();
  if (size < 1)
    return parser.emitError(loc, "a factor's size must be at least 1, got: ")
           << size;
  if (succeeded(parser.parseOptionalColon())) {
    if (succeeded(parser.parseOptionalLBrace())) {
      auto parseOne = [&]() -> ParseResult {
        FailureOr<AxisRefAttr> axis = parseAxis(parser);
        if (failed(axis))
          return failure();
        axes.push_back(*axis);
        return success();
      };
      if (parser.parseCommaSeparatedList(parseOne) || parser.parseRBrace())
        return failure();
    } else {
      FailureOr<AxisRefAttr> axis = parseAxis(parser);
      if (failed(axis))
        return failure();
      axes.push_back(*axis);
    }
  }
  return FactorAttr::get(parser.getContext(), size, axes);
}

void FactorAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printFactor(printer, *this);
  printer << ">";
}

Attribute FactorAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<FactorAttr> factor = parseFactor(parser);
  return failed(factor) || parser.parseGreater() ? Attribute() : *factor;
}

SmallVector<AxisRefAttr> DimShardingAttr::getAxes() const {
  SmallVector<AxisRefAttr> axes;
  for (FactorAttr factor : getFactors())
    llvm::append_range(axes, factor.getAxes());
  return axes;
}

static void printDim(AsmPrinter &printer, DimShardingAttr dim) {
  ArrayRef<FactorAttr> factors = dim.getFactors();
  if (factors.empty() || factors.front().getSize() == 0)
    return printAxes(printer, dim.getAxes());
  printer << "{";
  llvm::interleaveComma(factors, printer, [&](FactorAttr factor) {
    printFactor(printer, factor);
  });
  printer << "}";
}

static FailureOr<DimShardingAttr> parseDim(AsmParser &parser) {
  SmallVector<FactorAttr> factors;
  SmallVector<AxisRefAttr> axes;
  SMLoc loc = parser.getCurrentLocation();
  auto parseOne = [&]() -> ParseResult {
    if (factors.empty()) {
      if (FailureOr<AxisRefAttr> axis = parseOptionalAxis(parser);
          succeeded(axis) && *axis) {
        axes.push_back(*axis);
        return success();
      } else if (failed(axis) || !axes.empty()) {
        return failure();
      }
    }
    FailureOr<FactorAttr> factor = parseFactor(parser);
    if (failed(factor))
      return failure();
    factors.push_back(*factor);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces, parseOne))
    return failure();
  if (factors.empty())
    return DimShardingAttr::get(parser.getContext(),
                                ArrayRef<AxisRefAttr>(axes));
  auto dim = DimShardingAttr::getChecked([&] { return parser.emitError(loc); },
                                         parser.getContext(), factors);
  if (!dim)
    return failure();
  return dim;
}

void DimShardingAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printDim(printer, *this);
  printer << ">";
}

Attribute DimShardingAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<DimShardingAttr> dim = parseDim(parser);
  return failed(dim) || parser.parseGreater() ? Attribute() : *dim;
}

// <@mesh, [{"data"}, {}], partial sum {"tensor"}, own {"data"}, room 8>
void ShardingAttr::print(AsmPrinter &printer) const {
  printer << "<" << getMesh() << ", [";
  llvm::interleaveComma(getDims(), printer,
                        [&](DimShardingAttr dim) { printDim(printer, dim); });
  printer << "]";
  if (isPartial()) {
    printer << ", partial " << stringifyReduceKind(getKind()) << " ";
    printAxes(printer, getPartial());
  }
  if (!getOwn().empty()) {
    printer << ", own ";
    printAxes(printer, getOwn());
  }
  if (getRoom())
    printer << ", room " << getRoom();
  printer << ">";
}

Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  FlatSymbolRefAttr mesh;
  SmallVector<DimShardingAttr> dims;
  SmallVector<AxisRefAttr> partial, own;
  ReduceKind kind = ReduceKind::sum;
  int64_t room = 0;
  SMLoc loc = parser.getCurrentLocation();
  auto parseOne = [&]() -> ParseResult {
    FailureOr<DimShardingAttr> dim = parseDim(parser);
    if (failed(dim))
      return failure();
    dims.push_back(*dim);
    return success();
  };
  if (parser.parseLess() || parser.parseAttribute(mesh) ||
      parser.parseComma() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne))
    return {};
  while (succeeded(parser.parseOptionalComma())) {
    if (succeeded(parser.parseOptionalKeyword("room"))) {
      if (parser.parseInteger(room))
        return {};
      break;
    }
    if (own.empty() && succeeded(parser.parseOptionalKeyword("own"))) {
      if (parseAxes(parser, own))
        return {};
      continue;
    }
    StringRef word;
    if (!partial.empty() || !own.empty() || parser.parseKeyword("partial") ||
        parser.parseKeyword(&word))
      return {};
    std::optional<ReduceKind> parsed = symbolizeReduceKind(word);
    if (!parsed) {
      parser.emitError(loc, "partial values combine by sum or max, got '")
          << word << "'";
      return {};
    }
    kind = *parsed;
    if (parseAxes(parser, partial))
      return {};
  }
  if (parser.parseGreater())
    return {};
  return ShardingAttr::getChecked([&] { return parser.emitError(loc); },
                                  parser.getContext(), mesh, dims, kind,
                                  partial, own, room);
}

//===--- attributes on functions and ops ----------------------------------===//

// Finds the mesh and checks the sharding of one value against it.
static LogicalResult verifyAttached(Operation *op, Attribute attribute,
                                    Type type) {
  auto sharding = dyn_cast<ShardingAttr>(attribute);
  if (!sharding)
    return op->emitOpError("a value's placement must be a #dist.sharding, got ")
           << attribute;
  auto mesh =
      SymbolTable::lookupNearestSymbolFrom<MeshOp>(op, sharding.getMesh());
  if (!mesh)
    return op->emitOpError("sharding names mesh ")
           << sharding.getMesh() << ", which is not in the module";
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor)
    return op->emitOpError("only tensors are sharded, got ") << type;
  return verifySharding(sharding, mesh, tensor,
                        [&] { return op->emitOpError(); });
}

// For one loop over microbatches: a schedule, and the FLOPs of each stage
// forward and backward.
static bool isPipeline(Attribute attribute, unsigned size) {
  auto parts = dyn_cast<DictionaryAttr>(attribute);
  bool isGood =
      parts && parts.size() == size && parts.getAs<StringAttr>("schedule");
  std::optional<int64_t> stages;
  for (StringRef name : {"forward", "backward", "weights"}) {
    auto work = isGood ? parts.getAs<DenseI64ArrayAttr>(name) : nullptr;
    isGood = work && stages.value_or(work.size()) == work.size() &&
             llvm::all_of(work.asArrayRef(), [](int64_t v) { return v >= 0; });
    if (isGood)
      stages = work.size();
  }
  return isGood;
}

static LogicalResult verifyPipeline(Operation *op, Attribute attribute) {
  auto parts = dyn_cast<DictionaryAttr>(attribute);
  auto before = parts ? parts.getAs<ArrayAttr>("before") : ArrayAttr();
  bool isGood = isa<ModuleOp>(op) && isPipeline(attribute, before ? 5 : 4);
  if (isGood && before)
    isGood = llvm::all_of(before,
                          [](Attribute each) { return isPipeline(each, 4); });
  return isGood ? success()
                : op->emitOpError(
                      "'dist.pipeline' must be on a module and have "
                      "'schedule', and the work of its stages as 'forward', "
                      "'backward' and 'weights'; "
                      "'before' lists the same for earlier loops");
}

LogicalResult DistDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attribute) {
  if (attribute.getName() == kDevicesAttr) {
    auto devices = dyn_cast<DenseI64ArrayAttr>(attribute.getValue());
    if (!isa<ModuleOp>(op) || !devices || devices.empty() ||
        !llvm::is_sorted(devices.asArrayRef()) || devices[0] < 0)
      return op->emitOpError(
          "'dist.devices' must be on a module: device numbers, ascending");
    return success();
  }
  if (attribute.getName() == kClusterAttr)
    return isa<ModuleOp>(op) && isa<ClusterAttr>(attribute.getValue())
               ? success()
               : op->emitOpError(
                     "'dist.cluster' must be a #dist.cluster on a module");
  if (attribute.getName() == kOffsetsAttr) {
    auto offsets = dyn_cast<ArrayAttr>(attribute.getValue());
    if (!isa<ModuleOp>(op) || !offsets ||
        !llvm::all_of(offsets, llvm::IsaPred<FactorAttr>))
      return op->emitOpError(
          "'dist.offsets' must be on a module: a list of #dist.factor");
    return success();
  }
  if (attribute.getName() == kScheduleAttr) {
    bool hasTable =
        isa<ModuleOp>(op) || op->getName().getStringRef() == "graph.loop";
    if (!hasTable || !isa<StringAttr>(attribute.getValue()))
      return op->emitOpError(
          "'dist.schedule' must be on a module or a graph.loop: a pipeline "
          "schedule as CSV");
    return success();
  }
  if (attribute.getName() == kPipelineAttr)
    return verifyPipeline(op, attribute.getValue());
  if (attribute.getName() == kForwardStageAttr ||
      attribute.getName() == kBackwardStageAttr) {
    auto stage = dyn_cast<IntegerAttr>(attribute.getValue());
    if (!stage || stage.getInt() < 0)
      return op->emitOpError("'")
             << attribute.getName().getValue() << "' must be a stage number";
    return success();
  }
  if (attribute.getName() == kCountsBeforeAttr)
    return isa<UnitAttr>(attribute.getValue())
               ? success()
               : op->emitOpError("'dist.counts_before' must have no value");
  if (attribute.getName() == kPairAttr) {
    auto pair = dyn_cast<DenseI64ArrayAttr>(attribute.getValue());
    if (!pair || pair.size() != 2 || pair[0] < 0 ||
        (pair[1] != 0 && pair[1] != 1))
      return op->emitOpError("'dist.pair' must be the number of a pair, and 0 "
                             "for its forward or 1 for its backward");
    return success();
  }
  if (attribute.getName() == kStartAttr) {
    auto start = dyn_cast<IntegerAttr>(attribute.getValue());
    if (!start || !start.getType().isInteger(64) || start.getInt() < 0)
      return op->emitOpError("'dist.start' must be a non-negative i64");
    return success();
  }
  if (attribute.getName() == kCollectiveMatmulAttr) {
    if (!isa<ReshardOp>(op) || !isa<UnitAttr>(attribute.getValue()))
      return op->emitOpError(
          "'dist.collective_matmul' is only allowed on a dist.reshard");
    return success();
  }
  if (attribute.getName() != kShardingsAttr)
    return op->emitOpError("has unknown attribute '")
           << attribute.getName().getValue() << "'";
  auto shardings = dyn_cast<ArrayAttr>(attribute.getValue());
  if (!shardings || shardings.size() != op->getNumResults())
    return op->emitOpError("'dist.shardings' must have one entry for each of ")
           << op->getNumResults() << " results";
  for (auto [sharding, type] : llvm::zip(shardings, op->getResultTypes()))
    if (failed(verifyAttached(op, sharding, type)))
      return failure();
  return success();
}

// The global type of an argument or result: its own type, or in a local program
// the shape of the attribute dist.global_shape.
static LogicalResult verifyPort(Operation *op, NamedAttribute attribute,
                                Attribute globalShape, Type type,
                                const Twine &port) {
  auto shape = dyn_cast_if_present<DenseI64ArrayAttr>(globalShape);
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (globalShape &&
      (!shape || !tensor ||
       static_cast<int64_t>(shape.size()) != tensor.getRank() ||
       llvm::any_of(shape.asArrayRef(), [](int64_t size) { return size < 0; })))
    return op->emitOpError(port)
           << " has a global shape that does not fit " << type;
  if (attribute.getName() == kGlobalShapeAttr)
    return success();
  if (attribute.getName() != kShardingAttr)
    return op->emitOpError(port) << " has unknown attribute '"
                                 << attribute.getName().getValue() << "'";
  return verifyAttached(op, attribute.getValue(),
                        shape ? tensor.clone(shape.asArrayRef()) : type);
}

LogicalResult DistDialect::verifyRegionArgAttribute(Operation *op,
                                                    unsigned region,
                                                    unsigned argument,
                                                    NamedAttribute attribute) {
  auto function = cast<FunctionOpInterface>(op);
  return verifyPort(
      op, attribute, function.getArgAttr(argument, kGlobalShapeAttr),
      function.getArgumentTypes()[argument], "argument " + Twine(argument));
}

LogicalResult DistDialect::verifyRegionResultAttribute(
    Operation *op, unsigned region, unsigned result, NamedAttribute attribute) {
  auto function = cast<FunctionOpInterface>(op);
  return verifyPort(
      op, attribute, function.getResultAttr(result, kGlobalShapeAttr),
      function.getResultTypes()[result], "result " + Twine(result));
}
