// The graph dialect: the computation, independent of devices and memory. See README.md.
#ifndef TESSERA_GRAPH_DIALECT
#define TESSERA_GRAPH_DIALECT

include "mlir/IR/OpBase.td"

def Graph_Dialect : Dialect {
  let name = "graph";
  let cppNamespace = "::tessera::graph";
  let summary = "the computation: static-shape tensors with value semantics";
  let description = [{
    Operations on ranked, statically shaped tensors. Ops have no device, no memory location, no
    order beyond data flow, and no side effects. Layers are private functions with the attribute
    `graph.block`, called once per layer.

    Attributes of function arguments and results give their meaning: `graph.state = "NAME"` (a
    tensor that persists across steps; NAME is the checkpoint name), `graph.role` (a `#graph.role`),
    `graph.input = "NAME"`, `graph.output = "NAME"`. `graph.program` (a `#graph.program`) is what a
    function computes, `graph.layer` (a `#graph.layer`) the layer of a state tensor, of a call or of
    any other op.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

#endif
