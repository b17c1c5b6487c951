// RUN: tessera-opt %s --plan-kernels="targets=cpu:avx2 print" 2>&1 | FileCheck %s
// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_80 print" 2>&1 | FileCheck %s --check-prefix=SM80
// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_90a print" 2>&1 | FileCheck %s --check-prefix=SM90

// CHECK: grad - attention_grad vector bf16 memory bf16 memory 64x64 2
// CHECK: tile.plan = #tile.attention_plan<vector, tile = [64, 64]>
// SM80:      grad_delta - attention_grad - bf16 memory bf16 memory - 76
// SM80-NEXT: grad_keys_values - attention_grad tensor_core bf16 memory bf16 memory 32x64 10
// SM80-NEXT: grad_queries - attention_grad tensor_core bf16 memory bf16 memory 64x32 20
// SM80:      tile.plan = #tile.attention_grad_plan<tensor_core, dkv = [32, 64], dq = [64, 32]>
// SM90:      grad_keys_values - attention_grad warp_specialized bf16 memory bf16 memory 48x128 6
// SM90-NEXT: grad_queries - attention_grad warp_specialized bf16 memory bf16 memory 128x64 12
// SM90:      tile.plan = #tile.attention_grad_plan<warp_specialized, dkv = [48, 128], dq = [128, 64]>
!q = tensor<1x300x4x128xbf16>
!k = tensor<1x300x2x128xbf16>
!lse = tensor<1x4x300xf32>
func.func @f(%q: !q, %k: !k, %l: !lse) -> (!q, !k, !k) {
  %g:3 = graph.cluster attention_grad "grad"(%q, %k, %l) : (!q, !k, !lse) -> (!q, !k, !k) {
  ^bb0(%a: !q, %b: !k, %c: !lse):
    %o:3 = graph.attention_grad %a, %b, %b, %a, %c, %a scale 0.1 {causal} : !q, !k, !k, !q, !lse, !q
    graph.yield %o#0, %o#1, %o#2 : !q, !k, !k
  }
  return %g#0, %g#1, %g#2 : !q, !k, !k
}
