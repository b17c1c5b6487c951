// RUN: tessera-opt %s --split-input-file --restore-layers=keep-local | FileCheck %s
// A module stays folded unless it has collectives, which are ordered at once.

// CHECK: graph.folded
// CHECK-COUNT-3: graph.mul
// CHECK-NOT: graph.mul
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xf32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
    %0 = graph.mul %x, %w0 : tensor<4xf32>
    %1 = graph.mul %0, %w1 : tensor<4xf32>
    %2 = graph.mul %1, %w2 : tensor<4xf32>
    return %2 : tensor<4xf32>
  }
}

// -----

// CHECK-NOT: graph.folded
// CHECK-COUNT-6: graph.mul
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
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
