// RUN: tessera-opt %s --split-input-file --restore-layers | FileCheck %s
// Layers whose ops are not all before those of the next one.

// An op of each layer is among those of the next one, whose value it reads: so it is
// in every copy.
// CHECK-LABEL: module
// CHECK: graph.mul {{.*}} {graph.layer = #graph.layer<2>}
// CHECK: %[[E:.*]] = graph.exp {{.*}} {graph.layer = #graph.layer<3>}
// CHECK: %[[A:.*]] = graph.add {{.*}}, %[[E]] {graph.layer = #graph.layer<2>}
// CHECK: %[[Y:.*]] = graph.mul %[[A]], {{.*}} {graph.layer = #graph.layer<3>}
// CHECK: %[[E:.*]] = graph.exp {{.*}} {graph.layer = #graph.layer<4>}
// CHECK: %[[A:.*]] = graph.add %[[Y]], %[[E]] {graph.layer = #graph.layer<3>}
// CHECK: graph.mul %[[A]], {{.*}} {graph.layer = #graph.layer<4>}
// CHECK: graph.exp {{.*}} {graph.layer = #graph.layer<5>}
// CHECK: graph.add {{.*}} {graph.layer = #graph.layer<4>}
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %e1 = graph.exp %w1 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %a0 = graph.add %x, %e1 {graph.layer = #graph.layer<0>} : tensor<4xf32>
    %y1 = graph.mul %a0, %w1 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %e2 = graph.exp %w2 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %a1 = graph.add %y1, %e2 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %y2 = graph.mul %a1, %w2 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %e5 = graph.exp %w5 {graph.layer = #graph.layer<5>} : tensor<4xf32>
    %a2 = graph.add %y2, %e5 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %y5 = graph.mul %a2, %w5 {graph.layer = #graph.layer<5>} : tensor<4xf32>
    return %y5 : tensor<4xf32>
  }
}

// -----

// What a loop starts from is before the loop for all layers.
// CHECK-LABEL: module
// CHECK-COUNT-6: graph.exp
// CHECK: graph.loop
// CHECK: graph.exp
module attributes {graph.folded = array<i64: 0, 1, 8>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 5}, %w7: tensor<4xf32> {graph.state = "h.7.w", graph.layer = #graph.layer<7>})
      -> tensor<4xf32> {
    %e0 = graph.exp %w0 : tensor<4xf32>
    %e1 = graph.exp %w1 : tensor<4xf32>
    %l:4 = graph.loop 2 (%i, %c0 = %w0, %c1 = %e0, %c2 = %e1, %c7 = %w7) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      graph.yield %w0, %w1, %w2, %w7 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
    %e2 = graph.exp %w2 : tensor<4xf32>
    return %l#3 : tensor<4xf32>
  }
}

// -----

// The same where earlier layers come later, as in a backward pass.
// CHECK-LABEL: module
// CHECK: graph.mul {{.*}} {graph.layer = #graph.layer<4>}
// CHECK: graph.exp {{.*}} {graph.layer = #graph.layer<5>}
// CHECK: graph.add {{.*}} {graph.layer = #graph.layer<4>}
// CHECK: %[[A:.*]] = graph.mul {{.*}} {graph.layer = #graph.layer<3>}
// CHECK: %[[B:.*]] = graph.exp %[[A]] {graph.layer = #graph.layer<4>}
// CHECK: %[[C:.*]] = graph.add %[[A]], %[[B]] {graph.layer = #graph.layer<3>}
// CHECK: %[[A:.*]] = graph.mul %[[C]], {{.*}} {graph.layer = #graph.layer<2>}
// CHECK: %[[B:.*]] = graph.exp %[[A]] {graph.layer = #graph.layer<3>}
// CHECK: %[[C:.*]] = graph.add %[[A]], %[[B]] {graph.layer = #graph.layer<2>}
// CHECK: graph.mul %[[C]], {{.*}} {graph.layer = #graph.layer<1>}
// CHECK: graph.exp {{.*}} {graph.layer = #graph.layer<2>}
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %a5 = graph.mul %x, %w5 {graph.layer = #graph.layer<5>} : tensor<4xf32>
    %c5 = graph.neg %a5 {graph.layer = #graph.layer<5>} : tensor<4xf32>
    %a2 = graph.mul %c5, %w2 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %b5 = graph.exp %a2 {graph.layer = #graph.layer<5>} : tensor<4xf32>
    %c2 = graph.add %a2, %b5 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %a1 = graph.mul %c2, %w1 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %b2 = graph.exp %a1 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %c1 = graph.add %a1, %b2 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %a0 = graph.mul %c1, %w0 {graph.layer = #graph.layer<0>} : tensor<4xf32>
    %b1 = graph.exp %a0 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %c0 = graph.add %a0, %b1 {graph.layer = #graph.layer<0>} : tensor<4xf32>
    return %c0 : tensor<4xf32>
  }
}

// -----

// Ops of three layers are mixed: an op that reads a copy comes after that copy.
// CHECK-LABEL: module
// CHECK: %[[Y4:.*]] = graph.mul {{.*}} {graph.layer = #graph.layer<4>}
// CHECK: graph.exp %[[Y4]] {graph.layer = #graph.layer<5>}
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %y0 = graph.mul %x, %w0 {graph.layer = #graph.layer<0>} : tensor<4xf32>
    %e1 = graph.exp %y0 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %a0 = graph.add %y0, %e1 {graph.layer = #graph.layer<0>} : tensor<4xf32>
    %y1 = graph.mul %a0, %w1 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %e2 = graph.exp %y1 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %a1 = graph.add %y1, %e2 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %y2 = graph.mul %a1, %w2 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %e5 = graph.exp %y2 {graph.layer = #graph.layer<5>} : tensor<4xf32>
    %t1 = graph.neg %y1 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %a2 = graph.add %y2, %e5 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %y5 = graph.mul %a2, %w5 {graph.layer = #graph.layer<5>} : tensor<4xf32>
    %t2 = graph.neg %y2 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    return %y5 : tensor<4xf32>
  }
}
