#include "dialects/plan/PlanOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace tessera::plan;

#include "dialects/plan/PlanDialect.cpp.inc"
#include "dialects/plan/PlanEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.cpp.inc"

void PlanDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/plan/PlanAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/plan/PlanOps.cpp.inc"
      >();
}

int64_t tessera::plan::byteSize(ShapedType type) {
  unsigned bits = type.getElementTypeBitWidth();
  return type.getNumElements() * ((bits + 7) / 8);
}

//===--- loop -------------------------------------------------------------===//

void LoopOp::build(OpBuilder &builder, OperationState &state, int64_t trip) {
  state.getOrAddProperties<Properties>().trip = builder.getI64IntegerAttr(trip);
  state.addRegion()->emplaceBlock().addArgument(builder.getIndexType(),
                                                state.location);
}

// plan.loop %i to 4 { ... }
void LoopOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printRegionArgument(getBody().front().getArgument(0), {},
                              /*omitType=*/true);
  printer << " to " << getTrip();
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {"trip"});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

ParseResult LoopOp::parse(OpAsmParser &parser, OperationState &state) {
  OpAsmParser::Argument induction;
  int64_t trip;
  if (parser.parseArgument(induction) || parser.parseKeyword("to") ||
      parser.parseInteger(trip) ||
      parser.parseOptionalAttrDictWithKeyword(state.attributes))
    return failure();
  induction.type = parser.getBuilder().getIndexType();
  state.getOrAddProperties<Properties>().trip =
      parser.getBuilder().getI64IntegerAttr(trip);
  return parser.parseRegion(*state.addRegion(), induction);
}

//===--- verifiers --------------------------------------------------------===//

LogicalResult LoopOp::verify() {
  Block &body = getBody().front();
  if (body.getNumArguments() != 1 || !body.getArgument(0).getType().isIndex())
    return emitOpError("body takes one index, the induction value");
  return success();
}

LogicalResult BufferOp::verify() {
  if (getOffset() % kAlignment)
    return emitOpError("offset ")
           << getOffset() << " is no multiple of " << kAlignment;
  if (getSpace() != Space::arena && !getName())
    return emitOpError("a buffer in ")
           << stringifySpace(getSpace()) << " has a name";
  if (getLives() &&
      (getLives()->size() != 2 || (*getLives())[0] > (*getLives())[1]))
    return emitOpError("`lives` is a first and a last step");
  return success();
}

// The part must lie inside its buffer even in the last turn of the loop.
LogicalResult ViewOp::verify() {
  int64_t last = 0;
  if (Value induction = getInduction()) {
    auto argument = dyn_cast<BlockArgument>(induction);
    auto loop = argument ? dyn_cast<LoopOp>(argument.getOwner()->getParentOp())
                         : LoopOp();
    if (!loop)
      return emitOpError(
          "advances with the induction value of a plan.loop only");
    if (!getStride() || static_cast<int64_t>(*getStride()) < 0)
      return emitOpError("needs a stride that is not negative");
    last = static_cast<int64_t>(*getStride()) *
           (static_cast<int64_t>(loop.getTrip()) - 1);
  }
  int64_t end = static_cast<int64_t>(getOffset()) + last +
                byteSize(cast<MemRefType>(getMemory().getType()));
  int64_t size = byteSize(cast<MemRefType>(getSource().getType()));
  if (end > size)
    return emitOpError("reaches byte ") << end << " of a buffer of " << size;
  return success();
}

LogicalResult LaunchOp::verify() {
  size_t n = getBlocks().size();
  if (n == 0 || getBuffers().size() % n || getSizes().size() % n)
    return emitOpError("buffers and sizes must divide evenly among ")
           << n << " instances";
  return success();
}
