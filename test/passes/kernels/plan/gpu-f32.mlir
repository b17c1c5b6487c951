// RUN: tessera-opt %s --plan-kernels=targets=cuda:sm_90a | FileCheck %s
// f32 is three matmuls of tf32: warpgroups multiply bf16 alone.

// CHECK: tile.plan = #tile.contraction_plan<tensor_core, lhs = memory, rhs = memory
func.func @f(%x: tensor<4096x4096xf32>, %w: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %y = graph.cluster contraction "linear" (%x, %w) : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  ^bb0(%a: tensor<4096x4096xf32>, %b: tensor<4096x4096xf32>):
    %r = graph.einsum "mk,nk->mn" %a, %b : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    graph.yield %r : tensor<4096x4096xf32>
  }
  return %y : tensor<4096x4096xf32>
}
