// RUN: tessera-opt %s --plan-kernels=targets=cpu:avx512 | FileCheck %s
// Few queries and keys a block: the scores of a tile stay in cache.

// CHECK: tile.plan = #tile.attention_plan<vector, tile = [64, 64]>
!q = tensor<1x4096x8x128xbf16>
!k = tensor<1x4096x2x128xbf16>
func.func @f(%q: !q, %k: !k) -> !q {
  %y = graph.cluster attention "attention"(%q, %k) : (!q, !k) -> !q {
  ^bb0(%a: !q, %b: !k):
    %o:2 = graph.attention %a, %b, %b scale 0.1 {causal} : !q, !k, !k -> !q, tensor<1x8x4096xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}
