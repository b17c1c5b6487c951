// RUN: tessera-opt %s --plan-kernels="targets=cpu:amx,cpu:avx2 print" 2>&1 | FileCheck %s
// RUN: tessera-opt %s --plan-kernels="targets=cpu:avx2" | FileCheck %s --check-prefix=VECTOR
// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_80 print" 2>&1 | FileCheck %s --check-prefix=GPU
// CHECK:  decode - paged_attention matrix bf16 memory int8 pages 8x64 2
// VECTOR: tile.plan = #tile.attention_plan<vector, tile = [4, 64]>
// GPU: decode_splits - paged_attention tensor_core bf16 memory int8 pages 16x64 8
// GPU: decode_combine - paged_attention - - - - 8
// GPU: tile.plan = #tile.attention_plan<tensor_core, tile = [16, 64], split = 256>
!q = tensor<1x1x8x64xbf16>
!k = tensor<20x64x2x64xi8>
!s = tensor<20x64x2x1xbf16>
func.func @f(%q: !q, %k: !k, %s: !s, %t: tensor<1x16xi32>, %n: tensor<1xi32>) -> !q {
  %x = graph.cluster paged_attention "decode"(%q, %k, %s, %t, %n) : (!q, !k, !s, tensor<1x16xi32>, tensor<1xi32>) -> !q {
  ^bb0(%a: !q, %b: !k, %c: !s, %d: tensor<1x16xi32>, %e: tensor<1xi32>):
    %f = graph.dequantize_rows %b, %c : !k, !s -> tensor<20x64x2x64xbf16>
    %g = graph.paged_attention %a, %f, %f pages %d starts %e lengths %e scale 0.125 : !q, tensor<20x64x2x64xbf16>, tensor<1x16xi32>, tensor<1xi32>
    graph.yield %g : !q
  }
  return %x : !q
}
