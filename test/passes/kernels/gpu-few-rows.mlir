// RUN: tessera-opt %s --emit-kernels=targets=cuda:sm_80 --canonicalize --cse | FileCheck %s
// RUN: tessera-opt %s --emit-kernels=targets=cuda:sm_90a --canonicalize --cse | FileCheck %s

// Tiles as wide as fill the chip; chunks of 256 bytes, of which eight stages are in flight. Of the rows only those that
// exist are copied; the others' sums are removed where the epilogue adds up rows.

// CHECK-LABEL: tile.kernel @narrow(
// CHECK-SAME:    warps = array<i64: 1, 1>
// CHECK-DAG:     %[[X:.*]] = tile.alloc : memref<8x16x128xbf16, #tile.shared<swizzled>>
// CHECK-DAG:     %[[W:.*]] = tile.alloc : memref<8x16x128xbf16, #tile.shared<swizzled>>
// CHECK:         scf.for %{{.*}} = %c0 to %c7
// CHECK:           tile.copy %{{.*}} to %[[X]]{{.*}} shape [1, 128]
// CHECK:           tile.copy %{{.*}} to %[[W]]{{.*}} shape [16, 128]
// CHECK:           tile.commit
// CHECK:         scf.for %{{.*}} = %c0 to %c16
// CHECK:           tile.wait 6
// CHECK:         %[[FIRST:.*]] = arith.cmpi slt, {{.*}} : vector<16x16xi32>
// CHECK:         arith.select %[[FIRST]]
// CHECK:         tile.reduce
func.func @narrow(%x: tensor<1x2048xbf16>, %w: tensor<2048x2048xbf16>) -> tensor<1x2048xbf16> {
  %r = graph.cluster contraction "narrow"(%x, %w) : (tensor<1x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<1x2048xbf16> {
  ^bb0(%a: tensor<1x2048xbf16>, %b: tensor<2048x2048xbf16>):
    %e = graph.einsum "mk,nk->mn" %a, %b : (tensor<1x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<1x2048xbf16>
    graph.yield %e : tensor<1x2048xbf16>
  }
  return %r : tensor<1x2048xbf16>
}

// CHECK-LABEL: tile.kernel @wide(
// CHECK-SAME:    warps = array<i64: 1, 4>
// CHECK-DAG:     tile.alloc : memref<3x16x128xbf16, #tile.shared<swizzled>>
// CHECK-DAG:     tile.alloc : memref<3x64x128xbf16, #tile.shared<swizzled>>
// CHECK:         tile.copy {{.*}} shape [5, 128]
// CHECK-NOT:     arith.select
func.func @wide(%x: tensor<5x2048xbf16>, %w: tensor<16384x2048xbf16>) -> tensor<5x16384xbf16> {
  %r = graph.cluster contraction "wide"(%x, %w) : (tensor<5x2048xbf16>, tensor<16384x2048xbf16>) -> tensor<5x16384xbf16> {
  ^bb0(%a: tensor<5x2048xbf16>, %b: tensor<16384x2048xbf16>):
    %e = graph.einsum "mk,nk->mn" %a, %b : (tensor<5x2048xbf16>, tensor<16384x2048xbf16>) -> tensor<5x16384xbf16>
    graph.yield %e : tensor<5x16384xbf16>
  }
  return %r : tensor<5x16384xbf16>
}

// Contiguous columns: rows of at least 64 bytes.

// CHECK-LABEL: tile.kernel @columns(
// CHECK-SAME:    warps = array<i64: 1, 2>
// CHECK-DAG:     tile.alloc : memref<{{.*}}x128x32xbf16, #tile.shared<swizzled>>
func.func @columns(%x: tensor<2x2048xbf16>, %w: tensor<2048x512xbf16>) -> tensor<2x512xbf16> {
  %r = graph.cluster contraction "columns"(%x, %w) : (tensor<2x2048xbf16>, tensor<2048x512xbf16>) -> tensor<2x512xbf16> {
  ^bb0(%a: tensor<2x2048xbf16>, %b: tensor<2048x512xbf16>):
    %e = graph.einsum "mk,kn->mn" %a, %b : (tensor<2x2048xbf16>, tensor<2048x512xbf16>) -> tensor<2x512xbf16>
    graph.yield %e : tensor<2x512xbf16>
  }
  return %r : tensor<2x512xbf16>
}
