// RUN: tessera-opt %s --emit-kernels=targets=cpu:amx,cpu:avx512 --canonicalize --cse | FileCheck %s

// Pages of bf16 in matrix registers: keys as they lie, queries and values in pairs, weights turned and rounded. One token of a group of four heads has
// a tile of sixteen queries.

// CHECK:     module @cpu_amx
// CHECK:     tile.kernel @decode(
// CHECK-DAG: %[[QUERIES:.*]] = tile.alloc : memref<64x16xbf16, #tile.shared<pairs>>
// CHECK-DAG: %[[VALUES:.*]] = tile.alloc : memref<64x64xbf16, #tile.shared<pairs>>
// CHECK-DAG: %[[WEIGHTS:.*]] = tile.alloc : memref<16x96xbf16, #tile.shared>
// CHECK:     tile.copy {{.*}} to %[[QUERIES]]
// CHECK:     tile.copy {{.*}} to %[[VALUES]]
// CHECK:     tile.mma_staged %[[KEYS:.*]][%{{.*}}], %[[QUERIES]]{{.*}} shape [32, 16] : memref<9x2x64x64xbf16, strided
// CHECK:     math.exp2
// CHECK:     tile.transpose
// CHECK:     arith.truncf
// CHECK:     tile.store {{.*}}, %[[WEIGHTS]]
// CHECK:     tile.mma_staged %[[WEIGHTS]]{{.*}}, %[[VALUES]]{{.*}} shape [16, 32]

// Heads that are not whole registers, and targets without them, multiply f32.

// CHECK:     tile.kernel @narrow(
// CHECK-NOT: tile.mma_staged
// CHECK:     module @cpu_avx512
// CHECK-NOT: tile.mma_staged

func.func @main(%q: tensor<1x1x8x64xbf16>, %k: tensor<9x64x2x64xbf16>, %v: tensor<9x64x2x64xbf16>, %t: tensor<1x4xi32>, %s: tensor<1xi32>, %l: tensor<1xi32>,
                %nq: tensor<1x1x8x24xbf16>, %nk: tensor<9x64x2x24xbf16>, %nv: tensor<9x64x2x24xbf16>) -> (tensor<1x1x8x64xbf16>, tensor<1x1x8x24xbf16>) {
  %r = graph.cluster paged_attention "decode"(%q, %k, %v, %t, %s, %l) : (tensor<1x1x8x64xbf16>, tensor<9x64x2x64xbf16>, tensor<9x64x2x64xbf16>, tensor<1x4xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<1x1x8x64xbf16> {
  ^bb0(%a: tensor<1x1x8x64xbf16>, %b: tensor<9x64x2x64xbf16>, %c: tensor<9x64x2x64xbf16>, %d: tensor<1x4xi32>, %e: tensor<1xi32>, %f: tensor<1xi32>):
    %x = graph.paged_attention %a, %b, %c pages %d starts %e lengths %f scale 0.125 : tensor<1x1x8x64xbf16>, tensor<9x64x2x64xbf16>, tensor<1x4xi32>, tensor<1xi32>
    graph.yield %x : tensor<1x1x8x64xbf16>
  }
  %n = graph.cluster paged_attention "narrow"(%nq, %nk, %nv, %t, %s, %l) : (tensor<1x1x8x24xbf16>, tensor<9x64x2x24xbf16>, tensor<9x64x2x24xbf16>, tensor<1x4xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<1x1x8x24xbf16> {
  ^bb0(%a: tensor<1x1x8x24xbf16>, %b: tensor<9x64x2x24xbf16>, %c: tensor<9x64x2x24xbf16>, %d: tensor<1x4xi32>, %e: tensor<1xi32>, %f: tensor<1xi32>):
    %x = graph.paged_attention %a, %b, %c pages %d starts %e lengths %f scale 0.125 : tensor<1x1x8x24xbf16>, tensor<9x64x2x24xbf16>, tensor<1x4xi32>, tensor<1xi32>
    graph.yield %x : tensor<1x1x8x24xbf16>
  }
  return %r, %n : tensor<1x1x8x64xbf16>, tensor<1x1x8x24xbf16>
}
