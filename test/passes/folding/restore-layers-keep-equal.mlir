// RUN: tessera-opt %s --split-input-file --restore-layers=keep-equal | FileCheck %s
// Layers stay folded that will have the same kernels.

// CHECK: graph.folded
// CHECK-COUNT-3: graph.mul
// CHECK-NOT: graph.mul
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %0 = graph.mul %x, %w0 {graph.layer = #graph.layer<0>} : tensor<4xf32>
    %1 = graph.mul %0, %w1 {graph.layer = #graph.layer<1>} : tensor<4xf32>
    %2 = graph.mul %1, %w2 {graph.layer = #graph.layer<2>} : tensor<4xf32>
    return %2 : tensor<4xf32>
  }
}

// -----

// A constant of the kernel differs: each layer has its own part of a row.
// CHECK-NOT: graph.folded
// CHECK-COUNT-6: graph.slice
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<24xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %x0 = graph.slice %x [0] : tensor<24xf32> -> tensor<4xf32>
    %0 = graph.mul %x0, %w0 : tensor<4xf32>
    %x1 = graph.slice %x [4] : tensor<24xf32> -> tensor<4xf32>
    %y1 = graph.mul %x1, %w1 : tensor<4xf32>
    %1 = graph.add %0, %y1 : tensor<4xf32>
    %x2 = graph.slice %x [8] : tensor<24xf32> -> tensor<4xf32>
    %y2 = graph.mul %x2, %w2 : tensor<4xf32>
    %2 = graph.add %1, %y2 : tensor<4xf32>
    %x5 = graph.slice %x [20] : tensor<24xf32> -> tensor<4xf32>
    %y5 = graph.mul %x5, %w5 : tensor<4xf32>
    %5 = graph.add %2, %y5 : tensor<4xf32>
    return %5 : tensor<4xf32>
  }
}

// -----

// Collectives of all layers are ordered at once.
// CHECK-NOT: graph.folded
// CHECK-COUNT-6: graph.mul
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  dist.mesh @mesh [#dist.axis<"data" = 2 memory>]
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %0 = graph.mul %x, %w0 : tensor<4xf32>
    %1 = graph.mul %0, %w1 : tensor<4xf32>
    %2 = graph.mul %1, %w2 : tensor<4xf32>
    %5 = graph.mul %2, %w5 : tensor<4xf32>
    %6 = dist.all_reduce sum %5 over @mesh [#dist.axis_ref<"data">] : tensor<4xf32> -> tensor<4xf32>
    return %6 : tensor<4xf32>
  }
}
