// RUN: tessera-opt %s --plan-kernels=targets=cpu:avx512 | FileCheck %s
// RUN: tessera-opt %s --plan-kernels=targets=cuda:sm_90a | FileCheck %s --check-prefix=GPU
// Few rows by integer weights: rows become integers in a launch before, weights are read in place.
// On a GPU weights are dequantized for tensor cores.

// CHECK: tile.plan = #tile.contraction_plan<vector, lhs = integers, rhs = streamed
// GPU: tile.plan = #tile.contraction_plan<tensor_core, lhs = memory, rhs = memory
func.func @f(%x: tensor<1x2048xbf16>, %q: tensor<128x256x16xi32>, %s: tensor<128x64x16xf16>) -> tensor<1x2048xf32> {
  %r = graph.cluster contraction "linear"(%x, %q, %s) : (tensor<1x2048xbf16>, tensor<128x256x16xi32>, tensor<128x64x16xf16>) -> tensor<1x2048xf32> {
  ^bb0(%a: tensor<1x2048xbf16>, %b: tensor<128x256x16xi32>, %c: tensor<128x64x16xf16>):
    %d = graph.dequantize %b, %c bits 4 group 32 : tensor<128x256x16xi32>, tensor<128x64x16xf16> -> tensor<2048x2048xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<1x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<1x2048xf32>
    graph.yield %e : tensor<1x2048xf32>
  }
  return %r : tensor<1x2048xf32>
}
