// Where rows of experts may change devices. Apart from GraphOps.td, whose
// header nearly everything includes: few make or look at these.
#ifndef TESSERA_GRAPH_EXCHANGE_OPS
#define TESSERA_GRAPH_EXCHANGE_OPS

include "dialects/graph/GraphOpBase.td"

class Graph_ExchangeOp<string mnemonic>
    : Graph_Op<mnemonic, [Graph_DecomposableOp, Graph_DifferentiableOp,
                          DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>]> {
  let arguments = (ins Graph_FloatTensor:$rows, StaticShapeTensorOf<[I32]>:$slots, StaticShapeTensorOf<[I32]>:$groups,
                       UnitAttr:$always);
  let assemblyFormat = "$rows `slots` $slots `groups` $groups attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Graph_SendRowsOp : Graph_ExchangeOp<"send_rows"> {
  let summary = "rows on their way from the devices of their tokens to those of their groups";
  let description = [{
    `rows` [tokens × k, width] in the order of `groups` [groups + 1], as `graph.group_rows` gives it with `slots` [tokens, k].
    The results are the same rows and groups: nothing is computed. Where tokens are cut along an axis and groups are, too, this is
    where rows are exchanged, if sharding finds that cheaper than to bring all tokens to every group; with `always` it does not ask.

    Model builders make it. `partition-to-local` makes an exchange of it or nothing; without a mesh `decompose-composites` removes it.

    ```mlir
    %sent, %theirs = graph.send_rows %rows slots %slots groups %offsets : (tensor<128x32xf32>, tensor<64x2xi32>, tensor<9xi32>) -> (tensor<128x32xf32>, tensor<9xi32>)
    ```
  }];
  let results = (outs Graph_FloatTensor:$sent, StaticShapeTensorOf<[I32]>:$sentGroups);
}

def Graph_ReturnRowsOp : Graph_ExchangeOp<"return_rows"> {
  let summary = "rows on their way back to the devices of their tokens";
  let description = [{
    The inverse of `send_rows`, and its gradient, as `send_rows` is the gradient of this. `slots` and `groups` are those of the
    `send_rows`: in the order of these rows come back.

    ```mlir
    %rows = graph.return_rows %made slots %slots groups %offsets : (tensor<128x32xf32>, tensor<64x2xi32>, tensor<9xi32>) -> tensor<128x32xf32>
    ```
  }];
  let results = (outs Graph_FloatTensor:$result);
}

#endif
