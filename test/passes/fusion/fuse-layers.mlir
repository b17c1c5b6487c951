// RUN: tessera-opt %s --fuse | FileCheck %s
// A chain of scalars through layers is cut at each of them, and not where a
// kernel has too many operands.

// CHECK:      %[[A:.*]] = graph.cluster elementwise "add"(%arg0, %arg1, %arg2) attributes {graph.layer = #graph.layer<0>}
// CHECK:      %[[B:.*]] = graph.cluster elementwise "add"(%[[A]], %arg1, %arg2) attributes {graph.layer = #graph.layer<1>}
// CHECK-NOT:    graph.layer
// CHECK:      return %[[B]]
func.func @norm(%s: tensor<f32>, %x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = graph.add %s, %x {graph.layer = #graph.layer<0>} : tensor<f32>
  %1 = graph.add %0, %y {graph.layer = #graph.layer<0>} : tensor<f32>
  %2 = graph.add %1, %x {graph.layer = #graph.layer<1>} : tensor<f32>
  %3 = graph.add %2, %y {graph.layer = #graph.layer<1>} : tensor<f32>
  return %3 : tensor<f32>
}

// Other ops of two layers share a kernel, which is of the last one.
// CHECK-LABEL: func @residual
// CHECK:       graph.cluster elementwise "add"(%arg0, %arg1) attributes {graph.layer = #graph.layer<1>}
func.func @residual(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %0 = graph.add %x, %y {graph.layer = #graph.layer<0>} : tensor<8xf32>
  %1 = graph.add %0, %x {graph.layer = #graph.layer<1>} : tensor<8xf32>
  return %1 : tensor<8xf32>
}
