// RUN: tessera-opt %s --plan-kernels=targets=cuda:sm_80 | FileCheck %s
// No TMA: mma.sync on the largest tile.

// CHECK: tile.plan = #tile.contraction_plan<tensor_core, lhs = memory, rhs = memory, tile = [128, 128]
func.func @f(%x: tensor<4096x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> {
  %y = graph.cluster contraction "linear" (%x, %w) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> {
  ^bb0(%a: tensor<4096x4096xbf16>, %b: tensor<4096x4096xbf16>):
    %r = graph.einsum "mk,nk->mn" %a, %b : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    graph.yield %r : tensor<4096x4096xbf16>
  }
  return %y : tensor<4096x4096xbf16>
}
