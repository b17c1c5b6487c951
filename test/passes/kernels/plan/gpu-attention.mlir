// RUN: tessera-opt %s --plan-kernels=targets=cuda:sm_90a | FileCheck %s
// Two consumers of warp specialization alternate on the tensor cores.

// CHECK: tile.plan = #tile.attention_plan<warp_specialized, tile = [128, 128], ping_pong = true>
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
