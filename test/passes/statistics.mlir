// Passes count what they decided.
// RUN: tessera-opt %s --fuse --mlir-pass-statistics 2>&1 | FileCheck %s
// CHECK: Fuse
// CHECK: (S) 1 num-clusters
// CHECK: (S) 2 num-fused
func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = graph.exp %x : tensor<8xf32>
  %1 = graph.relu %0 : tensor<8xf32>
  return %1 : tensor<8xf32>
}
