// What public functions compute, as the attribute graph.program says.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace tessera::graph {

inline bool isProgram(mlir::func::FuncOp function, Program kind) {
  auto program = function->getAttrOfType<ProgramAttr>(kProgramAttr);
  return program && program.getValue() == kind;
}

/// The module's program of a kind that has no buckets; null if it has none.
inline mlir::func::FuncOp findProgram(mlir::ModuleOp module, Program kind) {
  for (auto function : module.getOps<mlir::func::FuncOp>())
    if (isProgram(function, kind))
      return function;
  return {};
}

} // namespace tessera::graph
