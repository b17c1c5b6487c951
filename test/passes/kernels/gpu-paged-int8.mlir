// RUN: tessera-opt %s --emit-kernels=targets=cuda:sm_80 --canonicalize --cse | FileCheck %s

// Pages of int8 land as bytes in two stages, their scales as f32 beside them.
// What has landed is widened into the one tile that products read, while the
// next bytes are on their way; scales go to scores and to weights, by columns.

// CHECK-LABEL: tile.kernel @int8
// CHECK:         tile.alloc : memref<1x16x64xbf16, #tile.shared<swizzled>>
// CHECK:         %[[KEYS:.*]] = tile.alloc : memref<1x64x64xbf16, #tile.shared<swizzled>>
// CHECK:         %[[BYTES:.*]] = tile.alloc : memref<2x64x64xi8, #tile.shared<swizzled>>
// CHECK:         %[[SCALES:.*]] = tile.alloc : memref<2x64xf32, #tile.shared>
// CHECK:         %[[VALUES:.*]] = tile.alloc : memref<1x64x64xbf16, #tile.shared<swizzled>>
// CHECK:         scf.for
// CHECK:           tile.wait 0
// CHECK:           scf.if
// CHECK:             tile.copy %{{.*}} along [1, 3] to %[[BYTES]]
// CHECK:             tile.copy %{{.*}} along [1] to %[[SCALES]]
// CHECK:           tile.commit
// CHECK:           tile.copy %[[BYTES]]{{.*}} to %[[KEYS]]{{.*}} shape [64, 64] : memref<2x64x64xi8
// CHECK:           tile.copy %{{.*}} to %[[VALUES]]{{.*}} shape [64, 64] : memref<2x64x64xi8
// CHECK:           tile.wait 1
// CHECK:           %[[SCORES:.*]] = tile.mma
// CHECK:           %[[LOADED:.*]] = tile.load %[[SCALES]]
// CHECK:           %[[SPREAD:.*]] = tile.broadcast %[[LOADED]] dims [1]
// CHECK:           arith.mulf %[[SCORES]], %[[SPREAD]]
// CHECK:           math.exp2
// CHECK:           tile.broadcast %{{.*}} dims [1]
// CHECK:           arith.truncf {{.*}} : vector<16x64xf32> to vector<16x64xbf16>
// CHECK:           tile.mma
func.func @int8(%q: tensor<2x1x4x64xbf16>, %k: tensor<5x64x2x64xi8>, %s: tensor<5x64x2x1xbf16>, %t: tensor<2x3xi32>, %l: tensor<2xi32>) -> tensor<2x1x4x64xbf16> {
  %a = graph.cluster paged_attention "int8"(%q, %k, %s, %t, %l) : (tensor<2x1x4x64xbf16>, tensor<5x64x2x64xi8>, tensor<5x64x2x1xbf16>, tensor<2x3xi32>, tensor<2xi32>) -> tensor<2x1x4x64xbf16> {
  ^bb0(%b: tensor<2x1x4x64xbf16>, %c: tensor<5x64x2x64xi8>, %d: tensor<5x64x2x1xbf16>, %e: tensor<2x3xi32>, %f: tensor<2xi32>):
    %g = graph.dequantize_rows %c, %d : tensor<5x64x2x64xi8>, tensor<5x64x2x1xbf16> -> tensor<5x64x2x64xbf16>
    %h = graph.paged_attention %b, %g, %g pages %e starts %f lengths %f scale 0.5 : tensor<2x1x4x64xbf16>, tensor<5x64x2x64xbf16>, tensor<2x3xi32>, tensor<2xi32>
    graph.yield %h : tensor<2x1x4x64xbf16>
  }
  return %a : tensor<2x1x4x64xbf16>
}
