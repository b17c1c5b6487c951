// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_90a" --split-input-file --verify-diagnostics
// Plans written by hand that no kernel has.

func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  // expected-error-re @+1 {{cluster 'linear' has no kernel: tile.plan: no kernel has the tile 100x100; expected one of {{.*}}128x128}}
  %y = graph.cluster contraction "linear" (%x, %w) attributes {tile.plan = #tile.contraction_plan<warp_specialized, lhs = memory, rhs = memory, tile = [100, 100]>} : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %y : tensor<512x512xbf16>
}

// -----

func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  // expected-error @+1 {{cluster 'linear' has no kernel: tile.plan: the kernel of tile 64x64 is warp_specialized, lhs = memory, rhs = memory}}
  %y = graph.cluster contraction "linear" (%x, %w) attributes {tile.plan = #tile.contraction_plan<tensor_core, lhs = memory, rhs = memory, tile = [64, 64]>} : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %y : tensor<512x512xbf16>
}
