// RUN: tessera-opt %s --verify-fused --split-input-file --verify-diagnostics

func.func @outside(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'graph.exp' is not in a cluster}}
  %y = graph.exp %x : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @gap(%x: tensor<4x4xf32>) -> tensor<4x2xf32> {
  // expected-error @+1 {{slice has gaps or does not start at a multiple of 64 bytes, but is not in a cluster}}
  %y = graph.slice %x [0, 1] : tensor<4x4xf32> -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// -----

func.func @kind(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error @+1 {{cluster of kind elementwise holds 1 contractions, expected 0}}
  %y = graph.cluster elementwise "linear"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    %e = graph.einsum "mk,kn->mn" %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    graph.yield %e : tensor<4x4xf32>
  }
  return %y : tensor<4x4xf32>
}

// -----

func.func @fine(%x: tensor<4x4xf32>) -> tensor<16xf32> {
  %y = graph.cluster elementwise "exp"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    %e = graph.exp %a : tensor<4x4xf32>
    graph.yield %e : tensor<4x4xf32>
  }
  %r = graph.reshape %y : tensor<4x4xf32> -> tensor<16xf32>
  return %r : tensor<16xf32>
}
