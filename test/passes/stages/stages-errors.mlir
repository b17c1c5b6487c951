// RUN: tessera-opt %s --assign-stages --split-input-file --verify-diagnostics

// expected-error@+1 {{has no blocks for pipeline stages}}
module {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @eval_step(%x: tensor<2xf32>) -> tensor<2xf32> attributes {graph.program = #graph.program<eval_step>} {
  return %x : tensor<2xf32>
}
}

// -----

dist.mesh @mesh [#dist.axis<"pipe" = 2>]
// expected-error@+1 {{a pipeline requires several microbatches: set batch.accumulate to the axis's size or more}}
func.func @train_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32> {graph.role = #graph<role parameter>, graph.state = "a"}) -> tensor<2x8xf32> attributes {graph.program = #graph.program<train_step>} {
  %y = call @layer(%x, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// -----

// expected-error@+1 {{a pipeline of 2 stages requires at least as many blocks, the model has 1}}
module {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @eval_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32> {graph.role = #graph<role parameter>, graph.state = "a"}) -> tensor<2x8xf32> attributes {graph.program = #graph.program<eval_step>} {
  %y = call @layer(%x, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}
}

// -----

dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @eval_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32> {graph.role = #graph<role parameter>, graph.state = "a"}) -> tensor<2x8xf32> attributes {graph.program = #graph.program<eval_step>} {
  %y = call @layer(%x, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %z = call @layer(%y, %a) {graph.layer = #graph.layer<0, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  // expected-error@+1 {{is a second call of #graph.layer<0>; pipeline parallelism requires one of each}}
  %t = call @layer(%z, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %t : tensor<2x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// -----

// The loop of a step is the last one that calls blocks.
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
// expected-error@+1 {{a pipeline requires several microbatches: set batch.accumulate to the axis's size or more}}
func.func @train_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32> {graph.role = #graph<role parameter>, graph.state = "a"}) -> tensor<2x8xf32> attributes {graph.program = #graph.program<train_step>} {
  %y = graph.loop 2 (%i, %acc = %x) : (tensor<2x8xf32>) {
    %z = func.call @layer(%acc, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    graph.yield %z : tensor<2x8xf32>
  }
  %z = call @layer(%y, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %z : tensor<2x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// -----

dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32> {graph.role = #graph<role parameter>, graph.state = "a"}) -> tensor<2x8xf32> attributes {graph.program = #graph.program<train_step>} {
  // expected-error@+1 {{a block is outside of loops over microbatches, but others of its program are inside}}
  %y = call @layer(%x, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %t = graph.loop 2 (%i, %acc = %y) : (tensor<2x8xf32>) {
    %z = func.call @layer(%acc, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    graph.yield %z : tensor<2x8xf32>
  }
  return %t : tensor<2x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// -----

dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32> {graph.role = #graph<role parameter>, graph.state = "a"}, %b: tensor<8x8xf32> {graph.role = #graph<role parameter>, graph.state = "b"}) -> tensor<2x8xf32> attributes {graph.program = #graph.program<train_step>} {
  %y = graph.loop 2 (%i, %acc = %x) : (tensor<2x8xf32>) {
    // expected-error@+1 {{is of #graph.layer<1>, which the last loop does not call forward}}
    %z = func.call @layer(%acc, %b) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    graph.yield %z : tensor<2x8xf32>
  }
  %t = graph.loop 2 (%i, %acc = %y) : (tensor<2x8xf32>) {
    %z = func.call @layer(%acc, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    graph.yield %z : tensor<2x8xf32>
  }
  return %t : tensor<2x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// -----

dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32> {graph.role = #graph<role parameter>, graph.state = "a"}, %b: tensor<8x8xf32> {graph.role = #graph<role parameter>, graph.state = "b"}) -> tensor<2x8xf32> attributes {graph.program = #graph.program<train_step>} {
  // expected-error@+1 {{runs 3 microbatches, but a step has 2}}
  %y = graph.loop 3 (%i, %acc = %x) : (tensor<2x8xf32>) {
    %z = func.call @layer(%acc, %b) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    graph.yield %z : tensor<2x8xf32>
  }
  %t = graph.loop 2 (%i, %acc = %y) : (tensor<2x8xf32>) {
    %z = func.call @layer(%acc, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %u = func.call @layer(%z, %b) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    graph.yield %u : tensor<2x8xf32>
  }
  return %t : tensor<2x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// -----

dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @eval_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32>) -> tensor<2x8xf32> {
  // expected-error@+1 {{has no call of layer 0 in its program}}
  %y = call @layer(%x, %a) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}
