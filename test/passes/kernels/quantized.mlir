// RUN: tessera-opt %s --emit-kernels=targets=cpu:avx512 --canonicalize --cse | FileCheck %s
// RUN: tessera-opt %s --emit-kernels=targets=cpu:amx --canonicalize --cse | FileCheck %s --check-prefix=MATRIX
// RUN: tessera-opt %s --emit-kernels=targets=cpu:avx512bf16 --canonicalize --cse | FileCheck %s --check-prefix=DOTS

// Few rows read words and scales as two streams. Both are asked for ahead, as far and as near as each other: 32 groups
// of scales stand for 128 lines of words, 16 groups for 64.

// CHECK:     tile.kernel @few(
// CHECK-DAG: %[[W:.*]] = memref.reinterpret_cast %{{.*}} : memref<524288xi32>
// CHECK-DAG: %[[S:.*]] = memref.reinterpret_cast %{{.*}} : memref<131072xf16>
// CHECK:     scf.for
// CHECK:     scf.for %[[G:.*]] = %c0
// CHECK:     %[[FAR:.*]] = arith.addi %[[G]], %c32
// CHECK:     memref.prefetch %[[S]][%{{.*}}, %[[FAR]], %c0], read, locality<2>
// CHECK:     %[[NEAR:.*]] = arith.addi %[[G]], %c16
// CHECK:     memref.prefetch %[[S]][%{{.*}}, %[[NEAR]], %c0], read, locality<3>
// CHECK:     %[[K:.*]] = arith.muli %[[G]], %c4
// CHECK:     %[[FAR:.*]] = arith.addi %[[K]], %c128
// CHECK:     memref.prefetch %[[W]][%{{.*}}, %[[FAR]], %c0], read, locality<2>
// CHECK:     %[[NEAR:.*]] = arith.addi %[[K]], %c64
// CHECK:     memref.prefetch %[[W]][%{{.*}}, %[[NEAR]], %c0], read, locality<3>
// CHECK:     tile.mma

// On this target the second cache is not asked for.

// DOTS:      tile.kernel @few(
// DOTS-NOT:  locality<2>
// DOTS:      memref.prefetch {{.*}}, read, locality<3>
// DOTS-NOT:  locality<2>
// DOTS:      tile.kernel @many(

func.func @few(%x: tensor<1x2048xbf16>, %q: tensor<128x256x16xi32>, %s: tensor<128x64x16xf16>) -> tensor<1x2048xf32> {
  %r = graph.cluster contraction "few"(%x, %q, %s) : (tensor<1x2048xbf16>, tensor<128x256x16xi32>, tensor<128x64x16xf16>) -> tensor<1x2048xf32> {
  ^bb0(%a: tensor<1x2048xbf16>, %b: tensor<128x256x16xi32>, %c: tensor<128x64x16xf16>):
    %d = graph.dequantize %b, %c bits 4 group 32 : tensor<128x256x16xi32>, tensor<128x64x16xf16> -> tensor<2048x2048xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<1x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<1x2048xf32>
    graph.yield %e : tensor<1x2048xf32>
  }
  return %r : tensor<1x2048xf32>
}

// Many rows meet columns that a block widens once, into panels of pairs, which matrix registers multiply.

// MATRIX:     tile.kernel @many(
// MATRIX-DAG: %[[X:.*]] = tile.alloc : memref<1x64x96xbf16, #tile.shared>
// MATRIX-DAG: %[[P:.*]] = tile.alloc : memref<2x64x32xbf16, #tile.shared<pairs>>
// MATRIX:     arith.sitofp
// MATRIX:     arith.truncf
// MATRIX:     tile.store %{{.*}}, %[[P]]{{.*}} : vector<8x16xbf16>
// MATRIX:     tile.mma_staged %[[X]]{{.*}}, %[[P]]{{.*}} shape [32, 32]
func.func @many(%x: tensor<40x64xbf16>, %q: tensor<4x8x16xi32>, %s: tensor<4x2x16xf16>) -> tensor<40x50xf32> {
  %r = graph.cluster contraction "many"(%x, %q, %s) : (tensor<40x64xbf16>, tensor<4x8x16xi32>, tensor<4x2x16xf16>) -> tensor<40x50xf32> {
  ^bb0(%a: tensor<40x64xbf16>, %b: tensor<4x8x16xi32>, %c: tensor<4x2x16xf16>):
    %d = graph.dequantize %b, %c bits 4 group 32 : tensor<4x8x16xi32>, tensor<4x2x16xf16> -> tensor<50x64xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<40x64xbf16>, tensor<50x64xbf16>) -> tensor<40x50xf32>
    graph.yield %e : tensor<40x50xf32>
  }
  return %r : tensor<40x50xf32>
}

