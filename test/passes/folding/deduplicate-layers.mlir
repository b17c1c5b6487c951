// RUN: tessera-opt %s --deduplicate-layers | FileCheck %s
// RUN: tessera-opt %s > %t.plain
// RUN: tessera-opt %s --deduplicate-layers --restore-layers | diff %t.plain -
// Six layers forward, backward, in a sum, updated and initialized; before them
// an embedding, behind them a head, and a table of what each one counted.

// CHECK: module attributes {graph.folded = array<i64: 0, 1, 6>}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME: %[[E:arg0]]: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "embed.w"}
// CHECK-SAME: %[[W0:arg1]]: tensor<4xf32> {graph.layer = #graph.layer<0>, graph.role = #graph<role parameter>, graph.state = "h.0.w"}
// CHECK-SAME: %[[W1:arg2]]: tensor<4xf32> {graph.layer = #graph.layer<1>, graph.role = #graph<role parameter>, graph.state = "h.1.w"}
// CHECK-SAME: %[[W2:arg3]]: tensor<4xf32> {graph.layer = #graph.layer<2>, graph.repeat_count = 3 : i64, graph.role = #graph<role parameter>, graph.state = "h.2.w"}
// CHECK-SAME: %[[W5:arg4]]: tensor<4xf32> {graph.layer = #graph.layer<5>, graph.role = #graph<role parameter>, graph.state = "h.5.w"}
// CHECK-SAME: %[[X:arg5]]: tensor<4xf32> {graph.input = "x"}
// CHECK-SAME: {graph.layer = #graph.layer<2>, graph.repeat_count = 3 : i64, graph.role = #graph<role parameter>, graph.state = "h.2.w"}
func.func @train_step(
    %embed: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "embed.w"},
    %w0: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.0.w", graph.layer = #graph.layer<0>},
    %w1: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.2.w", graph.layer = #graph.layer<2>},
    %w3: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    %w4: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.4.w", graph.layer = #graph.layer<4>},
    %w5: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.5.w", graph.layer = #graph.layer<5>},
    %x: tensor<4xf32> {graph.input = "x"}) ->
    (tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.0.w", graph.layer = #graph.layer<0>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.1.w", graph.layer = #graph.layer<1>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.2.w", graph.layer = #graph.layer<2>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.3.w", graph.layer = #graph.layer<3>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.4.w", graph.layer = #graph.layer<4>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.5.w", graph.layer = #graph.layer<5>},
     tensor<24xf32> {graph.output = "counts"}) {
  // CHECK: %[[Y:.*]] = graph.mul %[[X]], %[[E]]
  // CHECK: %[[Y0:.*]]:2 = call @layer(%[[Y]], %[[W0]])
  // CHECK: %[[Y1:.*]]:2 = call @layer(%[[Y0]]#0, %[[W1]])
  // CHECK: %[[Y2:.*]]:2 = call @layer(%[[Y1]]#0, %[[W2]]) {graph.layer = #graph.layer<2>, graph.repeat_count = 3 : i64}
  // CHECK: %[[Y5:.*]]:2 = call @layer(%[[Y2]]#0, %[[W5]])
  %y = graph.mul %x, %embed : tensor<4xf32>
  %y0:2 = call @layer(%y, %w0) {graph.layer = #graph.layer<0>} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %y1:2 = call @layer(%y0#0, %w1) {graph.layer = #graph.layer<1>} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %y2:2 = call @layer(%y1#0, %w2) {graph.layer = #graph.layer<2>} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %y3:2 = call @layer(%y2#0, %w3) {graph.layer = #graph.layer<3>} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %y4:2 = call @layer(%y3#0, %w4) {graph.layer = #graph.layer<4>} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %y5:2 = call @layer(%y4#0, %w5) {graph.layer = #graph.layer<5>} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  // CHECK: %[[HEAD:.*]] = graph.mul %[[Y5]]#0, %[[E]]
  %head = graph.mul %y5#0, %embed : tensor<4xf32>
  // Backward each reads the one behind it.
  // CHECK: %[[G5:.*]] = graph.mul %[[HEAD]], %[[W5]]
  // CHECK: %[[G2:.*]] = graph.mul %[[G5]], %[[W2]] {graph.repeat_count = 3 : i64}
  // CHECK: %[[G1:.*]] = graph.mul %[[G2]], %[[W1]]
  // CHECK: %[[G0:.*]] = graph.mul %[[G1]], %[[W0]]
  %g5 = graph.mul %head, %w5 : tensor<4xf32>
  %g4 = graph.mul %g5, %w4 : tensor<4xf32>
  %g3 = graph.mul %g4, %w3 : tensor<4xf32>
  %g2 = graph.mul %g3, %w2 : tensor<4xf32>
  %g1 = graph.mul %g2, %w1 : tensor<4xf32>
  %g0 = graph.mul %g1, %w0 : tensor<4xf32>
  // CHECK: %[[S0:.*]] = graph.add %[[HEAD]], %[[G0]]
  // CHECK: %[[S1:.*]] = graph.add %[[S0]], %[[G1]]
  // CHECK: %[[S2:.*]] = graph.add %[[S1]], %[[G2]] {graph.repeat_count = 3 : i64}
  // CHECK: %[[S5:.*]] = graph.add %[[S2]], %[[G5]]
  %s0 = graph.add %head, %g0 : tensor<4xf32>
  %s1 = graph.add %s0, %g1 : tensor<4xf32>
  %s2 = graph.add %s1, %g2 : tensor<4xf32>
  %s3 = graph.add %s2, %g3 : tensor<4xf32>
  %s4 = graph.add %s3, %g4 : tensor<4xf32>
  %s5 = graph.add %s4, %g5 : tensor<4xf32>
  // The table keeps its shape.
  // CHECK: graph.concat %[[Y0]]#1, %[[Y1]]#1, %[[Y2]]#1, %[[Y2]]#1, %[[Y2]]#1, %[[Y5]]#1
  %counts = graph.concat %y0#1, %y1#1, %y2#1, %y3#1, %y4#1, %y5#1 dim 0 : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<24xf32>
  // CHECK: %[[N2:.*]] = graph.sub %[[W2]], %[[S5]] {graph.repeat_count = 3 : i64}
  %n0 = graph.sub %w0, %s5 : tensor<4xf32>
  %n1 = graph.sub %w1, %s5 : tensor<4xf32>
  %n2 = graph.sub %w2, %s5 : tensor<4xf32>
  %n3 = graph.sub %w3, %s5 : tensor<4xf32>
  %n4 = graph.sub %w4, %s5 : tensor<4xf32>
  %n5 = graph.sub %w5, %s5 : tensor<4xf32>
  return %n0, %n1, %n2, %n3, %n4, %n5, %counts : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<24xf32>
}

// What grows with the layer goes on growing where layers are written out.
// CHECK-LABEL: func.func @init
// CHECK: graph.slice %{{.*}} [2] {graph.repeat_count = 3 : i64}
// CHECK: graph.slice %{{.*}} [5] : tensor<6xf32>
func.func @init(%seeds: tensor<6xf32> {graph.input = "seeds"}) ->
    (tensor<1xf32> {graph.layer = #graph.layer<0>, graph.state = "h.0.b"}, tensor<1xf32> {graph.layer = #graph.layer<1>, graph.state = "h.1.b"},
     tensor<1xf32> {graph.layer = #graph.layer<2>, graph.state = "h.2.b"}, tensor<1xf32> {graph.layer = #graph.layer<3>, graph.state = "h.3.b"},
     tensor<1xf32> {graph.layer = #graph.layer<4>, graph.state = "h.4.b"}, tensor<1xf32> {graph.layer = #graph.layer<5>, graph.state = "h.5.b"}) {
  %0 = graph.slice %seeds [0] : tensor<6xf32> -> tensor<1xf32>
  %1 = graph.slice %seeds [1] : tensor<6xf32> -> tensor<1xf32>
  %2 = graph.slice %seeds [2] : tensor<6xf32> -> tensor<1xf32>
  %3 = graph.slice %seeds [3] : tensor<6xf32> -> tensor<1xf32>
  %4 = graph.slice %seeds [4] : tensor<6xf32> -> tensor<1xf32>
  %5 = graph.slice %seeds [5] : tensor<6xf32> -> tensor<1xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>
}

func.func private @layer(%x: tensor<4xf32>, %w: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %y = graph.add %x, %w : tensor<4xf32>
  %z = graph.mul %x, %w : tensor<4xf32>
  return %y, %z : tensor<4xf32>, tensor<4xf32>
}
