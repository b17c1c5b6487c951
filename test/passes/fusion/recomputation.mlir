// RUN: tessera-opt %s --fuse | FileCheck %s
// What the backward pass of a layer computes from a product of its forward pass is
// no epilogue of that product: it would be stored from then until it is read.

// CHECK-LABEL: func @layer
// CHECK: %[[PRODUCT:.*]] = graph.cluster contraction "linear"(%arg0, %arg1)
// CHECK: %[[LOSS:.*]] = graph.cluster contraction "linear{{.*}}"(%[[PRODUCT]], %arg2)
// CHECK: graph.cluster elementwise "sigmoid{{.*}}"(%[[PRODUCT]]
func.func @layer(%x: tensor<16x32xf32>, %a: tensor<32x64xf32>, %b: tensor<64x8xf32>, %g: tensor<16x64xf32>)
    -> (tensor<16x8xf32>, tensor<16x64xf32>, tensor<16x64xf32>) {
  %p = graph.einsum "mk,kn->mn" %x, %a {graph.layer = #graph.layer<3>} : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  %y = graph.einsum "mk,kn->mn" %p, %b {graph.layer = #graph.layer<3>} : (tensor<16x64xf32>, tensor<64x8xf32>) -> tensor<16x8xf32>
  %s = graph.sigmoid %p {graph.layer = #graph.layer<3, backward>} : tensor<16x64xf32>
  %d = graph.mul %s, %g {graph.layer = #graph.layer<3, backward>} : tensor<16x64xf32>
  return %y, %s, %d : tensor<16x8xf32>, tensor<16x64xf32>, tensor<16x64xf32>
}
