// Recurrences along a dimension. Separate from GraphOps.td, whose header is
// included nearly everywhere: few files use these.
#ifndef TESSERA_GRAPH_SCAN_OPS
#define TESSERA_GRAPH_SCAN_OPS

include "dialects/graph/GraphOpBase.td"

def Graph_DiscountedSumOp : Graph_Op<"discounted_sum", [Graph_DecomposableOp, Graph_CostedDefault,
    Graph_ShardableOp, AllTypesMatch<["input", "result"]>]> {
  let summary = "discounted sums of what follows in a segment: a scan from the end";
  let description = [{
    Along the last dimension, with d = `discount`, from 0 to 1,

      result[t] = input[t] + d × result[t + 1]  if t + 1 is of the segment of t
      result[t] = input[t]                      otherwise

    `segments`, of the shape of `input`, gives the number of each element's segment. The elements
    of a segment are adjacent. What other segments contain, infinities too, does not matter.

    With one-step errors of a value function as input, and d = gamma × lambda, the results are the
    advantages of generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438,
    equation 16). The op has no gradient: such advantages are constants to a loss. Created by
    model builders, removed by `decompose-composites`.

    ```mlir
    %a = graph.discounted_sum %delta, %starts discount 0.95 : tensor<4x256xf32>, tensor<4x256xi32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_IntTensor:$segments, F64Attr:$discount);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $segments `discount` $discount attr-dict `:` type($input) `,` type($segments)
  }];
  let hasVerifier = 1;
}

def Graph_SegmentSumOp : Graph_Op<"segment_sum", [Graph_DecomposableOp, Graph_DifferentiableOp,
    Graph_CostedDefault, Graph_ShardableOp]> {
  let summary = "sums of all ranges of a row: exponents of decays between elements";
  let description = [{
    With `input` [..., n], `result` [..., n, n] of the same element type is

      result[l, s] = input[s + 1] + … + input[l]  if s <= l, else 0

    Terms are not positive, and one below -128, whose exponential is 0 in f32, counts as -128. Sums
    are differences of prefix sums, whose coarse part is exact. The gradient adds up ranges instead:
    differences of sums would cancel. Part of `state_space_scan`, removed by `decompose-composites`.

    ```mlir
    %e = graph.segment_sum %a : tensor<4x64xf32> -> tensor<4x64x64xf32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$input);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Graph_StateSpaceScanOp : Graph_Op<"state_space_scan", [AttrSizedOperandSegments,
    Graph_DecomposableOp, Graph_DifferentiableOp,
    DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>, Graph_ShardableOp,
    AllTypesMatch<["input", "result"]>, AllTypesMatch<["write", "read"]>]> {
  let summary = "a recurrence of states that decay: the scan of Mamba-2";
  let description = [{
    For each sequence and head, with states S [head_dim, state] (Dao and Gu 2024, arXiv 2405.21060,
    section 3 and equation 2):

      d[t]      = clip(log(1 + exp(step[t] + bias)), least, most)
      S[t]      = exp(d[t] × rate) S[t - 1] + d[t] input[t] write[t]ᵀ
      result[t] = S[t] read[t] + skip × input[t]

    `input` is [batch, tokens, heads, head_dim], `step` [batch, tokens, heads], `rate`, `skip` and
    `bias` are [heads], `write` and `read` [batch, tokens, groups, state]: the B and C of the paper,
    which heads / groups heads share. Rates are not positive. `last` [batch, heads, head_dim, state]
    is the state after the last token.

    States begin at zero, or at `initial`, of the shape of `last`. With `first` i32 [batch, tokens],
    the index of the first token of each token's document, they begin at zero in each document. With
    `counts` i32 [batch], tokens from the count of a sequence on have d = 0: they leave the state as
    it is.

    The decomposition computes chunks of `chunk` tokens (section 6 of the paper): products within a
    chunk, the states at the ends of chunks, and what states become from chunk to chunk. Results do
    not depend on `chunk` but by rounding; one token is one step. Exponents are sums
    (`segment_sum`), and decays never quotients of exponentials. The gradient computes chunks
    again, so that nothing but operands is saved. Created by model builders, removed by
    `decompose-composites`.

    ```mlir
    %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 64
      : (tensor<2x70x4x8xf32>, tensor<2x70x4xf32>, tensor<4xf32>, tensor<2x70x2x16xf32>,
         tensor<2x70x2x16xf32>, tensor<4xf32>, tensor<4xf32>)
      -> (tensor<2x70x4x8xf32>, tensor<2x4x8x16xf32>)
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_FloatTensor:$step, Graph_FloatTensor:$rate,
                       Graph_FloatTensor:$write, Graph_FloatTensor:$read, Graph_FloatTensor:$skip,
                       Graph_FloatTensor:$bias, Optional<StaticShapeTensorOf<[I32]>>:$first,
                       Optional<StaticShapeTensorOf<[I32]>>:$counts,
                       Optional<Graph_FloatTensor>:$initial, I64Attr:$chunk,
                       OptionalAttr<F64Attr>:$least, OptionalAttr<F64Attr>:$most);
  let results = (outs Graph_FloatTensor:$result, Graph_FloatTensor:$last);
  let assemblyFormat = [{
    $input `step` $step `rate` $rate `write` $write `read` $read `skip` $skip `bias` $bias
    (`first` $first^)? (`counts` $counts^)? (`from` $initial^)? `chunk` $chunk attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

#endif
