// RUN: tessera-opt %s --split-input-file --verify-diagnostics --differentiate
// One case for each thing that differentiate refuses.

// expected-error @+1 {{has no program 'loss' with a body; importing a model makes it}}
module {
}

// -----

// expected-error @+1 {{has no program 'loss' with a body; importing a model makes it}}
module {
  func.func private @loss(tensor<f32>) -> tensor<f32> attributes {graph.program = #graph.program<loss>}
}

// -----

// expected-error @+1 {{expects a first result of type 'tensor<f32>' to differentiate, got ('tensor<1xf32>')}}
func.func @loss(%w: tensor<1xf32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<1xf32> attributes {graph.program = #graph.program<loss>} {
  return %w : tensor<1xf32>
}

// -----

// expected-error @+1 {{has no argument of role parameter to differentiate for}}
func.func @loss(%w: tensor<f32>) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  return %w : tensor<f32>
}

// -----

// expected-error @+1 {{cannot train 'w': a parameter of type 'tensor<4xi32>' has no gradient}}
func.func @loss(%w: tensor<4xi32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %l = graph.constant dense<0.0> : tensor<f32>
  return %l : tensor<f32>
}

// -----

func.func @loss(%w: tensor<f32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  // expected-error @+1 {{has no gradient and stands between the loss and a parameter}}
  %l = graph.loop 4 (%i, %x = %w) : (tensor<f32>) {
    %y = graph.exp %x : tensor<f32>
    graph.yield %y : tensor<f32>
  }
  return %l : tensor<f32>
}

// -----

// A loop that reads a parameter from outside.
func.func @loss(%w: tensor<f32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %zero = graph.constant dense<0.0> : tensor<f32>
  // expected-error @+1 {{has no gradient and stands between the loss and a parameter}}
  %l = graph.loop 4 (%i, %x = %zero) : (tensor<f32>) {
    %y = graph.add %x, %w : tensor<f32>
    graph.yield %y : tensor<f32>
  }
  return %l : tensor<f32>
}

// -----

// expected-error @+1 {{calls itself; a block's depth must be known at compile time}}
func.func private @layer(%x: tensor<f32>) -> tensor<f32> {
  %y = call @layer(%x) : (tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}
func.func @loss(%w: tensor<f32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %l = call @layer(%w) : (tensor<f32>) -> tensor<f32>
  return %l : tensor<f32>
}

// -----

func.func private @layer(tensor<f32>) -> tensor<f32>
func.func @loss(%w: tensor<f32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  // expected-error @+1 {{calls 'layer', which has no body to differentiate}}
  %l = call @layer(%w) : (tensor<f32>) -> tensor<f32>
  return %l : tensor<f32>
}

// -----

// expected-error @+1 {{expects a body of one block; a graph function does not branch}}
func.func @loss(%w: tensor<f32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  llvm.br ^end
^end:
  return %w : tensor<f32>
}

// -----

func.func @loss(%w: tensor<f32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  // expected-error @+1 {{has values that are not tensors; a graph function has no others}}
  %c = arith.constant 1.0 : f32
  return %w : tensor<f32>
}

// -----

// Blocks are held to the same.
func.func private @layer(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{has values that are not tensors; a graph function has no others}}
  %c = arith.constant 1.0 : f32
  return %x : tensor<f32>
}
func.func @loss(%w: tensor<f32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %l = call @layer(%w) : (tensor<f32>) -> tensor<f32>
  return %l : tensor<f32>
}

// -----

func.func @loss(%w: tensor<f32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  return %w : tensor<f32>
}
// expected-error @+1 {{is there already; the module was differentiated before}}
func.func @gradients() attributes {graph.program = #graph.program<gradients>} {
  return
}

// -----

// expected-error @+1 {{result 1 of type 'tensor<f32>' is neither a named sum of type 'tensor<f32>' nor a named metric}}
func.func @loss(%w: tensor<f32> {graph.state = "w", graph.role = #graph<role parameter>}) -> (tensor<f32>, tensor<f32>) attributes {graph.program = #graph.program<loss>} {
  return %w, %w : tensor<f32>, tensor<f32>
}

// -----

// expected-error @+1 {{result 1 of type 'tensor<2xf32>' is neither a named sum of type 'tensor<f32>' nor a named metric}}
func.func @loss(%w: tensor<f32> {graph.state = "w", graph.role = #graph<role parameter>}) -> (tensor<f32>, tensor<2xf32> {graph.output = "more"}) attributes {graph.program = #graph.program<loss>} {
  %0 = graph.broadcast %w dims [] : tensor<f32> -> tensor<2xf32>
  return %w, %0 : tensor<f32>, tensor<2xf32>
}
