// RUN: tessera-opt %s --split-input-file --verify-diagnostics --verify-step-program=training=false
// Programs that generate: a complete module, then what may be missing.

func.func @init() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<0.0> : tensor<2xf32>
  return %w : tensor<2xf32>
}
func.func @decode_1(%w: tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, %c: tensor<2xf32> {graph.state = "c", graph.role = #graph<role cache>})
    -> (tensor<2xf32> {graph.state = "c", graph.role = #graph<role cache>}, tensor<2xf32> {graph.output = "logits"}) attributes {graph.program = #graph.program<decode>} {
  return %c, %w : tensor<2xf32>, tensor<2xf32>
}

// -----

// expected-error @+1 {{holds no program besides @init}}
module {
  func.func @init() attributes {graph.program = #graph.program<init>} {
    return
  }
}

// -----

func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
// expected-error @+1 {{takes the cache 'c' and does not return it}}
func.func @decode_1(%c: tensor<2xf32> {graph.state = "c", graph.role = #graph<role cache>}) attributes {graph.program = #graph.program<decode>} {
  return
}

// -----

// expected-error @+1 {{does not give state 'w', which 'decode_1' takes}}
func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
func.func @decode_1(%w: tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<decode>} {
  return
}
