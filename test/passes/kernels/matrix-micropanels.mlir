// RUN: tessera-opt %s --emit-kernels=targets=cpu:amx --canonicalize --cse | FileCheck %s
// RUN: tessera-opt %s --emit-kernels=targets=cpu:avx512 --canonicalize --cse | FileCheck %s --check-prefix=VECTORS
// RUN: tessera-opt %s --emit-kernels=targets=cpu:avx512bf16 --canonicalize --cse | FileCheck %s --check-prefix=DOTS

// Weights in strips are neither copied nor turned: two strips meet two registers of rows.

// CHECK:     tile.kernel @strips(
// CHECK-DAG: %[[X:.*]] = tile.alloc : memref<1x64x96xbf16, #tile.shared>
// CHECK-DAG: %[[W:.*]] = memref.memory_space_cast %{{.*}} #tile.shared<pairs>>
// CHECK:     tile.mma_staged %[[X]]{{.*}}, %[[W]]{{.*}} shape [32, 32]
func.func @strips(%x: tensor<40x64xbf16>, %w: tensor<4x64x16xbf16>) -> tensor<40x50xf32> {
  %r = graph.cluster contraction "strips"(%x, %w) : (tensor<40x64xbf16>, tensor<4x64x16xbf16>) -> tensor<40x50xf32> {
  ^bb0(%a: tensor<40x64xbf16>, %b: tensor<4x64x16xbf16>):
    %d = graph.dequantize %b bits 16 group 32 : tensor<4x64x16xbf16> -> tensor<50x64xbf16>
    %c = graph.einsum "mk,nk->mn" %a, %d : (tensor<40x64xbf16>, tensor<50x64xbf16>) -> tensor<40x50xf32>
    graph.yield %c : tensor<40x50xf32>
  }
  return %r : tensor<40x50xf32>
}

// Few rows are a left operand where they lie, and each strip is one run.

// CHECK:     tile.kernel @few_strips(
// CHECK-NOT: bf16, #tile.shared>
// CHECK:     %[[W:.*]] = memref.memory_space_cast %{{.*}} #tile.shared<pairs>>
// CHECK:     tile.mma_staged %{{.*}} far, %[[W]]{{.*}} shape [3, 16]

// Vectors ask for it ahead; where bf16 is multiplied in pairs, for the first cache alone.

// VECTORS:   tile.kernel @few_strips(
// VECTORS:   memref.prefetch {{.*}}, read, locality<2>
// VECTORS:   memref.prefetch {{.*}}, read, locality<3>
// VECTORS:   tile.mma
// DOTS:      tile.kernel @few_strips(
// DOTS-NOT:  locality<2>
// DOTS:      memref.prefetch {{.*}}, read, locality<3>
// DOTS-NOT:  locality<2>
// DOTS:      tile.mma
func.func @few_strips(%x: tensor<3x64xbf16>, %w: tensor<4x64x16xbf16>) -> tensor<3x50xf32> {
  %r = graph.cluster contraction "few_strips"(%x, %w) : (tensor<3x64xbf16>, tensor<4x64x16xbf16>) -> tensor<3x50xf32> {
  ^bb0(%a: tensor<3x64xbf16>, %b: tensor<4x64x16xbf16>):
    %d = graph.dequantize %b bits 16 group 32 : tensor<4x64x16xbf16> -> tensor<50x64xbf16>
    %c = graph.einsum "mk,nk->mn" %a, %d : (tensor<3x64xbf16>, tensor<50x64xbf16>) -> tensor<3x50xf32>
    graph.yield %c : tensor<3x50xf32>
  }
  return %r : tensor<3x50xf32>
}
