// A step as two programs: sums of gradients are state, and @init_trained begins without what is frozen.
// RUN: tessera-opt %s --build-train-step="separate accumulate=1" | FileCheck %s

// Parameters are read: only the sums of gradients are returned.
// CHECK-LABEL: func.func @forward_backward(
// CHECK-SAME: graph.state = "w"}{{.*}} graph.state = "b"}{{.*}} %[[SUM:[a-z0-9]+]]: tensor<8xf32>{{.*}} graph.state = "w.gradient"}{{.*}} graph.state = "step"}
// CHECK-SAME: ) -> (tensor<8xf32>{{.*}} graph.state = "w.gradient"}, tensor<f32> {graph.output = "loss"}, tensor<f32> {graph.output = "terms"}, tensor<i64> {graph.output = "tokens"})
// CHECK: %[[NEXT:.*]] = graph.add %[[SUM]],
// CHECK: return %[[NEXT]],

// What is frozen is not an argument. The sums are zero afterwards.
// CHECK-LABEL: func.func @optimizer_step(
// CHECK-NOT: "b"
// CHECK-SAME: graph.state = "w"}{{.*}} graph.state = "w.exp_avg"}{{.*}} graph.state = "w.exp_avg_sq"}{{.*}} graph.state = "w.gradient"}{{.*}} graph.state = "hyper"}{{.*}}{graph.input = "scale"}
// CHECK: %[[MEAN:.*]] = graph.reshape %{{.*}} : tensor<1xf32> -> tensor<f32>
// CHECK: %[[NORM:.*]] = graph.sqrt
// CHECK: graph.mul %[[NORM]], %[[MEAN]]
// CHECK: %[[ZERO:.*]] = graph.constant dense<0.000000e+00> : tensor<8xf32>
// CHECK: return %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %[[ZERO]],

// CHECK-LABEL: func.func @init_trained(
// CHECK-NOT: "b"
// CHECK: return
// CHECK: func.func @init(
// CHECK-SAME: graph.state = "b"
// CHECK-SAME: graph.state = "w.gradient"
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
