// The plan dialect: the execution plan. See README.md in this folder.
#pragma once
#include "dialects/dist/DistOps.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/plan/PlanEnums.h.inc"

#include "dialects/plan/PlanDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/plan/PlanTypes.h.inc"
#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.h.inc"

namespace tessera::plan {

/// Alignment of buffers in bytes.
inline constexpr int64_t kAlignment = 64;

/// Size of a dense tensor or memref in bytes; i1 takes one byte for each
/// element.
int64_t byteSize(mlir::ShapedType type);

} // namespace tessera::plan
