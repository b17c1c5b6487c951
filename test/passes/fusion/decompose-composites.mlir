// RUN: tessera-opt %s --decompose-composites | FileCheck %s

// Primitives say where they come from; attention stays whole.

// CHECK-LABEL: func @norm(
// CHECK-NOT:   graph.rms_norm
// CHECK:       graph.mul {{.*}} {graph.origin = "rms_norm"}
// CHECK:       graph.reduce {{.*}} {graph.origin = "rms_norm"}
func.func @norm(%x: tensor<4x8xf32>, %w: tensor<8xf32>) -> tensor<4x8xf32> {
  %y = graph.rms_norm %x, %w eps 1.0e-5 : tensor<4x8xf32>, tensor<8xf32>
  return %y : tensor<4x8xf32>
}

// CHECK-LABEL: func @attention(
// CHECK:       graph.attention
// CHECK-NOT:   graph.softmax
func.func @attention(%q: tensor<1x4x2x8xf32>, %k: tensor<1x4x2x8xf32>) -> tensor<1x4x2x8xf32> {
  %y, %l = graph.attention %q, %k, %k scale 0.5 {causal} : tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x2x8xf32>, tensor<1x2x4xf32>
  return %y : tensor<1x4x2x8xf32>
}

// Inside loops too.

// CHECK-LABEL: func @inLoop(
// CHECK:       graph.loop
// CHECK-NOT:   graph.softmax
// CHECK:       graph.exp
func.func @inLoop(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %r = graph.loop 2 (%i, %a = %x) : (tensor<4x8xf32>) {
    %y = graph.softmax %a : tensor<4x8xf32>
    graph.yield %y : tensor<4x8xf32>
  }
  return %r : tensor<4x8xf32>
}
