// A frozen parameter for which nothing gives a next value stays as it is, and has no moments.
// RUN: tessera-opt %s --build-train-step="accumulate=1" | FileCheck %s

// CHECK-LABEL: func.func @train_step(
// CHECK-SAME: %[[B:[a-z0-9]+]]: tensor<4xf32> {{.*}}graph.state = "b"
// CHECK-NOT: "b.exp_avg"
// CHECK: return %{{[a-z0-9#]+}}, %[[B]],
func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, %b: tensor<4xf32> {graph.state = "b", graph.role = #graph<role parameter>, graph.frozen},
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %c: tensor<f32> {graph.input = "cotangent"})
    -> (tensor<f32>, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %0 = graph.broadcast %c dims [] : tensor<f32> -> tensor<8xf32>
  return %c, %0 : tensor<f32>, tensor<8xf32>
}
func.func @init() -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<4xf32> {graph.state = "b", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<8xf32>
  %b = graph.constant dense<0.0> : tensor<4xf32>
  return %w, %b : tensor<8xf32>, tensor<4xf32>
}
