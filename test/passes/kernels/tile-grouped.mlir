// RUN: tessera-opt %s --fuse --emit-kernels=targets=cpu:avx2 --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: tessera-opt %s --fuse --emit-kernels=targets=cuda:sm_90a --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,GPU

// Packed rows: a slot for each tile that there may be, 300 / 64 + 3 + 1 on a GPU, by two tiles of columns. The kernel finds a
// slot's group by bisection of the offsets.

// CHECK-LABEL: func @packed(
// CHECK-NEXT:  tile.launch @grouped_matmul(%arg0, %arg1, %arg2) blocks
// GPU-SAME:    [16]
// CHECK-LABEL: func @padded(
// GPU-NEXT:    tile.launch @grouped_matmul_1(%arg0, %arg1, %arg2) blocks [6]
// CHECK-LABEL: func @sums(
// GPU-NEXT:    tile.launch @grouped_outer(%arg0, %arg1, %arg2) blocks [6]

// CHECK-LABEL: tile.kernel @grouped_matmul(
// CHECK-SAME:  skeleton = #tile<skeleton grouped>
// CHECK:       %[[SEARCH:.*]]:2 = scf.for
// CHECK:         memref.load %arg3
// CHECK:         arith.cmpi sle
// CHECK:         scf.yield
// CHECK:       %[[BEGIN:.*]] = memref.load %arg3
// CHECK:       %[[END:.*]] = memref.load %arg3
// CPU:         scf.if
// CPU:           tile.mma {{.*}} vector<6x16xf32>
// CPU:           tile.mma {{.*}} vector<4x16xf32>
// CPU:           tile.mma {{.*}} vector<2x16xf32>
// CPU:           tile.mma {{.*}} vector<1x16xf32>
// GPU:         %[[OWNED:.*]] = arith.cmpi sgt
// GPU:         %[[USED:.*]] = arith.cmpi sgt
// GPU:         tile.warp_specialize producer {
// GPU-NEXT:      scf.if %[[OWNED]] {
// GPU:             tile.bulk_copy %{{.*}} : memref<300x64xbf16
// GPU:             tile.bulk_copy %{{.*}} : memref<3x96x64xbf16
// GPU:         } consumers {
// GPU-NEXT:      scf.if %[[OWNED]] {
// GPU:             tile.mma_async
// GPU:             tile.store
// GPU:           } else {
// GPU-NEXT:        scf.if %[[USED]] {
// GPU-NOT:           tile.mma_async
// GPU:               tile.store
func.func @packed(%x: tensor<300x64xbf16>, %w: tensor<3x96x64xbf16>, %g: tensor<4xi32>) -> tensor<300x96xbf16> {
  %y = graph.grouped_matmul %x, %w groups %g {transposed} : (tensor<300x64xbf16>, tensor<3x96x64xbf16>, tensor<4xi32>) -> tensor<300x96xbf16>
  return %y : tensor<300x96xbf16>
}

// Padded rows: TMA brings rows from a group's count on, too; what they give is replaced by zeros.

// CHECK-LABEL: tile.kernel @grouped_matmul_1(
// CHECK:       %[[COUNT:.*]] = memref.load %arg3
// GPU:         tile.mma_async
// GPU:         %[[ROW:.*]] = tile.iota
// GPU:         %[[OWN:.*]] = arith.cmpi slt, %[[ROW]]
// GPU:         arith.select %[[OWN]]
func.func @padded(%x: tensor<3x40x64xbf16>, %w: tensor<3x96x64xbf16>, %g: tensor<3xi32>) -> tensor<3x40x96xbf16> {
  %y = graph.grouped_matmul %x, %w groups %g {transposed} : (tensor<3x40x64xbf16>, tensor<3x96x64xbf16>, tensor<3xi32>) -> tensor<3x40x96xbf16>
  return %y : tensor<3x40x96xbf16>
}

// Sums over a group's rows: copies have bounds, so that no other row takes part.

// CHECK-LABEL: tile.kernel @grouped_outer(
// CHECK:       %[[BEGIN:.*]] = memref.load %arg3
// CHECK:       %[[END:.*]] = memref.load %arg3
// CPU:         scf.if
// GPU-NOT:     tile.warp_specialize
// GPU:         tile.copy {{.*}} bound
// GPU:         scf.for
// GPU:           tile.wait
// GPU:           tile.mma
func.func @sums(%x: tensor<300x64xbf16>, %y: tensor<300x96xbf16>, %g: tensor<4xi32>) -> tensor<3x64x96xf32> {
  %z = graph.grouped_outer %x, %y groups %g : (tensor<300x64xbf16>, tensor<300x96xbf16>, tensor<4xi32>) -> tensor<3x64x96xf32>
  return %z : tensor<3x64x96xf32>
}
