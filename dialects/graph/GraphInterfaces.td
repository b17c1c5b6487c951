// Interfaces by which passes query ops. Each is a short entry per op; passes know only structural
// ops by name (passes/README.md).
#ifndef TESSERA_GRAPH_INTERFACES
#define TESSERA_GRAPH_INTERFACES

include "mlir/IR/OpBase.td"

def Graph_Differentiable : OpInterface<"Differentiable"> {
  let cppNamespace = "::tessera::graph";
  let description = [{
    Reverse-mode differentiation of one op. Every float-valued op has it;
    ops whose gradient is zero everywhere (comparisons, iota) return nulls.
  }];
  let methods = [InterfaceMethod<[{
      Emits the vector-Jacobian product at `builder`'s insertion point. `cotangents` has one value
      per result, of the result's type, null if the result has no influence on the loss. Returns one
      value per operand, of the operand's type, null if the operand has no gradient. May use
      operands and results of the op itself: the caller saves or recomputes them.
    }],
    "::llvm::SmallVector<::mlir::Value>", "buildVjp",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$cotangents)>];
}

def Graph_Elementwise : OpInterface<"Elementwise"> {
  let cppNamespace = "::tessera::graph";
  let description = [{
    An op whose result element depends only on operand elements at the same index. All operands and
    the result have the same shape; element types may differ.
  }];
  let methods = [
    InterfaceMethod<[{
      Emits the op on scalars or on vectors of any shape, in arith and math ops. Float operands and
      results are f32 (f64 operands stay f64), a conversion to a float of fewer bits rounds; i1 and
      integers are as in the tensor, but signless (ui8 is held in i8). `operands` are in operand
      order.
    }], "::mlir::Value", "emitScalar",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$operands)>,
    InterfaceMethod<[{
      Reference evaluation of one element in double precision (booleans are 0 and 1).
    }], "double", "evaluateScalar", (ins "::llvm::ArrayRef<double>":$operands)>];
}

def Graph_Decomposable : OpInterface<"Decomposable"> {
  let cppNamespace = "::tessera::graph";
  let description = [{
    A composite: an op that passes handle as a whole. Its decomposition into primitives is its
    definition, and the reference of its tests.
  }];
  let methods = [InterfaceMethod<[{
      Emits the primitives at `builder`'s insertion point and returns one value per result.
    }], "::llvm::SmallVector<::mlir::Value>", "decompose",
    (ins "::mlir::OpBuilder &":$builder)>];
}

def Graph_Costed : OpInterface<"Costed"> {
  let cppNamespace = "::tessera::graph";
  let description = [{Work and traffic of an op, for rooflines, planners and MFU.}];
  let methods = [
    InterfaceMethod<[{Useful floating-point operations; a multiply-add counts two.}],
      "int64_t", "getFlops", (ins), "", [{
        return ::tessera::graph::detail::countElements($_op->getResults());
      }]>,
    InterfaceMethod<[{Bytes read and written once each.}],
      "int64_t", "getBytes", (ins), "", [{
        return ::tessera::graph::detail::countBytes($_op->getOperands()) +
               ::tessera::graph::detail::countBytes($_op->getResults());
      }]>];
}

def Graph_Shardable : OpInterface<"Shardable"> {
  let cppNamespace = "::tessera::graph";
  let description = [{
    The op as a loop nest, from which `passes/sharding` chooses where it is computed. Every op that
    computes has it.
  }];
  let methods = [InterfaceMethod<[{
      The loop dimensions of operands and results, and what sharding each means
      (passes/sharding/README.md, section 3).
    }], "::tessera::graph::OpRule", "getShardingRule", (ins)>];
}

def Graph_Fusable : OpInterface<"Fusable"> {
  let cppNamespace = "::tessera::graph";
  let description = [{
    How fusion treats an op. A *view* only re-indexes its input; it becomes a kernel only if its
    result must be materialized.
  }];
  let methods = [
    InterfaceMethod<[{The skeleton for a kernel of this op alone.}],
      "::tessera::graph::ClusterKind", "getClusterKind", (ins)>,
    InterfaceMethod<[{Whether the op only re-indexes its (single) input.}],
      "bool", "isView", (ins), "", [{ return false; }]>];
}

def Graph_RowScatter : OpInterface<"RowScatter"> {
  let cppNamespace = "::tessera::graph";
  let description = [{
    Writes rows of `updates` to the rows `ids` of `base`, [rows, width]; other rows are unchanged.
    The result is stored in the base's memory.
  }];
  let methods = [
    InterfaceMethod<"The tensor whose rows are updated; operand 0.", "::mlir::Value", "getBase",
    (ins)>,
    InterfaceMethod<"Integers of any shape.", "::mlir::Value", "getIds", (ins)>,
    InterfaceMethod<"[shape of ids, width].", "::mlir::Value", "getUpdates", (ins)>,
    InterfaceMethod<"Whether rows are added to those of the base instead of replacing them.",
    "bool", "adds", (ins)>];
}

#endif
