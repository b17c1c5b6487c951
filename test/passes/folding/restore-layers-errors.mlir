// RUN: not tessera-opt %s --split-input-file --restore-layers --mlir-print-op-on-diagnostic=false 2>&1 | FileCheck %s
// What a person may write into a dump that is folded.

// CHECK: error: graph.folded is the first layer, how many are one unit, and how many units there are, 5 or more, got: array<i64: 0, 0, 6>
module attributes {graph.folded = array<i64: 0, 0, 6>} {}

// -----

// CHECK: error: graph.folded is the first layer, {{.*}} got: array<i64: 0, 1, 9223372036854775807>
module attributes {graph.folded = array<i64: 0, 1, 9223372036854775807>} {}

// -----

// CHECK: error: graph.folded is the first layer, {{.*}} got: "six"
module attributes {graph.folded = "six"} {}

// -----

// The third layer is not the second.
// CHECK: error: folded layers are not alike: 'graph.add' at {{.*}} is not in each of the layers, or not the same; graph.folded says that the third represents others
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %0 = graph.mul %x, %w0 : tensor<4xf32>
    %1 = graph.mul %0, %w1 : tensor<4xf32>
    %2 = graph.add %1, %w2 : tensor<4xf32>
    %5 = graph.mul %2, %w5 : tensor<4xf32>
    return %5 : tensor<4xf32>
  }
}

// -----

// A layer that is said to be folded away is there.
// CHECK: error: folded layers are not alike: their state differs
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w3: tensor<4xf32> {graph.state = "h.3.w", graph.layer = #graph.layer<3>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %0 = graph.mul %x, %w0 : tensor<4xf32>
    %1 = graph.mul %0, %w1 : tensor<4xf32>
    %2 = graph.mul %1, %w2 : tensor<4xf32>
    %3 = graph.mul %2, %w3 : tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}

// -----

// CHECK: error: has an attribute that grows too far over 6 layers
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %0 = graph.mul %x, %w0 : tensor<4xf32>
    %1 = graph.mul %0, %w1 {foo = array<i64: 0>} : tensor<4xf32>
    %2 = graph.mul %1, %w2 {foo = array<i64: 4611686018427387904>} : tensor<4xf32>
    %5 = graph.mul %2, %w5 : tensor<4xf32>
    return %5 : tensor<4xf32>
  }
}

// -----

// Names of which no third one follows, or no fifth.
// CHECK: error: folded layers are not alike: their state differs
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.v", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

// CHECK: error: argument 2 has an attribute that grows too far over 6 layers
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.9.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.3.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

// CHECK: error: expects a number of layers, 1 to 4096, in 'graph.repeat_count'
func.func @f(%x: tensor<4xf32> {graph.repeat_count = -1}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// Three layers are mixed, and collectives keep the order that they have.
// CHECK: error: folded layers are not alike: 'dist.all_reduce' reads what a later layer computes
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  dist.mesh @mesh [#dist.axis<"tensor" = 2>]
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %y0 = graph.mul %x, %w0 {graph.layer = #graph.layer<0>} : tensor<4xf32>
    %e1 = dist.all_reduce sum %y0 over @mesh [#dist.axis_ref<"tensor">] {graph.layer = #graph.layer<1>} : tensor<4xf32> -> tensor<4xf32>
    %a0 = graph.add %y0, %e1 {graph.layer = #graph.layer<0>} : tensor<4xf32>
    %y1 = graph.mul %a0, %w1 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %e2 = dist.all_reduce sum %y1 over @mesh [#dist.axis_ref<"tensor">] {graph.layer = #graph.layer<2>} : tensor<4xf32> -> tensor<4xf32>
    %a1 = graph.add %y1, %e2 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %y2 = graph.mul %a1, %w2 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %e5 = dist.all_reduce sum %y2 over @mesh [#dist.axis_ref<"tensor">] {graph.layer = #graph.layer<5>} : tensor<4xf32> -> tensor<4xf32>
    %t1 = graph.neg %y1 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %a2 = graph.add %y2, %e5 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    %y5 = graph.mul %a2, %w5 {graph.layer = #graph.layer<5>} : tensor<4xf32>
    %t2 = graph.neg %y2 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    return %y5 : tensor<4xf32>
  }
}
