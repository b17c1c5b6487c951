// RUN: tessera-opt %s --deduplicate-layers=keep-ends --split-input-file | FileCheck %s
// RUN: tessera-opt %s --deduplicate-layers="keep-ends explain" --split-input-file -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: tessera-opt %s --split-input-file > %t.plain
// RUN: tessera-opt %s --deduplicate-layers=keep-ends --restore-layers --split-input-file | diff %t.plain -
// Seven equal layers: the first and the last stay outside of what is folded. A
// broadcast of a value that no layer has is not marked, so that CSE joins all.

// CHECK: graph.folded = array<i64: 1, 1, 5>
// CHECK-LABEL: func.func @train_step
// CHECK-SAME: "h.0.w"
// CHECK-SAME: "h.1.w"
// CHECK-SAME: "h.2.w"
// CHECK-SAME: graph.repeat_count = 2 : i64, graph.role = #graph<role parameter>, graph.state = "h.3.w"
// CHECK-SAME: "h.5.w"
// CHECK-SAME: "h.6.w"
// CHECK-COUNT-6: graph.broadcast %{{.*}} dims [] : tensor<f32> -> tensor<4xf32>
// CHECK-NOT: graph.broadcast
// CHECK: return
func.func @train_step(
    %w0: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.0.w", graph.layer = #graph.layer<0>},
    %w1: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.2.w", graph.layer = #graph.layer<2>},
    %w3: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    %w4: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.4.w", graph.layer = #graph.layer<4>},
    %w5: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.5.w", graph.layer = #graph.layer<5>},
    %w6: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.6.w", graph.layer = #graph.layer<6>},
    %rate: tensor<f32> {graph.input = "rate"}) -> (
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.0.w", graph.layer = #graph.layer<0>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.1.w", graph.layer = #graph.layer<1>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.2.w", graph.layer = #graph.layer<2>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.3.w", graph.layer = #graph.layer<3>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.4.w", graph.layer = #graph.layer<4>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.5.w", graph.layer = #graph.layer<5>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.6.w", graph.layer = #graph.layer<6>}) {
  %m0 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m1 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m2 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m3 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m4 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m5 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m6 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %n0 = graph.mul %w0, %m0 : tensor<4xf32>
  %n1 = graph.mul %w1, %m1 : tensor<4xf32>
  %n2 = graph.mul %w2, %m2 : tensor<4xf32>
  %n3 = graph.mul %w3, %m3 : tensor<4xf32>
  %n4 = graph.mul %w4, %m4 : tensor<4xf32>
  %n5 = graph.mul %w5, %m5 : tensor<4xf32>
  %n6 = graph.mul %w6, %m6 : tensor<4xf32>
  return %n0, %n1, %n2, %n3, %n4, %n5, %n6 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Of six one could be removed, but none if both ends stay.
// REMARK: layers are not folded: no seven in a row have the same state and blocks
// CHECK-NOT: graph.folded
// CHECK-COUNT-6: graph.broadcast
func.func @train_step(
    %w0: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.0.w", graph.layer = #graph.layer<0>},
    %w1: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.2.w", graph.layer = #graph.layer<2>},
    %w3: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    %w4: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.4.w", graph.layer = #graph.layer<4>},
    %w5: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.5.w", graph.layer = #graph.layer<5>},
    %rate: tensor<f32> {graph.input = "rate"}) -> (
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.0.w", graph.layer = #graph.layer<0>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.1.w", graph.layer = #graph.layer<1>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.2.w", graph.layer = #graph.layer<2>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.3.w", graph.layer = #graph.layer<3>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.4.w", graph.layer = #graph.layer<4>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.5.w", graph.layer = #graph.layer<5>}) {
  %m0 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m1 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m2 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m3 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m4 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %m5 = graph.broadcast %rate dims [] : tensor<f32> -> tensor<4xf32>
  %n0 = graph.mul %w0, %m0 : tensor<4xf32>
  %n1 = graph.mul %w1, %m1 : tensor<4xf32>
  %n2 = graph.mul %w2, %m2 : tensor<4xf32>
  %n3 = graph.mul %w3, %m3 : tensor<4xf32>
  %n4 = graph.mul %w4, %m4 : tensor<4xf32>
  %n5 = graph.mul %w5, %m5 : tensor<4xf32>
  return %n0, %n1, %n2, %n3, %n4, %n5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Layers 1 to 12 are of two kinds, alternating. Without both ends five units of
// two are left.
// CHECK: graph.folded = array<i64: 2, 2, 5>
func.func @train_step(
    %w0: tensor<2xf32> {graph.role = #graph<role parameter>, graph.state = "h.0.w", graph.layer = #graph.layer<0>},
    %w1: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.2.w", graph.layer = #graph.layer<2>},
    %w3: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    %w4: tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.4.w", graph.layer = #graph.layer<4>},
    %w5: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.5.w", graph.layer = #graph.layer<5>},
    %w6: tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.6.w", graph.layer = #graph.layer<6>},
    %w7: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.7.w", graph.layer = #graph.layer<7>},
    %w8: tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.8.w", graph.layer = #graph.layer<8>},
    %w9: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.9.w", graph.layer = #graph.layer<9>},
    %w10: tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.10.w", graph.layer = #graph.layer<10>},
    %w11: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.11.w", graph.layer = #graph.layer<11>},
    %w12: tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.12.w", graph.layer = #graph.layer<12>}) -> (
     tensor<2xf32> {graph.role = #graph<role parameter>, graph.state = "h.0.w", graph.layer = #graph.layer<0>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.1.w", graph.layer = #graph.layer<1>},
     tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.2.w", graph.layer = #graph.layer<2>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.3.w", graph.layer = #graph.layer<3>},
     tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.4.w", graph.layer = #graph.layer<4>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.5.w", graph.layer = #graph.layer<5>},
     tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.6.w", graph.layer = #graph.layer<6>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.7.w", graph.layer = #graph.layer<7>},
     tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.8.w", graph.layer = #graph.layer<8>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.9.w", graph.layer = #graph.layer<9>},
     tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.10.w", graph.layer = #graph.layer<10>},
     tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.11.w", graph.layer = #graph.layer<11>},
     tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "h.12.w", graph.layer = #graph.layer<12>}) {
  %n0 = graph.neg %w0 : tensor<2xf32>
  %n1 = graph.neg %w1 : tensor<4xf32>
  %n2 = graph.neg %w2 : tensor<8xf32>
  %n3 = graph.neg %w3 : tensor<4xf32>
  %n4 = graph.neg %w4 : tensor<8xf32>
  %n5 = graph.neg %w5 : tensor<4xf32>
  %n6 = graph.neg %w6 : tensor<8xf32>
  %n7 = graph.neg %w7 : tensor<4xf32>
  %n8 = graph.neg %w8 : tensor<8xf32>
  %n9 = graph.neg %w9 : tensor<4xf32>
  %n10 = graph.neg %w10 : tensor<8xf32>
  %n11 = graph.neg %w11 : tensor<4xf32>
  %n12 = graph.neg %w12 : tensor<8xf32>
  return %n0, %n1, %n2, %n3, %n4, %n5, %n6, %n7, %n8, %n9, %n10, %n11, %n12 : tensor<2xf32>, tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>
}
