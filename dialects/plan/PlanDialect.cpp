#include "dialects/plan/PlanOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace tessera::plan;

#include "dialects/plan/PlanDialect.cpp.inc"
#include "dialects/plan/PlanEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/plan/PlanTypes.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.cpp.inc"

void PlanDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/plan/PlanAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/plan/PlanTypes.cpp.inc"
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

void LoopOp::build(OpBuilder &builder, OperationState &state, int64_t trip,
                   Value count) {
  if (count)
    state.addOperands(count);
  state.getOrAddProperties<Properties>().trip = builder.getI64IntegerAttr(trip);
  state.addRegion()->emplaceBlock().addArgument(builder.getIndexType(),
                                                state.location);
}

// plan.loop %i to 4 atmost %n : memref<i32> { ... }
void LoopOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printRegionArgument(getBody().front().getArgument(0), {},
                              /*omitType=*/true);
  printer << " to " << getTrip();
  if (Value count = getCount())
    printer << " atmost " << count << " : " << count.getType();
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {"trip"});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

ParseResult LoopOp::parse(OpAsmParser &parser, OperationState &state) {
  OpAsmParser::Argument induction;
  int64_t trip;
  if (parser.parseArgument(induction) || parser.parseKeyword("to") ||
      parser.parseInteger(trip))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("atmost"))) {
    OpAsmParser::UnresolvedOperand count;
    Type type;
    if (parser.parseOperand(count) || parser.parseColonType(type) ||
        parser.resolveOperand(count, type, state.operands))
      return failure();
  }
  if (parser.parseOptionalAttrDictWithKeyword(state.attributes))
    return failure();
  induction.type = parser.getBuilder().getIndexType();
  state.getOrAddProperties<Properties>().trip =
      parser.getBuilder().getI64IntegerAttr(trip);
  return parser.parseRegion(*state.addRegion(), induction);
}
