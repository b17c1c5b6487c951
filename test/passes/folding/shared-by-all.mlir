// RUN: tessera-opt %s --deduplicate-layers | FileCheck %s
// RUN: tessera-opt %s > %t.plain
// RUN: tessera-opt %s --deduplicate-layers --restore-layers | diff %t.plain -
// The norm comes from the last layer's sum, but updates of all layers read it:
// a product with it is its own layer's, not the last one's.

// CHECK: graph.folded = array<i64: 0, 1, 6>
// CHECK-COUNT-3: graph.add
// CHECK-NOT: graph.add
// CHECK-COUNT-4: graph.sub
// CHECK-NOT: graph.sub
func.func @train_step(
    %w0: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.0.w", graph.layer = #graph.layer<0>},
    %w1: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.2.w", graph.layer = #graph.layer<2>},
    %w3: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    %w4: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.4.w", graph.layer = #graph.layer<4>},
    %w5: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.5.w", graph.layer = #graph.layer<5>},
    %x: tensor<4xf32> {graph.input = "x"}) -> (
    tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.0.w", graph.layer = #graph.layer<0>},
    tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.2.w", graph.layer = #graph.layer<2>},
    tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.4.w", graph.layer = #graph.layer<4>},
    tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "h.5.w", graph.layer = #graph.layer<5>}) {
  %g0 = graph.mul %w0, %x : tensor<4xf32>
  %g1 = graph.mul %w1, %x : tensor<4xf32>
  %g2 = graph.mul %w2, %x : tensor<4xf32>
  %g3 = graph.mul %w3, %x : tensor<4xf32>
  %g4 = graph.mul %w4, %x : tensor<4xf32>
  %g5 = graph.mul %w5, %x : tensor<4xf32>
  %s1 = graph.add %g0, %g1 : tensor<4xf32>
  %s2 = graph.add %s1, %g2 : tensor<4xf32>
  %s3 = graph.add %s2, %g3 : tensor<4xf32>
  %s4 = graph.add %s3, %g4 : tensor<4xf32>
  %s5 = graph.add %s4, %g5 : tensor<4xf32>
  %norm = graph.sqrt %s5 : tensor<4xf32>
  %v0 = graph.mul %norm, %w0 : tensor<4xf32>
  %m0 = graph.mul %g0, %norm : tensor<4xf32>
  %u0 = graph.sub %v0, %m0 : tensor<4xf32>
  %v1 = graph.mul %norm, %w1 : tensor<4xf32>
  %m1 = graph.mul %g1, %norm : tensor<4xf32>
  %u1 = graph.sub %v1, %m1 : tensor<4xf32>
  %v2 = graph.mul %norm, %w2 : tensor<4xf32>
  %m2 = graph.mul %g2, %norm : tensor<4xf32>
  %u2 = graph.sub %v2, %m2 : tensor<4xf32>
  %v3 = graph.mul %norm, %w3 : tensor<4xf32>
  %m3 = graph.mul %g3, %norm : tensor<4xf32>
  %u3 = graph.sub %v3, %m3 : tensor<4xf32>
  %v4 = graph.mul %norm, %w4 : tensor<4xf32>
  %m4 = graph.mul %g4, %norm : tensor<4xf32>
  %u4 = graph.sub %v4, %m4 : tensor<4xf32>
  %v5 = graph.mul %norm, %w5 : tensor<4xf32>
  %m5 = graph.mul %g5, %norm : tensor<4xf32>
  %u5 = graph.sub %v5, %m5 : tensor<4xf32>
  return %u0, %u1, %u2, %u3, %u4, %u5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
