// RUN: tessera-opt %s --plan-kernels="targets=cpu:avx512 print" -o %t 2>&1 | FileCheck %s
// RUN: FileCheck %s --check-prefix=PLAN --input-file=%t
// RUN: not tessera-opt %s --plan-kernels=targets=cuda:sm_90a -o /dev/null 2>&1 | FileCheck %s --check-prefix=GPU
// Few rows by weights in super-blocks: rows of bf16 become integers in a launch before, rows of f32 are multiplied as they
// are, and weights are read in place. Many rows meet panels that are dequantized. GPUs do not support them.

// CHECK: integers q4_K streamed
// CHECK: f32 memory q6_K streamed
// CHECK: bf16 memory q5_K memory
// PLAN: tile.plan = #tile.contraction_plan<vector, lhs = integers, rhs = streamed
// PLAN: tile.plan = #tile.contraction_plan<vector, lhs = memory, rhs = streamed
// PLAN: tile.plan = #tile.contraction_plan<vector, lhs = memory, rhs = memory
// GPU: GPUs do not support weights in super-blocks (K-quants); compile for cpu
func.func @f(%x: tensor<1x2048xbf16>, %y: tensor<4x2048xf32>, %z: tensor<256x2048xbf16>, %q: tensor<128x256x16xi32>, %r: tensor<128x384x16xi32>, %t: tensor<128x320x16xi32>, %s: tensor<128x40x16xi32>) -> (tensor<1x2048xf32>, tensor<4x2048xf32>, tensor<256x2048xf32>) {
  %0 = graph.cluster contraction "one"(%x, %q, %s) : (tensor<1x2048xbf16>, tensor<128x256x16xi32>, tensor<128x40x16xi32>) -> tensor<1x2048xf32> {
  ^bb0(%a: tensor<1x2048xbf16>, %b: tensor<128x256x16xi32>, %c: tensor<128x40x16xi32>):
    %d = graph.dequantize %b, %c bits 4 group 256 super_blocks : tensor<128x256x16xi32>, tensor<128x40x16xi32> -> tensor<2048x2048xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<1x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<1x2048xf32>
    graph.yield %e : tensor<1x2048xf32>
  }
  %1 = graph.cluster contraction "few"(%y, %r, %s) : (tensor<4x2048xf32>, tensor<128x384x16xi32>, tensor<128x40x16xi32>) -> tensor<4x2048xf32> {
  ^bb0(%a: tensor<4x2048xf32>, %b: tensor<128x384x16xi32>, %c: tensor<128x40x16xi32>):
    %d = graph.dequantize %b, %c bits 6 group 256 super_blocks : tensor<128x384x16xi32>, tensor<128x40x16xi32> -> tensor<2048x2048xf32>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<4x2048xf32>, tensor<2048x2048xf32>) -> tensor<4x2048xf32>
    graph.yield %e : tensor<4x2048xf32>
  }
  %2 = graph.cluster contraction "many"(%z, %t, %s) : (tensor<256x2048xbf16>, tensor<128x320x16xi32>, tensor<128x40x16xi32>) -> tensor<256x2048xf32> {
  ^bb0(%a: tensor<256x2048xbf16>, %b: tensor<128x320x16xi32>, %c: tensor<128x40x16xi32>):
    %d = graph.dequantize %b, %c bits 5 group 256 super_blocks : tensor<128x320x16xi32>, tensor<128x40x16xi32> -> tensor<2048x2048xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<256x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<256x2048xf32>
    graph.yield %e : tensor<256x2048xf32>
  }
  return %0, %1, %2 : tensor<1x2048xf32>, tensor<4x2048xf32>, tensor<256x2048xf32>
}
