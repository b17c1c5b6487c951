// RUN: tessera-opt %s --split-input-file --verify-diagnostics --build-eval-step

// expected-error @+1 {{has no program 'loss' with a body; importing a model makes it}}
module {
}

// -----

// expected-error @+1 {{has no argument with graph.input = "tokens" or "targets"}}
func.func @loss(%tokens: tensor<4xi32> {graph.input = "tokens"}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %l = graph.constant dense<0.0> : tensor<f32>
  return %l : tensor<f32>
}

// -----

// expected-error @+1 {{expects a first result, the sum of losses, got none}}
func.func @loss(%tokens: tensor<4xi32> {graph.input = "tokens"}, %targets: tensor<4xi32> {graph.input = "targets"}) attributes {graph.program = #graph.program<loss>} {
  return
}
