// RUN: tessera-opt %s --plan-kernels=targets=cuda:sm_90a | FileCheck %s
// Many rows: TMA and warp specialization.

// CHECK: tile.plan = #tile.contraction_plan<warp_specialized, lhs = memory, rhs = memory
func.func @f(%x: tensor<4096x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> {
  %y = graph.cluster contraction "linear" (%x, %w) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> {
  ^bb0(%a: tensor<4096x4096xbf16>, %b: tensor<4096x4096xbf16>):
    %r = graph.einsum "mk,nk->mn" %a, %b : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    graph.yield %r : tensor<4096x4096xbf16>
  }
  return %y : tensor<4096x4096xbf16>
}
