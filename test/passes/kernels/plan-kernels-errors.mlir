// RUN: tessera-opt %s --plan-kernels="targets=cpu:amx" --split-input-file --verify-diagnostics
// Plans written by hand that no kernel has.

func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  // expected-error @+1 {{cluster 'linear' has no kernel: tile.plan: the engine tensor_core cannot multiply these operands; expected matrix}}
  %y = graph.cluster contraction "linear" (%x, %w) attributes {tile.plan = #tile.contraction_plan<tensor_core, lhs = memory, rhs = memory, tile = [64, 512]>} : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %y : tensor<512x512xbf16>
}

// -----

func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  // expected-error @+1 {{cluster 'linear' has no kernel: tile.plan: lhs cannot be integers; expected memory}}
  %y = graph.cluster contraction "linear" (%x, %w) attributes {tile.plan = #tile.contraction_plan<matrix, lhs = integers, rhs = memory, tile = [64, 512]>} : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %y : tensor<512x512xbf16>
}

// -----

func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  // expected-error @+1 {{cluster 'linear' has no kernel: tile.plan: rhs cannot be streamed; expected memory}}
  %y = graph.cluster contraction "linear" (%x, %w) attributes {tile.plan = #tile.contraction_plan<matrix, lhs = memory, rhs = streamed, tile = [64, 512]>} : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %y : tensor<512x512xbf16>
}

// -----

func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  // expected-error @+1 {{cluster 'linear' has no kernel: tile.plan: a tile of 48 rows; expected a multiple of 32, or all 512, at most 2048}}
  %y = graph.cluster contraction "linear" (%x, %w) attributes {tile.plan = #tile.contraction_plan<matrix, lhs = memory, rhs = memory, tile = [48, 512]>} : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %y : tensor<512x512xbf16>
}

// -----

func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  // expected-error @+1 {{cluster 'linear' has no kernel: tile.plan: a tile of 1024 columns; expected a multiple of 16, or all 512, at most 1536}}
  %y = graph.cluster contraction "linear" (%x, %w) attributes {tile.plan = #tile.contraction_plan<matrix, lhs = memory, rhs = memory, tile = [64, 1024]>} : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %y : tensor<512x512xbf16>
}

// -----

func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  // expected-error @+1 {{cluster 'linear' has no kernel: tile.plan: expected #tile.contraction_plan<…>, got #tile.attention_plan<vector, tile = [64, 64]>}}
  %y = graph.cluster contraction "linear" (%x, %w) attributes {tile.plan = #tile.attention_plan<vector, tile = [64, 64]>} : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %y : tensor<512x512xbf16>
}
