// Ops at which rows of experts may be exchanged among devices. Separate from
// GraphOps.td, whose header is included nearly everywhere: few files use these.
#ifndef TESSERA_GRAPH_EXCHANGE_OPS
#define TESSERA_GRAPH_EXCHANGE_OPS

include "dialects/graph/GraphOpBase.td"

class Graph_ExchangeOp<string mnemonic, string types>
    : Graph_Op<mnemonic, [Graph_DecomposableOp, Graph_DifferentiableOp, Graph_InfersTypes<types>,
                          DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>,
                          Graph_ShardableOp]> {
  let arguments = (ins Graph_FloatTensor:$rows, StaticShapeTensorOf<[I32]>:$slots,
                       StaticShapeTensorOf<[I32]>:$groups,
                       UnitAttr:$always, OptionalAttr<F64Attr>:$buffer);
  let assemblyFormat = [{
    $rows `slots` $slots `groups` $groups attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Graph_SendRowsOp : Graph_ExchangeOp<"send_rows",
    "op.getRows().getType(), op.getGroups().getType()"> {
  let summary = "marks rows that may be exchanged from the devices of their tokens to those of "
                "their groups";
  let description = [{
    `rows` [tokens × k, width] in the order of `groups` [groups + 1], as `graph.group_rows` gives it
    with `slots` [tokens, k]. The results are the same rows and groups: nothing is computed. If
    tokens and groups are sharded along an axis, rows are exchanged here if sharding estimates that
    to be cheaper than an all-gather of tokens; with `always`, in any case. With `buffer` a device
    has room for that many times the mean number of rows; what does not fit is exchanged and
    computed in further rounds, for which `add-overflow-rounds` adds `overflow` loops.

    Created by model builders. `partition-to-local` replaces it by an exchange or removes it;
    without a mesh `decompose-composites` removes it.

    ```mlir
    %sent, %theirs = graph.send_rows %rows slots %slots groups %offsets : (tensor<128x32xf32>,
      tensor<64x2xi32>, tensor<9xi32>) -> (tensor<128x32xf32>, tensor<9xi32>)
    ```
  }];
  let results = (outs Graph_FloatTensor:$sent, StaticShapeTensorOf<[I32]>:$sentGroups);
}

def Graph_ReturnRowsOp : Graph_ExchangeOp<"return_rows", "op.getRows().getType()"> {
  let summary = "marks rows that may be exchanged back to the devices of their tokens";
  let description = [{
    The inverse of `send_rows`. Each op is the gradient of the other. `slots` and `groups` are those
    of the `send_rows`; rows return in their order.

    ```mlir
    %rows = graph.return_rows %made slots %slots groups %offsets : (tensor<128x32xf32>,
      tensor<64x2xi32>, tensor<9xi32>) -> tensor<128x32xf32>
    ```
  }];
  let results = (outs Graph_FloatTensor:$result);
}

#endif
