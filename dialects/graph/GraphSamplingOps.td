// The choice of a token from its logits. Apart from GraphOps.td, as GraphQuantOps.td is.
#ifndef TESSERA_GRAPH_SAMPLING_OPS
#define TESSERA_GRAPH_SAMPLING_OPS

include "dialects/graph/GraphOpBase.td"

def Graph_SampleOp : Graph_Op<"sample", [DeclareOpInterfaceMethods<Graph_Costed, ["getFlops", "getBytes"]>, Graph_FusableOp]> {
  let summary = "the next token of each sequence, drawn by the probabilities that its logits give";
  let description = [{
    runtime/support/TokenChoice.h says what is computed, in integers from the weights on: the same tokens on every
    target, whatever else is in the batch. Of row b of `logits` [batch, vocab], in this order:

    1. Token t is left out unless bit t / W of word t mod W of row b of `allowed` [batch, W] is set; W is at least
       vocab / 32.
    2. The logits of the tokens in row b of `changed` [batch, entries] become (l + c0) / (l + c0 > 0 ? c1 : c2) - c3, c
       being their `changes` [batch, entries, 4]. No token stands there twice; what is outside of [0, vocab) is none.
    3. `options` [batch, 2] are a temperature, 0 for the likeliest token, and min_p. `limits` [batch, 4] are top_k and
       top_p in units of 2^-32, each 0 where it does not limit, and 64 random bits, the lower ones first, that say
       which of the tokens that are left is drawn.

    -1 where a logit is not a number, -2 where no token is left.

    ```mlir
    %token = graph.sample %logits allowed %mask change %tokens by %changes options %options limits %limits
      : tensor<2x96xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
    ```
  }];
  let arguments = (ins StaticShapeTensorOf<[F32]>:$logits, StaticShapeTensorOf<[I32]>:$allowed,
                       StaticShapeTensorOf<[I32]>:$changed, StaticShapeTensorOf<[F32]>:$changes,
                       StaticShapeTensorOf<[F32]>:$options, StaticShapeTensorOf<[I32]>:$limits);
  let results = (outs StaticShapeTensorOf<[I32]>:$result);
  let assemblyFormat = [{
    $logits `allowed` $allowed `change` $changed `by` $changes `options` $options `limits` $limits attr-dict
    `:` type($logits) `,` type($allowed) `,` type($changed) `,` type($changes) `,` type($options) `,` type($limits) `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::sample;
    }
  }];
}

#endif
