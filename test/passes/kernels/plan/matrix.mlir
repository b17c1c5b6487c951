// RUN: tessera-opt %s --plan-kernels=targets=cpu:amx | FileCheck %s
// bf16 is multiplied in matrix registers.

// CHECK: tile.plan = #tile.contraction_plan<matrix, lhs = memory, rhs = memory
func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  %y = graph.cluster contraction "linear" (%x, %w) : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %y : tensor<512x512xbf16>
}
