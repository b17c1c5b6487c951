// RUN: tessera-opt %s --emit-kernels=targets=cpu:amx,cpu:avx512 --canonicalize --cse | FileCheck %s
// RUN: tessera-opt %s --emit-kernels=targets=cpu:amx --canonicalize --cse | FileCheck %s --check-prefix=WIDE

// Many rows that meet weights in strips are copied first, once for both products: in chunks of the sum, with a line between rows.

// CHECK:     func.func @packed
// CHECK:       %[[P:.*]] = tile.launch @packed_rows(%{{.*}})
// CHECK-NOT:   @packed_rows
// CHECK-COUNT-2: tile.launch @many(%[[P]],

// A panel of weights meets all rows of a chunk. In the last one the epilogue of rows may go beside the products of rows behind them.

// CHECK:     module @cpu_amx
// CHECK:     tile.kernel @packed_rows(
// CHECK-DAG: %[[TO:.*]] = memref.reinterpret_cast %{{.*}} sizes: [2, 96, 480]
// CHECK:     scf.for
// CHECK:       %[[PART:.*]] = tile.load {{.*}}, vector<128xbf16>
// CHECK:       tile.store %[[PART]], %[[TO]]
// CHECK:     tile.kernel @many(%{{.*}}: index, %[[ROWS:.*]]: memref<92160xbf16>,
// CHECK-DAG: %[[X:.*]] = memref.reinterpret_cast %[[ROWS]]
// CHECK-DAG: %[[SUMS:.*]] = tile.alloc : memref<1x64x32xf32, #tile.shared>
// CHECK:     tile.mma_staged %[[X]]{{.*}} onto %[[SUMS]]{{.*}} keep %true depth %c448 shape [64,
// CHECK:     tile.store {{.*}} : vector<2x32xf32>
// CHECK:     } {tile.interleave}
// CHECK:     tile.mma_staged %[[X]]{{.*}} onto %[[SUMS]]{{.*}} shape [64,
// CHECK:     tile.mma_staged %[[X]]{{.*}} onto %[[SUMS]]{{.*}} shape [32,

// Other targets read the rows where they lie.

// CHECK:     module @cpu_avx512
// CHECK:     tile.kernel @packed_rows(
// CHECK-NOT:   tile.store
// CHECK:     tile.kernel @many(%{{.*}}: index, %{{.*}}: memref<92160xbf16>, %[[LIES:.*]]: memref<86016xbf16>,
// CHECK:     memref.reinterpret_cast %[[LIES]]

func.func @packed(%x: tensor<96x896xbf16>, %w: tensor<4x896x16xbf16>, %v: tensor<4x896x16xbf16>) -> (tensor<96x50xf32>, tensor<96x50xf32>) {
  %r = graph.cluster contraction "many"(%x, %w) : (tensor<96x896xbf16>, tensor<4x896x16xbf16>) -> tensor<96x50xf32> {
  ^bb0(%a: tensor<96x896xbf16>, %b: tensor<4x896x16xbf16>):
    %d = graph.dequantize %b bits 16 group 32 : tensor<4x896x16xbf16> -> tensor<50x896xbf16>
    %c = graph.einsum "mk,nk->mn" %a, %d : (tensor<96x896xbf16>, tensor<50x896xbf16>) -> tensor<96x50xf32>
    graph.yield %c : tensor<96x50xf32>
  }
  %s = graph.cluster contraction "many"(%x, %v) : (tensor<96x896xbf16>, tensor<4x896x16xbf16>) -> tensor<96x50xf32> {
  ^bb0(%a: tensor<96x896xbf16>, %b: tensor<4x896x16xbf16>):
    %d = graph.dequantize %b bits 16 group 32 : tensor<4x896x16xbf16> -> tensor<50x896xbf16>
    %c = graph.einsum "mk,nk->mn" %a, %d : (tensor<96x896xbf16>, tensor<50x896xbf16>) -> tensor<96x50xf32>
    graph.yield %c : tensor<96x50xf32>
  }
  return %r, %s : tensor<96x50xf32>, tensor<96x50xf32>
}

// Quantized weights are widened a panel at a time, into one of two, beside the products of the panel before; only a chunk's first panel has nothing to be beside of.

// WIDE:      module @cpu_amx
// WIDE:      tile.kernel @wide(
// WIDE:      %[[PANELS:.*]] = tile.alloc : memref<2x448x32xbf16, #tile.shared<pairs>>
// WIDE:      tile.store {{.*}}, %[[PANELS]][%c0
// WIDE:      %[[THIS:.*]] = arith.remui
// WIDE:      tile.mma_staged {{.*}}, %[[PANELS]][%[[THIS]]
// WIDE:      scf.for
// WIDE:        memref.prefetch
// WIDE:        tile.store {{.*}}, %[[PANELS]]
// WIDE:      } {tile.interleave}
// WIDE:      scf.for
// WIDE:        tile.store
// WIDE:      } {tile.interleave}

func.func @wide(%x: tensor<96x896xbf16>, %w: tensor<8x224x16xi32>, %s: tensor<8x28x16xf16>) -> tensor<96x128xf32> {
  %r = graph.cluster contraction "wide"(%x, %w, %s) : (tensor<96x896xbf16>, tensor<8x224x16xi32>, tensor<8x28x16xf16>) -> tensor<96x128xf32> {
  ^bb0(%a: tensor<96x896xbf16>, %b: tensor<8x224x16xi32>, %c: tensor<8x28x16xf16>):
    %d = graph.dequantize %b, %c bits 8 group 32 : tensor<8x224x16xi32>, tensor<8x28x16xf16> -> tensor<128x896xbf16>
    %e = graph.einsum "mk,nk->mn" %a, %d : (tensor<96x896xbf16>, tensor<128x896xbf16>) -> tensor<96x128xf32>
    graph.yield %e : tensor<96x128xf32>
  }
  return %r : tensor<96x128xf32>
}
