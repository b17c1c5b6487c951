// RUN: tessera-opt %s --split-input-file --verify-diagnostics --apply-precision=compute=bf16

func.func @loss(%w: tensor<4x4xf32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<4x4xf32> {
  // expected-error @+1 {{cannot be given a precision; it must be made after apply-precision}}
  %l = graph.loop 4 (%i, %x = %w) : (tensor<4x4xf32>) {
    %y = graph.exp %x : tensor<4x4xf32>
    graph.yield %y : tensor<4x4xf32>
  }
  return %l : tensor<4x4xf32>
}

// -----

func.func private @layer(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error @+1 {{has values that are not tensors; a graph function has no others}}
  %c = arith.constant 1.0 : f32
  return %x : tensor<4x4xf32>
}
