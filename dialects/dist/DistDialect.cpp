#include "dialects/dist/DistOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace tessera::dist;

#include "dialects/dist/DistDialect.cpp.inc"
#include "dialects/dist/DistEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/dist/DistAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/dist/DistTypes.cpp.inc"

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
}

//===--- axis references: "name" or "name":(pre)size ----------------------===//

static void printAxis(AsmPrinter &printer, AxisRefAttr axis) {
  printer.printString(axis.getName());
  if (!axis.isWhole())
    printer << ":(" << axis.getPre() << ")" << axis.getSize();
}

static FailureOr<AxisRefAttr> parseAxis(AsmParser &parser) {
  std::string name;
  int64_t pre = 1, size = 0;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseString(&name))
    return failure();
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

void DimShardingAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printAxes(printer, getAxes());
  printer << ">";
}

Attribute DimShardingAttr::parse(AsmParser &parser, Type) {
  SmallVector<AxisRefAttr> axes;
  if (parser.parseLess() || parseAxes(parser, axes) || parser.parseGreater())
    return {};
  return DimShardingAttr::get(parser.getContext(), axes);
}

// <@mesh, [{"data"}, {}], partial sum {"tensor"}>
void ShardingAttr::print(AsmPrinter &printer) const {
  printer << "<" << getMesh() << ", [";
  llvm::interleaveComma(getDims(), printer, [&](DimShardingAttr dim) {
    printAxes(printer, dim.getAxes());
  });
  printer << "]";
  if (isPartial()) {
    printer << ", partial " << stringifyReduceKind(getKind()) << " ";
    printAxes(printer, getPartial());
  }
  printer << ">";
}

Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  FlatSymbolRefAttr mesh;
  SmallVector<DimShardingAttr> dims;
  SmallVector<AxisRefAttr> partial;
  ReduceKind kind = ReduceKind::sum;
  SMLoc loc = parser.getCurrentLocation();
  auto parseDim = [&]() -> ParseResult {
    SmallVector<AxisRefAttr> axes;
    if (parseAxes(parser, axes))
      return failure();
    dims.push_back(DimShardingAttr::get(parser.getContext(), axes));
    return success();
  };
  if (parser.parseLess() || parser.parseAttribute(mesh) ||
      parser.parseComma() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseDim))
    return {};
  if (succeeded(parser.parseOptionalComma())) {
    StringRef word;
    if (parser.parseKeyword("partial") || parser.parseKeyword(&word))
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
                                  partial);
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

LogicalResult DistDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attribute) {
  if (attribute.getName() != kShardingsAttr)
    return op->emitOpError("has unknown attribute '")
           << attribute.getName().getValue() << "'";
  auto shardings = dyn_cast<ArrayAttr>(attribute.getValue());
  if (!shardings || shardings.size() != op->getNumResults())
    return op->emitOpError("'dist.shardings' has one entry for each of ")
           << op->getNumResults() << " results";
  for (auto [sharding, type] : llvm::zip(shardings, op->getResultTypes()))
    if (failed(verifyAttached(op, sharding, type)))
      return failure();
  return success();
}

LogicalResult DistDialect::verifyRegionArgAttribute(Operation *op,
                                                    unsigned region,
                                                    unsigned argument,
                                                    NamedAttribute attribute) {
  if (attribute.getName() != kShardingAttr)
    return op->emitOpError("argument ")
           << argument << " has unknown attribute '"
           << attribute.getName().getValue() << "'";
  return verifyAttached(
      op, attribute.getValue(),
      cast<FunctionOpInterface>(op).getArgumentTypes()[argument]);
}

LogicalResult DistDialect::verifyRegionResultAttribute(
    Operation *op, unsigned region, unsigned result, NamedAttribute attribute) {
  if (attribute.getName() != kShardingAttr)
    return op->emitOpError("result ") << result << " has unknown attribute '"
                                      << attribute.getName().getValue() << "'";
  return verifyAttached(op, attribute.getValue(),
                        cast<FunctionOpInterface>(op).getResultTypes()[result]);
}
