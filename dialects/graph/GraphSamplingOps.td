// Sampling of tokens from logits. Separate from GraphOps.td, like GraphQuantOps.td.
#ifndef TESSERA_GRAPH_SAMPLING_OPS
#define TESSERA_GRAPH_SAMPLING_OPS

include "dialects/graph/GraphOpBase.td"

def Graph_SampleOp : Graph_Op<"sample", [DeclareOpInterfaceMethods<Graph_Costed, ["getFlops",
    "getBytes"]>, Graph_FusableOp, Graph_ShardableOp,
    Graph_InfersTypes<"tensorType(op.getLimits()).clone({shapeOf(op.getLogits())[0]})">]> {
  let summary = "samples the next token of each sequence from its logits";
  let description = [{
    The algorithm is that of runtime/support/TokenChoice.h; after the weights it computes with
    integers only, so every target samples the same tokens, in any batch. For row b of `logits`
    [batch, vocab], in this order:

    1. Token t is excluded unless bit t / W of word t mod W of row b of `allowed` [batch, W] is set;
       W is at least vocab / 32.
    2. The logits of the tokens in row b of `changed` [batch, entries] become (l + c0) / (l + c0 > 0
       ? c1 : c2) - c3, c being their `changes` [batch, entries, 4]. Tokens are distinct; values
       outside [0, vocab) are ignored.
    3. `options` [batch, 2] are a temperature (0: the likeliest token) and min_p. `limits` [batch,
       4] are top_k and top_p in units of 2^-32 (each 0: no limit), and 64 random bits, the lower
       ones first, that select one of the remaining tokens.

    The result is -1 if a logit is NaN, -2 if no token remains.

    ```mlir
    %token = graph.sample %logits allowed %mask change %tokens by %changes options %options
      limits %limits : tensor<2x96xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>,
        tensor<2x2xf32>,
        tensor<2x4xi32> -> tensor<2xi32>
    ```
  }];
  let arguments = (ins StaticShapeTensorOf<[F32]>:$logits, StaticShapeTensorOf<[I32]>:$allowed,
                       StaticShapeTensorOf<[I32]>:$changed, StaticShapeTensorOf<[F32]>:$changes,
                       StaticShapeTensorOf<[F32]>:$options, StaticShapeTensorOf<[I32]>:$limits);
  let results = (outs StaticShapeTensorOf<[I32]>:$result);
  let assemblyFormat = [{
    $logits `allowed` $allowed `change` $changed `by` $changes `options` $options `limits` $limits
    attr-dict `:` type($logits) `,` type($allowed) `,` type($changed) `,` type($changes) `,`
    type($options) `,` type($limits) `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::sample;
    }
  }];
}

#endif
