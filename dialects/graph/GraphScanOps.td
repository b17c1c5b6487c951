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

#endif
