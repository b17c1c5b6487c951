// RUN: tessera-opt %s --build-eval-step | FileCheck %s

// A block that drops gets a copy that does not; one that does not is shared.
// CHECK-LABEL: func private @drops(
// CHECK:       graph.dropout
// CHECK-LABEL: func private @drops.eval(
// CHECK-NEXT:  %[[Y:.*]] = graph.exp %arg0
// CHECK-NEXT:  return %[[Y]]
// CHECK-LABEL: func private @keeps(
// CHECK-NOT:   @keeps.eval

// Noise on a router is zero.
// CHECK-LABEL: func private @noisy.eval(
// CHECK-NEXT:  %[[NONE:.*]] = graph.constant dense<0.000000e+00> : tensor<4x8xf32>
// CHECK-NEXT:  %[[Y:.*]] = graph.add %arg0, %[[NONE]]
// CHECK-NEXT:  return %[[Y]]

// CHECK-LABEL: func @eval_step
// CHECK-SAME:  (%[[W:.*]]: tensor<8x8xf32> {graph.decay, graph.role = #graph<role parameter>, graph.state = "w"}, %[[TOKENS:.*]]: tensor<4xi32> {graph.input = "tokens"}, %[[TARGETS:.*]]: tensor<4xi32> {graph.input = "targets"})
// CHECK-SAME:  -> (tensor<f32> {graph.output = "loss_sum"}, tensor<i64> {graph.output = "tokens"})
// CHECK:       %[[ZERO:.*]] = graph.constant dense<0> : tensor<i64>
// CHECK:       %[[X:.*]] = graph.embedding %[[W]], %[[TOKENS]]
// CHECK-NEXT:  %[[A:.*]] = call @drops.eval(%[[X]], %{{.*}}, %{{.*}})
// CHECK-NEXT:  %[[N:.*]] = call @noisy.eval(%[[A]], %{{.*}}, %{{.*}})
// CHECK-NEXT:  %[[B:.*]] = call @keeps(%[[N]])
// CHECK-NEXT:  %[[L:.*]] = graph.linear_cross_entropy %[[B]], %[[W]], %[[TARGETS]]
// CHECK:       %[[MASK:.*]] = graph.compare %[[TARGETS]] ne
// CHECK:       %[[N:.*]] = graph.reduce
// CHECK:       return %[[L]], %[[N]]
// CHECK-NOT:   @loss
func.func private @drops(%x: tensor<4x8xf32>, %seed: tensor<i64>, %step: tensor<i64>) -> tensor<4x8xf32> attributes {graph.block} {
  %y = graph.exp %x : tensor<4x8xf32>
  %z = graph.dropout %y rate 0.5 stream 1 seed %seed step %step : tensor<4x8xf32>, tensor<i64>, tensor<i64>
  return %z : tensor<4x8xf32>
}
func.func private @keeps(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {graph.block} {
  %y = graph.exp %x : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func private @noisy(%x: tensor<4x8xf32>, %seed: tensor<i64>, %step: tensor<i64>) -> tensor<4x8xf32> attributes {graph.block} {
  %n = graph.random normal stream 3 seed %seed step %step : tensor<i64>, tensor<i64> -> tensor<4x8xf32>
  %y = graph.add %x, %n : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func @loss(%w: tensor<8x8xf32> {graph.state = "w", graph.role = #graph<role parameter>, graph.decay},
                %tokens: tensor<4xi32> {graph.input = "tokens"}, %targets: tensor<4xi32> {graph.input = "targets"},
                %seed: tensor<i64> {graph.input = "seed"}, %step: tensor<i64> {graph.input = "step"}, %offset: tensor<i64> {graph.input = "offset"}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %e = graph.embedding %w, %tokens : (tensor<8x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %x = graph.dropout %e rate 0.5 stream 2 seed %seed step %step : tensor<4x8xf32>, tensor<i64>, tensor<i64>
  %a = call @drops(%x, %seed, %step) : (tensor<4x8xf32>, tensor<i64>, tensor<i64>) -> tensor<4x8xf32>
  %n = call @noisy(%a, %seed, %step) : (tensor<4x8xf32>, tensor<i64>, tensor<i64>) -> tensor<4x8xf32>
  %b = call @keeps(%n) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %l = graph.linear_cross_entropy %b, %w, %targets : tensor<4x8xf32>, tensor<8x8xf32>, tensor<4xi32> -> tensor<f32>
  return %l : tensor<f32>
}
