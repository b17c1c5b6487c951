// RUN: tessera-opt %s --build-eval-step=microbatches=3 | FileCheck %s

// A loop over microbatches, with an element for the loss of each. Blocks in it
// drop nothing either.
// CHECK-LABEL: func @eval_step
// CHECK-SAME:  %[[W:.*]]: tensor<8x8xf32> {{{.*}}}, %[[TOKENS:.*]]: tensor<3x4xi32> {graph.input = "tokens"}, %[[TARGETS:.*]]: tensor<3x4xi32> {graph.input = "targets"})
// CHECK-SAME:  -> (tensor<3xf32> {graph.output = "loss_sum"}, tensor<i64> {graph.output = "tokens"})
// CHECK:       %[[SUMS:.*]]:2 = graph.loop 3 (%[[I:.*]], %[[L:.*]] = %{{.*}}, %[[N:.*]] = %{{.*}}) : (tensor<3xf32>, tensor<i64>)
// CHECK-DAG:     %[[IDS:.*]] = graph.dynamic_slice %[[TOKENS]][%[[I]]]
// CHECK-DAG:     %[[T:.*]] = graph.dynamic_slice %[[TARGETS]][%[[I]]]
// CHECK:         %[[X:.*]] = graph.embedding %[[W]], %[[IDS]]
// CHECK-NEXT:    %[[LOSS:.*]] = graph.linear_cross_entropy %[[X]], %[[W]], %[[T]]
// CHECK:         %[[HERE:.*]] = graph.compare %{{.*}} eq
// CHECK:         %[[OWN:.*]] = graph.select %[[HERE]]
// CHECK-DAG:     %[[L1:.*]] = graph.add %[[L]], %[[OWN]]
// CHECK-DAG:     %[[N1:.*]] = graph.add %[[N]],
// CHECK:         graph.yield %[[L1]], %[[N1]]
// CHECK:       return %[[SUMS]]#0, %[[SUMS]]#1
func.func @loss(%w: tensor<8x8xf32> {graph.state = "w", graph.role = #graph<role parameter>, graph.decay},
                %tokens: tensor<4xi32> {graph.input = "tokens"}, %targets: tensor<4xi32> {graph.input = "targets"},
                %seed: tensor<i64> {graph.input = "seed"}, %step: tensor<i64> {graph.input = "step"}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %e = graph.embedding %w, %tokens : (tensor<8x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %x = graph.dropout %e rate 0.5 stream 2 seed %seed step %step : tensor<4x8xf32>, tensor<i64>, tensor<i64>
  %l = graph.linear_cross_entropy %x, %w, %targets : tensor<4x8xf32>, tensor<8x8xf32>, tensor<4xi32> -> tensor<f32>
  return %l : tensor<f32>
}
