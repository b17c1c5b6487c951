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

// Collectives do not hinder: they are ordered after fusion.
// CHECK: graph.folded
// CHECK-COUNT-3: graph.mul
// CHECK-NOT: graph.mul
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

// -----

// Between the layers of a decomposed reduce-scatter there are ops of the next.
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
    %6 = graph.einsum "i,i->i" %5, %5 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %7 = dist.permute %6 targets [1, 0] over @mesh [#dist.axis_ref<"data">] : tensor<4xf32> -> tensor<4xf32>
    return %7 : tensor<4xf32>
  }
}

// -----

// So does a number, such as the stream of a dropout.
// CHECK-NOT: graph.folded
// CHECK: graph.constant {{.*}} dense<14>
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @logits(
      %w0: tensor<4xi32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xi32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
      %w2: tensor<4xi32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>, graph.repeat_count = 3}, %w5: tensor<4xi32> {graph.state = "h.5.w", graph.layer = #graph.layer<5>},
      %x: tensor<4xi32> {graph.input = "x"}) -> tensor<4xi32> {
    %0 = graph.mul %x, %w0 : tensor<4xi32>
    %k1 = graph.constant {graph.layer = #graph.layer<1>} dense<11> : tensor<4xi32>
    %m1 = graph.mul %0, %w1 : tensor<4xi32>
    %1 = graph.add %m1, %k1 : tensor<4xi32>
    %k2 = graph.constant {graph.layer = #graph.layer<2>} dense<12> : tensor<4xi32>
    %m2 = graph.mul %1, %w2 : tensor<4xi32>
    %2 = graph.add %m2, %k2 : tensor<4xi32>
    return %2 : tensor<4xi32>
  }
}

// -----

// A number that kernels read from memory is no constant of theirs.
// CHECK: graph.folded
// CHECK-COUNT-3: graph.slice
// CHECK-NOT: graph.slice
module attributes {graph.folded = array<i64: 0, 1, 6>} {
  func.func @init(%seeds: tensor<6x16xf32> {graph.input = "seeds"}) ->
      (tensor<1x1xf32> {graph.layer = #graph.layer<0>, graph.state = "h.0.b"}, tensor<1x1xf32> {graph.layer = #graph.layer<1>, graph.state = "h.1.b"},
       tensor<1x1xf32> {graph.layer = #graph.layer<2>, graph.repeat_count = 3, graph.state = "h.2.b"}, tensor<1x1xf32> {graph.layer = #graph.layer<5>, graph.state = "h.5.b"}) {
    %0 = graph.constant dense<0.0> : tensor<1x1xf32>
    %1 = graph.slice %seeds [1, 0] : tensor<6x16xf32> -> tensor<1x1xf32>
    %2 = graph.slice %seeds [2, 0] : tensor<6x16xf32> -> tensor<1x1xf32>
    %5 = graph.slice %seeds [5, 0] : tensor<6x16xf32> -> tensor<1x1xf32>
    return %0, %1, %2, %5 : tensor<1x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>
  }
}
