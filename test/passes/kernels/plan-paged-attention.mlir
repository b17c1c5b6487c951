// RUN: tessera-opt %s --plan-kernels="targets=cpu:amx,cpu:avx2 print" 2>&1 | FileCheck %s
// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_80 print" 2>&1 | FileCheck %s --check-prefix=SM80
// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_90a" | FileCheck %s --check-prefix=SM90
// CHECK: prefill - paged_attention matrix bf16 memory int8 pages 64x64 16
// CHECK: tile.plan = #tile.attention_plan<matrix, tile = [64, 64]>
// SM80:  prefill - paged_attention tensor_core bf16 memory int8 pages 64x64 16
// SM80:  tile.plan = #tile.attention_plan<tensor_core, tile = [64, 64]>
// SM90:  tile.plan = #tile.attention_plan<warpgroup, tile = [64, 64]>
!q = tensor<1x70x8x64xbf16>
!k = tensor<20x64x2x64xi8>
!s = tensor<20x64x2x1xbf16>
func.func @f(%q: !q, %k: !k, %s: !s, %t: tensor<1x16xi32>, %n: tensor<1xi32>) -> !q {
  %x = graph.cluster paged_attention "prefill"(%q, %k, %s, %t, %n) : (!q, !k, !s, tensor<1x16xi32>, tensor<1xi32>) -> !q {
  ^bb0(%a: !q, %b: !k, %c: !s, %d: tensor<1x16xi32>, %e: tensor<1xi32>):
    %f = graph.dequantize_rows %b, %c : !k, !s -> tensor<20x64x2x64xbf16>
    %g = graph.paged_attention %a, %f, %f pages %d starts %e lengths %e scale 0.125 : !q, tensor<20x64x2x64xbf16>, tensor<1x16xi32>, tensor<1xi32>
    graph.yield %g : !q
  }
  return %x : !q
}
