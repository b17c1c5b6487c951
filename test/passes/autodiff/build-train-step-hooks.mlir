// RUN: tessera-opt %s --build-train-step="accumulate=3" | FileCheck %s
// What a model does around its gradients: sums before the first gradient, and next values of fixed parameters and metrics after the last.

// CHECK-LABEL: func @train_step
// The fixed parameter has no moments.
// CHECK-SAME: %{{.*}}: tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "w"}, %[[B:[a-z0-9]+]]: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "b"}, %{{.*}}: tensor<8xf32> {graph.role = #graph<role optimizer>, graph.state = "w.exp_avg"}, %{{.*}}: tensor<8xf32> {graph.role = #graph<role optimizer>, graph.state = "w.exp_avg_sq"}, %{{.*}}: tensor<1xi64>
// CHECK-SAME: tensor<2xf32> {graph.output = "router"})
// One over 3 × 2 × 4 tokens.
// CHECK: %[[LOADS:.*]] = graph.loop 3 (%{{.*}}, %[[BEFORE:.*]] = %{{.*}}) : (tensor<4xf32>)
// CHECK: %[[ONE:.*]] = graph.mul %[[B]], %[[B]]
// CHECK: graph.add %[[BEFORE]], %[[ONE]]
// CHECK: %[[SHARE:.*]] = graph.constant dense<0.0416666679> : tensor<f32>
// CHECK: %[[STEP:.*]]:3 = graph.loop 3
// CHECK-DAG: graph.broadcast %[[SHARE]] dims []
// CHECK-DAG: graph.add %{{.*}}, %[[LOADS]]
// CHECK: graph.yield
// CHECK: %[[NEXT:.*]] = graph.add %[[B]], %[[STEP]]#1 : tensor<4xf32>
// CHECK: %[[ROUTER:.*]] = graph.slice %[[STEP]]#1 [0]
// CHECK: return %{{.*}}, %[[NEXT]], {{.*}}, %[[ROUTER]] :
// CHECK-NOT: func @prepare_step
// CHECK-NOT: func @finish_step

func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, %b: tensor<4xf32> {graph.state = "b", graph.role = #graph<role parameter>, graph.frozen},
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %n: tensor<4xf32> {graph.input = "loads"},
                     %c: tensor<f32> {graph.input = "cotangent"}, %d: tensor<f32> {graph.input = "cotangent.penalty"})
    -> (tensor<f32>, tensor<f32> {graph.output = "penalty"}, tensor<4xf32> {graph.output = "sums", graph.metric}, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %0 = graph.broadcast %c dims [] : tensor<f32> -> tensor<8xf32>
  %1 = graph.broadcast %d dims [] : tensor<f32> -> tensor<8xf32>
  %2 = graph.add %0, %1 : tensor<8xf32>
  return %c, %d, %n, %2 : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<8xf32>
}
func.func @prepare_step(%b: tensor<4xf32> {graph.state = "b", graph.role = #graph<role parameter>}, %t: tensor<2x4xi32> {graph.input = "tokens"})
    -> (tensor<4xf32> {graph.output = "loads"}) attributes {graph.program = #graph.program<prepare_step>} {
  %0 = graph.mul %b, %b : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @finish_step(%b: tensor<4xf32> {graph.state = "b", graph.role = #graph<role parameter>}, %s: tensor<4xf32> {graph.input = "sums"})
    -> (tensor<4xf32> {graph.state = "b", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.output = "router"}) attributes {graph.program = #graph.program<finish_step>} {
  %0 = graph.add %b, %s : tensor<4xf32>
  %1 = graph.slice %s [0] : tensor<4xf32> -> tensor<2xf32>
  return %0, %1 : tensor<4xf32>, tensor<2xf32>
}
func.func @init() -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<4xf32> {graph.state = "b", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<8xf32>
  %b = graph.constant dense<0.0> : tensor<4xf32>
  return %w, %b : tensor<8xf32>, tensor<4xf32>
}
