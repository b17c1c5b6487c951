// RUN: tessera-opt %s --split-input-file --verify-diagnostics --build-train-step
// Signatures of @gradients and @init that no step can be built on.

// expected-error @+1 {{expects tokens of shape [B, T]}}
func.func @gradients(%t: tensor<4xi32> {graph.input = "tokens"}, %u: tensor<4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %c: tensor<f32> {graph.input = "cotangent"}) attributes {graph.program = #graph.program<gradients>} {
  return
}
func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}

// -----

// expected-error @+1 {{expects f32 master weights, but 'w' is 'tensor<8xbf16>'}}
func.func @gradients(%w: tensor<8xbf16> {graph.state = "w", graph.role = #graph<role parameter>},
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %c: tensor<f32> {graph.input = "cotangent"}) attributes {graph.program = #graph.program<gradients>} {
  return
}
func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}

// -----

// expected-error @+1 {{expects the loss and 1 gradients, got 1 results}}
func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>},
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %c: tensor<f32> {graph.input = "cotangent"}) -> tensor<f32> attributes {graph.program = #graph.program<gradients>} {
  return %c : tensor<f32>
}
func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}

// -----

func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>},
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %c: tensor<f32> {graph.input = "cotangent"}) -> (tensor<f32>, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  return %c, %w : tensor<f32>, tensor<8xf32>
}
// expected-error @+1 {{expects one result for each of 1 parameters, got 0}}
func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