// Lines of zero points stand among those of scales: of each group both are asked for.

// CHECK:     tile.kernel @zeros(
// CHECK-DAG: %[[S:.*]] = memref.reinterpret_cast %{{.*}} : memref<262144xf16>
// CHECK:     scf.for
// CHECK:     scf.for %[[G:.*]] = %c0
// CHECK:     %[[LINE:.*]] = arith.muli %[[G]], %c2
// CHECK:     %[[FAR:.*]] = arith.addi %[[LINE]], %c64
// CHECK:     memref.prefetch %[[S]][%{{.*}}, %[[FAR]], %c0], read, locality<2>
// CHECK:     memref.prefetch %[[S]]{{.*}}, read, locality<3>
// CHECK:     %[[FAR:.*]] = arith.addi %[[LINE]], %c65
// CHECK:     memref.prefetch %[[S]][%{{.*}}, %[[FAR]], %c0], read, locality<2>
func.func @zeros(%x: tensor<1x2048xbf16>, %q: tensor<128x256x16xi32>, %s: tensor<128x128x16xf16>) -> tensor<1x2048xf32> {
  %r = graph.cluster contraction "zeros"(%x, %q, %s) : (tensor<1x2048xbf16>, tensor<128x256x16xi32>, tensor<128x128x16xf16>) -> tensor<1x2048xf32> {
  ^bb0(%a: tensor<1x2048xbf16>, %b: tensor<128x256x16xi32>, %c: tensor<128x128x16xf16>):
    %d = graph.dequantize %b, %c bits 4 group 32 zeros : tensor<128x256x16xi32>, tensor<128x128x16xf16> -> tensor<2048x2048xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<1x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<1x2048xf32>
    graph.yield %e : tensor<1x2048xf32>
  }
  return %r : tensor<1x2048xf32>
}

// Experts, two rows to eight: a slot for each row, whose group is found among the offsets. Its strips begin where its matrix
// does, 12 for each; a block without rows reads none. One row or two meet a strip at once.

// CHECK:     tile.kernel @experts(
// CHECK-SAME: blocks = 2 : i64
// CHECK-DAG: %[[W:.*]] = memref.reinterpret_cast %{{.*}} : memref<24576xi32>
// CHECK:     %[[SEARCH:.*]]:2 = scf.for
// CHECK:     %[[GROUP:.*]] = arith.minsi %{{.*}}, %c7
// CHECK:     %[[FIRST:.*]] = arith.muli %[[GROUP]], %c12
// CHECK:     %[[SOME:.*]] = arith.cmpi sgt
// CHECK:     scf.if %[[SOME]] {
// CHECK:       %[[STRIP:.*]] = arith.addi %{{.*}}, %[[FIRST]]
// CHECK:       tile.load %[[W]][%[[STRIP]],
// CHECK:       tile.mma {{.*}} vector<2x16xi32>
// CHECK:       tile.load %[[W]][%[[STRIP]],
// CHECK:       tile.mma {{.*}} vector<1x16xi32>
func.func @experts(%x: tensor<2x64xbf16>, %q: tensor<96x16x16xi32>, %s: tensor<96x2x16xf16>, %g: tensor<9xi32>) -> tensor<2x192xf32> {
  %r = graph.cluster grouped "experts"(%x, %q, %s, %g) : (tensor<2x64xbf16>, tensor<96x16x16xi32>, tensor<96x2x16xf16>, tensor<9xi32>) -> tensor<2x192xf32> {
  ^bb0(%a: tensor<2x64xbf16>, %b: tensor<96x16x16xi32>, %c: tensor<96x2x16xf16>, %d: tensor<9xi32>):
    %w = graph.dequantize %b, %c bits 8 group 32 : tensor<96x16x16xi32>, tensor<96x2x16xf16> -> tensor<8x192x64xbf16>
    %e = graph.grouped_matmul %a, %w groups %d {transposed} : (tensor<2x64xbf16>, tensor<8x192x64xbf16>, tensor<9xi32>) -> tensor<2x192xf32>
    graph.yield %e : tensor<2x192xf32>
  }
  return %r : tensor<2x192xf32>
}

