// RUN: tessera-opt %s --emit-kernels="targets=cpu:amx" --split-input-file | FileCheck %s
// A plan that was written by hand decides: 8 blocks of 64 × 512 in vector registers.

// CHECK: tile.launch @linear({{.*}}) blocks [8]
// CHECK-NOT: tile.mma_staged
func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  %y = graph.cluster contraction "linear" (%x, %w) attributes {tile.plan = #tile.contraction_plan<vector, lhs = memory, rhs = memory, tile = [64, 512]>} : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %y : tensor<512x512xbf16>
}
