// RUN: tessera-opt %s --emit-kernels=targets=cuda:sm_80 --canonicalize --cse | FileCheck %s
// RUN: tessera-opt %s --emit-kernels=targets=cuda:sm_90a --canonicalize --cse | FileCheck %s

// Integers and scales are staged as they lie in memory, eight groups a stage, beside the rows that meet them; of those no
// more than there are. What is not there of the last block's strips is zeros. Four rows of warps have 64 terms of a stage
// each, and what they came to is added up behind the loop.

// CHECK-LABEL: tile.kernel @few(
// CHECK-SAME:    warps = array<i64: 4, 4>
// CHECK-DAG:     %[[PARTS:.*]] = tile.alloc : memref<64x64xf32, #tile.shared>
// CHECK-DAG:     %[[X:.*]] = tile.alloc : memref<{{[48]}}x16x256xbf16, #tile.shared<swizzled>>
// CHECK-DAG:     %[[W:.*]] = tile.alloc : memref<{{[48]}}x4x512xi32, #tile.shared<swizzled>>
// CHECK-DAG:     %[[S:.*]] = tile.alloc : memref<{{[48]}}x4x256xf16, #tile.shared<swizzled>>
// CHECK-DAG:     %[[WORDS:.*]] = memref.reinterpret_cast %{{.*}} to offset: [0], sizes: [19, 4096], strides: [4096, 1] : memref<77824xi32>
// CHECK-DAG:     %[[SCALES:.*]] = memref.reinterpret_cast %{{.*}} to offset: [0], sizes: [19, 2048], strides: [2048, 1] : memref<38912xf16>
// CHECK:         scf.for
// CHECK:           tile.wait {{[26]}}
// CHECK:           scf.if
// CHECK:             tile.copy %{{.*}} to %[[X]]{{.*}} shape [5, 256]
// CHECK:             tile.copy %[[WORDS]]{{.*}} to %[[W]]{{.*}} shape [4, 512] bound %{{.*}}, %c512
// CHECK:             tile.copy %[[SCALES]]{{.*}} to %[[S]]{{.*}} shape [4, 256] bound %{{.*}}, %c256
// CHECK:           tile.commit
// CHECK:           tile.mma_quantized %{{.*}} bits 4 group 32 zeros splits 4 : vector<16x256xbf16>, vector<4x512xi32>, vector<4x256xf16>, vector<64x64xf32>
// CHECK:         tile.store %{{.*}}, %[[PARTS]][%c0, %c0]
// CHECK-COUNT-4: tile.load %[[PARTS]]{{.*}} bound %c5, %c64
func.func @few(%x: tensor<5x2048xbf16>, %q: tensor<19x256x16xi32>, %s: tensor<19x128x16xf16>) -> tensor<5x300xf32> {
  %r = graph.cluster contraction "few"(%x, %q, %s) : (tensor<5x2048xbf16>, tensor<19x256x16xi32>, tensor<19x128x16xf16>) -> tensor<5x300xf32> {
  ^bb0(%a: tensor<5x2048xbf16>, %b: tensor<19x256x16xi32>, %c: tensor<19x128x16xf16>):
    %d = graph.dequantize %b, %c bits 4 group 32 zeros : tensor<19x256x16xi32>, tensor<19x128x16xf16> -> tensor<300x2048xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<5x2048xbf16>, tensor<300x2048xbf16>) -> tensor<5x300xf32>
    graph.yield %e : tensor<5x300xf32>
  }
  return %r : tensor<5x300xf32>
}

// Many rows: a stage has 32 terms, all of one group.

