// The graph dialect: what is computed. See README.md in this folder.
#ifndef TESSERA_GRAPH_DIALECT
#define TESSERA_GRAPH_DIALECT

include "mlir/IR/OpBase.td"

def Graph_Dialect : Dialect {
  let name = "graph";
  let cppNamespace = "::tessera::graph";
  let summary = "What is computed: static-shape tensors with value semantics";
  let description = [{
    Operations on ranked, statically shaped tensors. Nothing here has a place,
    an order beyond data flow, or a side effect. Layers are private functions
    with the attribute `graph.block`, called once a layer.

    Function arguments and results carry what they stand for:
    `graph.state = "NAME"` (a tensor that persists across steps; NAME is the
    checkpoint name), `graph.role` (a `#graph.role`), `graph.input = "NAME"`,
    `graph.output = "NAME"`.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

#endif
