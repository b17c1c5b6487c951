// Assembly and builders of tile.kernel.
#include "dialects/tile/TileOps.h"
#include "mlir/Interfaces/FunctionImplementation.h"

using namespace mlir;
using namespace tessera::tile;

#define GET_OP_CLASSES
#include "dialects/tile/TileOps.cpp.inc"

void KernelOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                     Skeleton skeleton, int64_t dynamicSizes, TypeRange buffers,
                     ArrayRef<Access> access, StringRef summary) {
  SmallVector<Type> types(1 + dynamicSizes, builder.getIndexType());
  llvm::append_range(types, buffers);
  SmallVector<Attribute> accesses;
  for (Access a : access)
    accesses.push_back(AccessAttr::get(builder.getContext(), a));
  state.addAttribute(getSymNameAttrName(state.name),
                     builder.getStringAttr(name));
  state.addAttribute(getFunctionTypeAttrName(state.name),
                     TypeAttr::get(builder.getFunctionType(types, {})));
  state.addAttribute(getSkeletonAttrName(state.name),
                     SkeletonAttr::get(builder.getContext(), skeleton));
  state.addAttribute(getDynamicSizesAttrName(state.name),
                     builder.getI64IntegerAttr(dynamicSizes));
  state.addAttribute(getAccessAttrName(state.name),
                     builder.getArrayAttr(accesses));
  state.addAttribute(getSummaryAttrName(state.name),
                     builder.getStringAttr(summary));
  Block &block = state.addRegion()->emplaceBlock();
  for (Type type : types)
    block.addArgument(type, state.location);
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &state) {
  auto functionType = [](Builder &builder, ArrayRef<Type> inputs,
                         ArrayRef<Type> results,
                         function_interface_impl::VariadicFlag, std::string &) {
    return builder.getFunctionType(inputs, results);
  };
  return function_interface_impl::parseFunctionOp(
      parser, state, /*allowVariadic=*/false,
      getFunctionTypeAttrName(state.name), functionType,
      getArgAttrsAttrName(state.name), getResAttrsAttrName(state.name));
}

void KernelOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(
      printer, *this, /*isVariadic=*/false, getFunctionTypeAttrName(),
      getArgAttrsAttrName(), getResAttrsAttrName());
}