// e4m3 becomes f32 by its bits, the smaller of what they are as normal and as subnormal numbers: four weights of 16 rows each time
// for panels, and where there are few rows, 16 at a time beside rows in f32, as no integers are.

// MATRIX:     tile.kernel @floats(
// MATRIX-DAG: %[[P:.*]] = tile.alloc : memref<2x64x32xbf16, #tile.shared<pairs>>
// MATRIX:     %[[SIGN:.*]] = arith.andi %{{.*}}, %{{.*}} : vector<4x16xi32>
// MATRIX:     %[[LESS:.*]] = arith.subf %{{.*}}, %{{.*}} : vector<4x16xf32>
// MATRIX:     %[[SUBNORMAL:.*]] = arith.bitcast %[[LESS]] : vector<4x16xf32> to vector<4x16xi32>
// MATRIX:     %[[MAGNITUDE:.*]] = arith.minui %{{.*}}, %[[SUBNORMAL]] : vector<4x16xi32>
// MATRIX:     %[[BITS:.*]] = arith.ori %[[SIGN]], %[[MAGNITUDE]] : vector<4x16xi32>
// MATRIX:     %[[VALUE:.*]] = arith.bitcast %[[BITS]] : vector<4x16xi32> to vector<4x16xf32>
// MATRIX:     arith.mulf %[[VALUE]], %{{.*}} : vector<4x16xf32>
// MATRIX:     arith.truncf
// MATRIX:     tile.store %{{.*}}, %[[P]]{{.*}} : vector<4x16xbf16>
// MATRIX:     tile.kernel @few_floats(
// MATRIX:     arith.extf %{{.*}} : vector<32xbf16> to vector<32xf32>
// MATRIX:     arith.bitcast %{{.*}} : vector<1x16xi32> to vector<1x16xf32>
// MATRIX:     tile.mma
func.func @floats(%x: tensor<40x64xbf16>, %q: tensor<4x16x16xi32>, %s: tensor<4x2x16xf16>) -> tensor<40x50xf32> {
  %r = graph.cluster contraction "floats"(%x, %q, %s) : (tensor<40x64xbf16>, tensor<4x16x16xi32>, tensor<4x2x16xf16>) -> tensor<40x50xf32> {
  ^bb0(%a: tensor<40x64xbf16>, %b: tensor<4x16x16xi32>, %c: tensor<4x2x16xf16>):
    %d = graph.dequantize %b, %c bits 8 group 32 floats : tensor<4x16x16xi32>, tensor<4x2x16xf16> -> tensor<50x64xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<40x64xbf16>, tensor<50x64xbf16>) -> tensor<40x50xf32>
    graph.yield %e : tensor<40x50xf32>
  }
  return %r : tensor<40x50xf32>
}

func.func @few_floats(%x: tensor<2x64xbf16>, %q: tensor<4x16x16xi32>, %s: tensor<4x2x16xf16>) -> tensor<2x50xf32> {
  %r = graph.cluster contraction "few_floats"(%x, %q, %s) : (tensor<2x64xbf16>, tensor<4x16x16xi32>, tensor<4x2x16xf16>) -> tensor<2x50xf32> {
  ^bb0(%a: tensor<2x64xbf16>, %b: tensor<4x16x16xi32>, %c: tensor<4x2x16xf16>):
    %d = graph.dequantize %b, %c bits 8 group 32 floats : tensor<4x16x16xi32>, tensor<4x2x16xf16> -> tensor<50x64xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<2x64xbf16>, tensor<50x64xbf16>) -> tensor<2x50xf32>
    graph.yield %e : tensor<2x50xf32>
  }
  return %r : tensor<2x50xf32>
}
