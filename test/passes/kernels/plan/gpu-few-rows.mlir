// RUN: tessera-opt %s --plan-kernels=targets=cuda:sm_90a | FileCheck %s
// Few rows: narrow tiles of tensor cores, as many as fill the chip.

// CHECK: tile.plan = #tile.contraction_plan<tensor_core, lhs = memory, rhs = memory, tile = [16, 16]
func.func @f(%x: tensor<1x2048xbf16>, %w: tensor<2048x2048xbf16>) -> tensor<1x2048xbf16> {
  %y = graph.cluster contraction "linear" (%x, %w) : (tensor<1x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<1x2048xbf16> {
  ^bb0(%a: tensor<1x2048xbf16>, %b: tensor<2048x2048xbf16>):
    %r = graph.einsum "mk,nk->mn" %a, %b : (tensor<1x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<1x2048xbf16>
    graph.yield %r : tensor<1x2048xbf16>
  }
  return %y : tensor<1x2048xbf16>
}
