// RUN: tessera-opt %s --fuse --verify-fused | FileCheck %s
// RUN: not tessera-opt %s --fuse --emit-kernels=targets=cuda:sm_80 2>&1 | FileCheck %s --check-prefix=GPU

// Rows of a table in a layout are gathered by a cluster of their own, which has the layout's parts as inputs; what follows is another.

// CHECK-LABEL: func @rows
// CHECK-SAME:  (%[[Q:[^:]*]]: tensor<3x64x16xi32>, %[[S:[^:]*]]: tensor<3x8x16xf16>, %[[I:[^:]*]]: tensor<2x2xi32>,
// CHECK:       %[[X:.*]] = graph.cluster gather "embedding"(%[[Q]], %[[S]], %[[I]])
// CHECK:         graph.dequantize
// CHECK-NEXT:    graph.embedding
// CHECK-NEXT:    yield
// CHECK:       graph.cluster elementwise
// GPU: error: cluster 'embedding' cannot be tiled: GPUs do not gather rows of quantized tables; compile for cpu
func.func @rows(%q: tensor<3x64x16xi32>, %s: tensor<3x8x16xf16>, %i: tensor<2x2xi32>, %y: tensor<2x2x256xf32>) -> tensor<2x2x256xf32> {
  %t = graph.dequantize %q, %s bits 8 group 32 : tensor<3x64x16xi32>, tensor<3x8x16xf16> -> tensor<48x256xbf16>
  %x = graph.embedding %t, %i : (tensor<48x256xbf16>, tensor<2x2xi32>) -> tensor<2x2x256xbf16>
  %c = graph.convert %x : tensor<2x2x256xbf16> -> tensor<2x2x256xf32>
  %z = graph.add %c, %y : tensor<2x2x256xf32>
  return %z : tensor<2x2x256xf32>
}
