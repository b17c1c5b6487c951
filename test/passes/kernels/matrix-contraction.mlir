// RUN: tessera-opt %s --emit-kernels=targets=cpu:amx --canonicalize --cse | FileCheck %s
// RUN: tessera-opt %s --emit-kernels=targets=cpu:amx,cpu:avx512 | FileCheck %s --check-prefix=BOTH
// RUN: sed s/bf16/f32/g %s | tessera-opt --emit-kernels=targets=cpu:amx,cpu:avx512 | FileCheck %s --check-prefix=NARROW

// BOTH-DAG: module @cpu_amx
// BOTH-DAG: module @cpu_avx512

// Without products of bf16 there is nothing for matrix registers to do.
// NARROW-NOT: module @cpu_amx

// Both operands are staged; what k lacks to a block of 32 terms are zeros.

// CHECK:     tile.kernel @many(
// CHECK-DAG: %[[X:.*]] = tile.alloc : memref<1x64x96xbf16, #tile.shared>
// CHECK-DAG: %[[W:.*]] = tile.alloc : memref<2x64x32xbf16, #tile.shared<pairs>>
// CHECK-DAG: %[[S:.*]] = tile.alloc : memref<1x32x32xf32, #tile.shared>
// CHECK:     tile.store %{{.*}}, %[[W]]{{.*}} : vector<2x32xbf16>
// CHECK:     tile.store %{{.*}}, %[[X]]{{.*}} : vector<1x24xbf16>
// CHECK:     tile.mma_staged %[[X]]{{.*}}, %[[W]]{{.*}} onto %[[S]]{{.*}} shape [32, 32]
// CHECK:     tile.load %[[S]]
func.func @many(%x: tensor<40x40xbf16>, %w: tensor<50x40xbf16>) -> tensor<40x50xf32> {
  %r = graph.cluster contraction "many"(%x, %w) : (tensor<40x40xbf16>, tensor<50x40xbf16>) -> tensor<40x50xf32> {
  ^bb0(%a: tensor<40x40xbf16>, %b: tensor<50x40xbf16>):
    %c = graph.einsum "mk,nk->mn" %a, %b : (tensor<40x40xbf16>, tensor<50x40xbf16>) -> tensor<40x50xf32>
    graph.yield %c : tensor<40x50xf32>
  }
  return %r : tensor<40x50xf32>
}

// Few rows: the weights are a left operand where they lie.

// CHECK:     tile.kernel @few(%{{.*}}: index, %{{.*}}: memref<192xbf16>, %[[M:.*]]: memref<3200xbf16>,
// CHECK:     %[[W:.*]] = memref.reinterpret_cast %[[M]]
// CHECK:     %[[X:.*]] = tile.alloc : memref<1x64x3xbf16, #tile.shared<pairs>>
// CHECK:     tile.mma_staged %[[W]]{{.*}} far, %[[X]]{{.*}}, 3]
// CHECK:     tile.transpose
func.func @few(%x: tensor<3x64xbf16>, %w: tensor<50x64xbf16>) -> tensor<3x50xf32> {
  %r = graph.cluster contraction "few"(%x, %w) : (tensor<3x64xbf16>, tensor<50x64xbf16>) -> tensor<3x50xf32> {
  ^bb0(%a: tensor<3x64xbf16>, %b: tensor<50x64xbf16>):
    %c = graph.einsum "mk,nk->mn" %a, %b : (tensor<3x64xbf16>, tensor<50x64xbf16>) -> tensor<3x50xf32>
    graph.yield %c : tensor<3x50xf32>
  }
  return %r : tensor<3x50xf32>
}
