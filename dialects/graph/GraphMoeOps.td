// Mixtures of experts: routing of tokens to experts, the order of an expert's
// rows, dispatch and combine. The experts themselves are grouped contractions.
#ifndef TESSERA_GRAPH_MOE_OPS
#define TESSERA_GRAPH_MOE_OPS

include "dialects/graph/GraphOpBase.td"

// Composites that compute indices; they have no gradient.
class Graph_RoutingOp<string mnemonic, list<Trait> traits = []>
    : Graph_Op<mnemonic, !listconcat([Graph_DecomposableOp, Graph_CostedDefault,
                                      Graph_ShardableOp], traits)> {
  let hasVerifier = 1;
}

def Graph_Indices : StaticShapeTensorOf<[I32]>;

def Graph_TopKOp : Graph_RoutingOp<"top_k"> {
  let summary = "indices of the k largest elements along the last dimension, the largest first";
  let description = [{
    `scores` [..., n] gives [..., k], 1 ≤ k ≤ n. Of equal elements the one with the lower index
    comes first. A row with NaN may give −1, "none", more than once, but never an index outside the
    row.

    Each element counts the elements that precede it in the order, n² comparisons per row. Rows of
    experts are short, and counting needs neither a sorting network nor an order among threads.

    ```mlir
    %experts = graph.top_k %scores : (tensor<64x8xf32>) -> tensor<64x2xi32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$scores);
  let results = (outs Graph_Indices:$indices);
  let assemblyFormat = "$scores attr-dict `:` functional-type(operands, results)";
}

def Graph_TakeAlongAxisOp : Graph_Op<"take_along_axis", [Graph_DecomposableOp,
    Graph_DifferentiableOp, Graph_CostedDefault, Graph_ShardableOp,
    Graph_InfersTypes<"tensorType(op.getInput()).clone(shapeOf(op.getIndices()))">]> {
  let summary = "gathers elements along the last dimension by index";
  let description = [{
    result[..., j] = input[..., indices[..., j]]: `input` [..., n] and `indices` [..., k] with the
    same leading dimensions. An index outside [0, n) gives zero.

    ```mlir
    %w = graph.take_along_axis %p at %experts : (tensor<64x8xf32>, tensor<64x2xi32>)
      -> tensor<64x2xf32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_Indices:$indices);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$input `at` $indices attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Graph_RankInGroupOp : Graph_RoutingOp<"rank_in_group",
    [Graph_InfersTypes<"op.getIds().getType()">]> {
  let summary = "rank of each entry among the entries of its group in its row";
  let description = [{
    `ids` [rows, n] give each entry's group, one of `groups`; rows are independent. The rank is the
    number of entries of the same group that precede it: by index, or with `scores` [rows, n] by
    descending score, ties by index. The rank of an entry of no group (an id outside [0, groups)) is
    undefined.

    An expert of capacity C accepts the tokens of a sequence with rank < C. With scores all pairs of
    a row are compared; without, entries are counted.

    ```mlir
    %rank = graph.rank_in_group %experts groups 8 : (tensor<4x128xi32>) -> tensor<4x128xi32>
    ```
  }];
  let arguments = (ins Graph_Indices:$ids, Optional<Graph_FloatTensor>:$scores, I64Attr:$groups);
  let results = (outs Graph_Indices:$ranks);
  let assemblyFormat = [{
    $ids (`by` $scores^)? `groups` $groups attr-dict `:` functional-type(operands, results)
  }];
}

def Graph_GroupRowsOp : Graph_RoutingOp<"group_rows"> {
  let summary = "slots that order entries by group (a stable counting sort)";
  let description = [{
    `ids` of any shape give each entry's group, one of groups = (elements of `offsets`) − 1. Group g
    has the slots offsets[g] … offsets[g + 1] − 1, with its entries in row-major order; `offsets`
    are the `groups` of `graph.grouped_matmul`. An entry of no group (an id outside [0, groups)) has
    slot −1: none.

    ```mlir
    %offsets, %slots = graph.group_rows %experts : (tensor<64x2xi32>) -> (tensor<9xi32>,
      tensor<64x2xi32>)
    ```
  }];
  let arguments = (ins Graph_Indices:$ids);
  let results = (outs Graph_Indices:$offsets, Graph_Indices:$slots);
  let assemblyFormat = "$ids attr-dict `:` functional-type(operands, results)";
}

class Graph_RowsOp<string mnemonic, list<Trait> traits = []>
    : Graph_Op<mnemonic, !listconcat([Graph_DecomposableOp, Graph_DifferentiableOp,
                                      DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>,
                                      Graph_ShardableOp], traits)> {
  let arguments = (ins Graph_FloatTensor:$input, Graph_Indices:$slots,
                       Optional<Graph_FloatTensor>:$weights);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $input `slots` $slots (`weights` $weights^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Graph_DispatchRowsOp : Graph_RowsOp<"dispatch_rows"> {
  let summary = "copies each row to its slots";
  let description = [{
    `input` [tokens, width], `slots` [tokens, k] and, if given, `weights` [tokens, k] give [rows,
    width]: result[slots[t, j]] = weights[t, j] × input[t]. A negative slot is skipped; the others
    are distinct and less than `rows`, as `graph.group_rows` guarantees. Rows without a source are
    zeros. Weights may have a type of more bits than rows; the result is rounded once.

    The gradient for `input` is `combine_rows`, and vice versa.

    ```mlir
    %rows = graph.dispatch_rows %x slots %slots : (tensor<64x32xf32>, tensor<64x2xi32>)
      -> tensor<128x32xf32>
    ```
  }];
}

def Graph_CombineRowsOp : Graph_RowsOp<"combine_rows", [
    Graph_InfersTypes<"tensorType(op.getInput()).clone({shapeOf(op.getSlots())[0], "
                      "shapeOf(op.getInput())[1]})">]> {
  let summary = "sums the rows of each token";
  let description = [{
    `input` [rows, width], `slots` [tokens, k] and, if given, `weights` [tokens, k] give [tokens,
    width]: result[t] = Σⱼ weights[t, j] × input[slots[t, j]], summed in f32 (f64 for f64) in the
    order of j. A negative slot is skipped. Slots are those of a `dispatch_rows`: the gradient
    requires them to be distinct.

    ```mlir
    %y = graph.combine_rows %rows slots %slots weights %w : (tensor<128x32xf32>, tensor<64x2xi32>,
      tensor<64x2xf32>) -> tensor<64x32xf32>
    ```
  }];
}

def Graph_DotRowsOp : Graph_Op<"dot_rows", [Graph_DecomposableOp,
    DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>, Graph_ShardableOp,
    Graph_InfersShapes<"tensorType(op.getInput()).clone(shapeOf(op.getSlots()))">]> {
  let summary = "dot products of each token's row with its dispatched rows";
  let description = [{
    `input` [tokens, width], `rows` [rows, width] and `slots` [tokens, k] give [tokens, k]:
    result[t, j] = input[t] · rows[slots[t, j]], summed in f32 (f64 for f64); zero for a negative
    slot. The gradient for the weights of `dispatch_rows` and `combine_rows`.

    ```mlir
    %dw = graph.dot_rows %dy, %rows slots %slots : (tensor<64x32xf32>, tensor<128x32xf32>,
      tensor<64x2xi32>) -> tensor<64x2xf32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_FloatTensor:$rows, Graph_Indices:$slots);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $rows `slots` $slots attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

#endif
