// What passes ask of an op that computes. Each is a short entry an op; passes know only structural ops by name
// (passes/README.md).
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
      Emits the vector-Jacobian product at `builder`'s insertion point. `cotangents`
      has one value a result (null where that result has no influence on the loss),
      each of the result's type. Returns one value an operand, of the operand's
      type, null where the operand gets no gradient. May use operands and results
      of the op itself: the caller saves or recomputes them.
    }],
    "::llvm::SmallVector<::mlir::Value>", "buildVjp",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$cotangents)>];
}

def Graph_Elementwise : OpInterface<"Elementwise"> {
  let cppNamespace = "::tessera::graph";
  let description = [{
    An op whose result element depends only on the like-placed operand elements.
    All operands and the result have one shape; element types may differ.
  }];
  let methods = [
    InterfaceMethod<[{
      Emits the op on scalars or on vectors of any shape, in arith and math ops.
      Float operands and results are f32 (f64 operands stay f64), a conversion to
      a narrower float rounds; i1 and integers are as in the tensor, but signless
      (ui8 is held in i8). `operands` are in operand order.
    }], "::mlir::Value", "emitScalar",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$operands)>,
    InterfaceMethod<[{
      The reference: one element in double precision (booleans are 0 and 1).
    }], "double", "evaluateScalar", (ins "::llvm::ArrayRef<double>":$operands)>];
}

def Graph_Decomposable : OpInterface<"Decomposable"> {
  let cppNamespace = "::tessera::graph";
  let description = [{
    A composite: an op that carries meaning worth keeping. Its decomposition
    into primitives is its definition, and the twin it is tested against.
  }];
  let methods = [InterfaceMethod<[{
      Emits the primitives at `builder`'s insertion point and returns one value a result.
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

def Graph_Fusable : OpInterface<"Fusable"> {
  let cppNamespace = "::tessera::graph";
  let description = [{
    The part that an op plays in a cluster. A *view* only re-indexes and never
    becomes a kernel of its own unless its result must be materialized.
  }];
  let methods = [
    InterfaceMethod<[{The skeleton this op alone would need.}],
      "::tessera::graph::ClusterKind", "getClusterKind", (ins)>,
    InterfaceMethod<[{Whether the op only re-indexes its (single) input.}],
      "bool", "isView", (ins), "", [{ return false; }]>];
}

def Graph_RowScatter : OpInterface<"RowScatter"> {
  let cppNamespace = "::tessera::graph";
  let description = [{
    Rows of `updates` go to the rows `ids` of `base`, [rows, width], and the rest of it stays: the
    result takes the base's place in memory.
  }];
  let methods = [
    InterfaceMethod<"What is scattered onto; operand 0.", "::mlir::Value", "getBase", (ins)>,
    InterfaceMethod<"Integers of any shape.", "::mlir::Value", "getIds", (ins)>,
    InterfaceMethod<"[shape of ids, width].", "::mlir::Value", "getUpdates", (ins)>,
    InterfaceMethod<"Whether rows are added to those of the base instead of replacing them.", "bool", "adds", (ins)>];
}

#endif
