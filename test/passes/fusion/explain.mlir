// RUN: tessera-opt %s --decompose-composites --fuse=explain 2>&1 | FileCheck %s
// Why tensors are stored between kernels.

// CHECK: remark: stored for 'graph.reduce', contraction and row: no kernel computes both
// CHECK: remark: stored for 'graph.mul', row and elementwise: they differ in the number or the order of elements, or another kernel reads it too
func.func @f(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>) -> (tensor<8x32xf32>, tensor<32x8xf32>) {
  %y = graph.einsum "mk,kn->mn" %x, %w : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %s = graph.softmax %y : tensor<8x32xf32>
  %t = graph.transpose %s [1, 0] : tensor<8x32xf32> -> tensor<32x8xf32>
  %r = graph.mul %t, %t : tensor<32x8xf32>
  return %s, %r : tensor<8x32xf32>, tensor<32x8xf32>
}
