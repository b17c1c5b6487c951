// RUN: tessera-opt %s --convert-programs-to-f64 | FileCheck %s

// State, constants, loops and what blocks exchange are f64; numbers for the host, too.
// CHECK-LABEL: func.func @train_step
// CHECK-SAME: (%{{[a-z0-9]+}}: tensor<8xf64> {{[^}]*}}graph.state = "w"}, %[[H:[a-z0-9]+]]: tensor<4xf32> {{[^}]*}}graph.state = "hyper"}
// CHECK-SAME: tensor<2x2xf32> {graph.input = "t"})
// CHECK-SAME: -> (tensor<8xf64> {{[^}]*}}}, tensor<f64> {graph.output = "loss"}, tensor<2x2xf32> {graph.output = "router"})
func.func @train_step(
    %w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>},
    %h: tensor<4xf32> {graph.state = "hyper", graph.role = #graph<role counter>},
    %t: tensor<2x2xf32> {graph.input = "t"})
    -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>},
        tensor<f32> {graph.output = "loss"}, tensor<2x2xf32> {graph.output = "router"}) {
  // What the host writes keeps its type and is converted once.
  // CHECK: %[[WIDE:.*]] = graph.convert %[[H]] : tensor<4xf32> -> tensor<4xf64>
  // CHECK: graph.slice %[[WIDE]]
  %s = graph.slice %h [0] : tensor<4xf32> -> tensor<1xf32>
  %lr = graph.reshape %s : tensor<1xf32> -> tensor<f32>
  // The value is that of f32.
  // CHECK: graph.constant dense<0.10000000149011612> : tensor<8xf64>
  %c = graph.constant dense<0.1> : tensor<8xf32>
  %y = func.call @block(%w, %c) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  // CHECK: graph.loop {{.*}} : (tensor<8xf64>)
  %l = graph.loop 4 (%i, %x = %y) : (tensor<8xf32>) {
    %z = graph.exp %x : tensor<8xf32>
    graph.yield %z : tensor<8xf32>
  }
  // CHECK: %[[NARROW:.*]] = graph.convert %{{.*}} : tensor<2x2xf64> -> tensor<2x2xf32>
  // CHECK: return %{{.*}}, %{{.*}}, %[[NARROW]] : tensor<8xf64>, tensor<f64>, tensor<2x2xf32>
  return %l, %lr, %t : tensor<8xf32>, tensor<f32>, tensor<2x2xf32>
}

// CHECK: func.func private @block(%{{.*}}: tensor<8xf64>, %{{.*}}: tensor<8xf64>) -> tensor<8xf64>
func.func private @block(%w: tensor<8xf32>, %c: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK: graph.add {{.*}} : tensor<8xf64>
  %y = graph.add %w, %c : tensor<8xf32>
  return %y : tensor<8xf32>
}

// Random numbers are f32 whoever asks.
// CHECK-LABEL: func.func @init
func.func @init(%seed: tensor<i64> {graph.input = "seed"})
    -> (tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>}) {
  // CHECK: %[[R:.*]] = graph.random normal {{.*}} -> tensor<4xf32>
  // CHECK: graph.convert %[[R]] : tensor<4xf32> -> tensor<4xf64>
  %r = graph.random normal stream 0 seed %seed step %seed : tensor<i64>, tensor<i64> -> tensor<4xf32>
  return %r : tensor<4xf32>
}