// CHECK-LABEL: tile.kernel @many(
// CHECK-SAME:    warps = array<i64: 2, 2>
// CHECK-DAG:     %[[X:.*]] = tile.alloc : memref<4x64x32xbf16, #tile.shared<swizzled>>
// CHECK-DAG:     %[[W:.*]] = tile.alloc : memref<4x4x128xi32, #tile.shared<swizzled>>
// CHECK-DAG:     %[[S:.*]] = tile.alloc : memref<4x4x16xf16, #tile.shared<swizzled>>
// CHECK:         scf.for
// CHECK:           tile.mma_quantized %{{.*}} bits 8 group 128 splits 1 : vector<64x32xbf16>, vector<4x128xi32>, vector<4x16xf16>, vector<64x64xf32>
func.func @many(%x: tensor<64x512xbf16>, %q: tensor<8x128x16xi32>, %s: tensor<8x4x16xf16>) -> tensor<64x128xf32> {
  %r = graph.cluster contraction "many"(%x, %q, %s) : (tensor<64x512xbf16>, tensor<8x128x16xi32>, tensor<8x4x16xf16>) -> tensor<64x128xf32> {
  ^bb0(%a: tensor<64x512xbf16>, %b: tensor<8x128x16xi32>, %c: tensor<8x4x16xf16>):
    %d = graph.dequantize %b, %c bits 8 group 128 : tensor<8x128x16xi32>, tensor<8x4x16xf16> -> tensor<128x512xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<64x512xbf16>, tensor<128x512xbf16>) -> tensor<64x128xf32>
    graph.yield %e : tensor<64x128xf32>
  }
  return %r : tensor<64x128xf32>
}

// Few rows and few columns: narrow tiles, of which there are more.

// CHECK-LABEL: tile.kernel @narrow(
// CHECK-SAME:    warps = array<i64: 4, 2>
// CHECK:         tile.mma_quantized %{{.*}} bits 8 group 64 splits 4 : vector<16x256xbf16>, vector<2x1024xi32>, vector<2x64xf16>, vector<64x32xf32>
func.func @narrow(%x: tensor<1x512xbf16>, %q: tensor<8x128x16xi32>, %s: tensor<8x8x16xf16>) -> tensor<1x128xf32> {
  %r = graph.cluster contraction "narrow"(%x, %q, %s) : (tensor<1x512xbf16>, tensor<8x128x16xi32>, tensor<8x8x16xf16>) -> tensor<1x128xf32> {
  ^bb0(%a: tensor<1x512xbf16>, %b: tensor<8x128x16xi32>, %c: tensor<8x8x16xf16>):
    %d = graph.dequantize %b, %c bits 8 group 64 : tensor<8x128x16xi32>, tensor<8x8x16xf16> -> tensor<128x512xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<1x512xbf16>, tensor<128x512xbf16>) -> tensor<1x128xf32>
    graph.yield %e : tensor<1x128xf32>
  }
  return %r : tensor<1x128xf32>
}

// e4m3 lies as integers of 8 bits do.

// CHECK-LABEL: tile.kernel @floats(
// CHECK-DAG:     %[[W:.*]] = tile.alloc : memref<3x2x1024xi32, #tile.shared<swizzled>>
// CHECK-DAG:     %[[S:.*]] = tile.alloc : memref<3x2x32xf16, #tile.shared<swizzled>>
// CHECK:         tile.mma_quantized %{{.*}} bits 8 group 128 floats splits 4 : vector<16x256xbf16>, vector<2x1024xi32>, vector<2x32xf16>, vector<64x32xf32>
func.func @floats(%x: tensor<1x512xbf16>, %q: tensor<8x128x16xi32>, %s: tensor<8x4x16xf16>) -> tensor<1x128xf32> {
  %r = graph.cluster contraction "floats"(%x, %q, %s) : (tensor<1x512xbf16>, tensor<8x128x16xi32>, tensor<8x4x16xf16>) -> tensor<1x128xf32> {
  ^bb0(%a: tensor<1x512xbf16>, %b: tensor<8x128x16xi32>, %c: tensor<8x4x16xf16>):
    %d = graph.dequantize %b, %c bits 8 group 128 floats : tensor<8x128x16xi32>, tensor<8x4x16xf16> -> tensor<128x512xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<1x512xbf16>, tensor<128x512xbf16>) -> tensor<1x128xf32>
    graph.yield %e : tensor<1x128xf32>
  }
  return %r : tensor<1x128xf32>
}
