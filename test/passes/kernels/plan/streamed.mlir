// RUN: tessera-opt %s --plan-kernels=targets=cpu:avx2 | FileCheck %s
// Few rows read contiguous columns in place, each once.

// CHECK: tile.plan = #tile.contraction_plan<vector, lhs = memory, rhs = streamed
func.func @f(%x: tensor<1x2048xf32>, %w: tensor<2048x2048xf32>) -> tensor<1x2048xf32> {
  %y = graph.cluster contraction "linear" (%x, %w) : (tensor<1x2048xf32>, tensor<2048x2048xf32>) -> tensor<1x2048xf32> {
  ^bb0(%a: tensor<1x2048xf32>, %b: tensor<2048x2048xf32>):
    %r = graph.einsum "mk,nk->mn" %a, %b : (tensor<1x2048xf32>, tensor<2048x2048xf32>) -> tensor<1x2048xf32>
    graph.yield %r : tensor<1x2048xf32>
  }
  return %y : tensor<1x2048xf32>
}
