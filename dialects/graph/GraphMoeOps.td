// Mixtures of experts: which experts a token goes to, in which order the rows of
// one expert stand, and the way there and back. The experts themselves are
// grouped contractions.
#ifndef TESSERA_GRAPH_MOE_OPS
#define TESSERA_GRAPH_MOE_OPS

include "dialects/graph/GraphOpBase.td"

// Composites of integers: where something goes, which no gradient follows.
class Graph_RoutingOp<string mnemonic>
    : Graph_Op<mnemonic, [Graph_DecomposableOp, Graph_CostedDefault]> {
  let hasVerifier = 1;
}

def Graph_Indices : StaticShapeTensorOf<[I32]>;

def Graph_TopKOp : Graph_RoutingOp<"top_k"> {
  let summary = "indices of the k largest elements along the last dimension, the largest first";
  let description = [{
    `scores` [..., n] gives [..., k], 1 ≤ k ≤ n. Of equal elements the one with the lower index
    comes first. A row with a not-a-number may give −1, "none", more than once; never an index
    outside of the row.

    Each element counts those before it, n² comparisons a row: rows of experts are short, and
    a count needs neither a sorting network nor an order among threads.

    ```mlir
    %experts = graph.top_k %scores : (tensor<64x8xf32>) -> tensor<64x2xi32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$scores);
  let results = (outs Graph_Indices:$indices);
  let assemblyFormat = "$scores attr-dict `:` functional-type(operands, results)";
}

def Graph_TakeAlongAxisOp : Graph_Op<"take_along_axis", [Graph_DecomposableOp, Graph_DifferentiableOp, Graph_CostedDefault]> {
  let summary = "elements along the last dimension, by index";
  let description = [{
    result[..., j] = input[..., indices[..., j]]: `input` [..., n] and `indices` [..., k] with the same leading
    dimensions. An index outside of [0, n) gives zero.

    ```mlir
    %w = graph.take_along_axis %p at %experts : (tensor<64x8xf32>, tensor<64x2xi32>) -> tensor<64x2xf32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_Indices:$indices);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$input `at` $indices attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Graph_RankInGroupOp : Graph_RoutingOp<"rank_in_group"> {
  let summary = "how many entries of an entry's own group come before it in its row";
  let description = [{
    `ids` [rows, n] name each entry's group, one of `groups`; groups of different rows have nothing to do with
    each other. Without `scores` those come before that stand before; with `scores` [rows, n] those of a greater score, and of an
    equal one those that stand before. The rank of an entry of no group (an id outside of [0, groups)) means nothing.

    This is how capacity is kept: an expert that takes C tokens of a sequence takes those of rank < C. With scores
    the order is found by comparing all pairs of a row, without by counting.

    ```mlir
    %rank = graph.rank_in_group %experts groups 8 : (tensor<4x128xi32>) -> tensor<4x128xi32>
    ```
  }];
  let arguments = (ins Graph_Indices:$ids, Optional<Graph_FloatTensor>:$scores, I64Attr:$groups);
  let results = (outs Graph_Indices:$ranks);
  let assemblyFormat = "$ids (`by` $scores^)? `groups` $groups attr-dict `:` functional-type(operands, results)";
}

def Graph_GroupRowsOp : Graph_RoutingOp<"group_rows"> {
  let summary = "slots that put entries of one group in one run, in their order";
  let description = [{
    A stable counting sort. `ids` of any shape name each entry's group, one of groups = (elements of `offsets`) − 1. Group g has
    the slots offsets[g] … offsets[g + 1] − 1, and its entries stand there in row-major order; these are the `groups` of
    `graph.grouped_matmul`. An entry of no group (an id outside of [0, groups)) has the place −1: nowhere.

    ```mlir
    %offsets, %slots = graph.group_rows %experts : (tensor<64x2xi32>) -> (tensor<9xi32>, tensor<64x2xi32>)
    ```
  }];
  let arguments = (ins Graph_Indices:$ids);
  let results = (outs Graph_Indices:$offsets, Graph_Indices:$slots);
  let assemblyFormat = "$ids attr-dict `:` functional-type(operands, results)";
}

class Graph_RowsOp<string mnemonic>
    : Graph_Op<mnemonic, [Graph_DecomposableOp, Graph_DifferentiableOp,
                          DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>]> {
  let arguments = (ins Graph_FloatTensor:$input, Graph_Indices:$slots, Optional<Graph_FloatTensor>:$weights);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$input `slots` $slots (`weights` $weights^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Graph_DispatchRowsOp : Graph_RowsOp<"dispatch_rows"> {
  let summary = "each row to its slots";
  let description = [{
    `input` [tokens, width], `slots` [tokens, k] and, if given, `weights` [tokens, k] give [rows, width]:
    result[slots[t, j]] = weights[t, j] × input[t]. A negative place is nowhere; no two others are equal and none
    is `rows` or more, which `graph.group_rows` sees to. Rows that nothing goes to are zeros. Weights may be of a wider type than
    rows; what is computed is rounded once.

    The gradient for `input` is `combine_rows`, and the other way round.

    ```mlir
    %rows = graph.dispatch_rows %x slots %slots : (tensor<64x32xf32>, tensor<64x2xi32>) -> tensor<128x32xf32>
    ```
  }];
}

def Graph_CombineRowsOp : Graph_RowsOp<"combine_rows"> {
  let summary = "for each token the sum of its rows";
  let description = [{
    `input` [rows, width], `slots` [tokens, k] and, if given, `weights` [tokens, k] give [tokens, width]:
    result[t] = Σⱼ weights[t, j] × input[slots[t, j]], summed in f32 (f64 for f64) in the order of j. A negative place adds nothing.
    Slots are those of a `dispatch_rows`: the gradient relies on it that none occurs twice.

    ```mlir
    %y = graph.combine_rows %rows slots %slots weights %w : (tensor<128x32xf32>, tensor<64x2xi32>, tensor<64x2xf32>) -> tensor<64x32xf32>
    ```
  }];
}

def Graph_DotRowsOp : Graph_Op<"dot_rows", [Graph_DecomposableOp, DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>]> {
  let summary = "each token's row times each of its rows elsewhere";
  let description = [{
    `input` [tokens, width], `rows` [rows, width] and `slots` [tokens, k] give [tokens, k]:
    result[t, j] = input[t] · rows[slots[t, j]], summed in f32 (f64 for f64); zero where the place is negative. The gradient
    for the weights of `dispatch_rows` and `combine_rows`.

    ```mlir
    %dw = graph.dot_rows %dy, %rows slots %slots : (tensor<64x32xf32>, tensor<128x32xf32>, tensor<64x2xi32>) -> tensor<64x2xf32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_FloatTensor:$rows, Graph_Indices:$slots);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$input `,` $rows `slots` $slots attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

#endif
