// RUN: tessera-opt %s --split-input-file --verify-diagnostics --f32-weight-gradients

// expected-error @+1 {{has no program 'gradients' with a body; differentiate makes it}}
module {
}

// -----

func.func @gradients(%w: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {graph.program = #graph.program<gradients>} {
  // expected-error @+1 {{has values that are not tensors; a graph function has no others}}
  %c = arith.constant 1.0 : f32
  return %w, %w : tensor<4xf32>, tensor<4xf32>
}
