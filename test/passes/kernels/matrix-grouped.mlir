// RUN: tessera-opt %s --fuse --emit-kernels=targets=cpu:amx --canonicalize --cse | FileCheck %s

// Experts' products in matrix registers. Many rows are packed, with a tile more behind the last; as many tiles at a time
// as the group has rows pass by two strips, and what is left goes to a register: weights that no tile before it brought come from memory.

// CHECK-LABEL: func @packed(
// CHECK-NEXT:  %[[ROWS:.*]] = tile.launch @packed_rows(%arg0) {{.*}} -> tensor<1x352x96xbf16>
// CHECK-NEXT:  tile.launch @grouped_matmul(%[[ROWS]], %arg0, %arg1, %arg2)
// CHECK-LABEL: tile.kernel @grouped_matmul(
// CHECK-NOT:   tile.copy
// CHECK:       tile.mma_staged {{.*}} shape [256, 32] : memref<1x352x96xbf16, {{.*}}, memref<12x64x16xbf16, {{.*}}#tile.shared<pairs>>
// CHECK:       tile.mma_staged {{.*}} shape [192, 32]
// CHECK:       tile.mma_staged {{.*}} shape [64, 32]
// CHECK:       scf.if
// CHECK:         tile.mma_staged {{.*}} far, {{.*}} shape [32, 32]
// CHECK:       } else {
// CHECK-NOT:     far
// CHECK:         tile.mma_staged {{.*}} shape [32, 32]
// CHECK:       scf.if
// CHECK:         tile.mma_staged {{.*}} far, {{.*}} shape [16, 32]
// CHECK:       } else {
// CHECK-NOT:     far
// CHECK:         tile.mma_staged {{.*}} shape [16, 32]
func.func @packed(%x: tensor<300x64xbf16>, %w: tensor<12x64x16xbf16>, %g: tensor<3xi32>) -> tensor<300x96xf32> {
  %d = graph.dequantize %w bits 16 group 32 : tensor<12x64x16xbf16> -> tensor<2x96x64xbf16>
  %y = graph.grouped_matmul %x, %d groups %g {transposed} : (tensor<300x64xbf16>, tensor<2x96x64xbf16>, tensor<3xi32>) -> tensor<300x96xf32>
  return %y : tensor<300x96xf32>
}

// Few rows are copied to a register's, and each strip is one run.

// CHECK-LABEL: tile.kernel @grouped_matmul_1(
// CHECK:       %[[X:.*]] = tile.alloc : memref<1x32x96xbf16, #tile.shared>
// CHECK:       tile.copy {{.*}} to %[[X]]{{.*}} shape [1, 64]
// CHECK:       tile.mma_staged %[[X]]{{.*}} far, {{.*}} shape [16, 16]
// CHECK-NOT:   tile.mma_staged
func.func @few(%x: tensor<4x64xbf16>, %w: tensor<12x64x16xbf16>, %g: tensor<3xi32>) -> tensor<4x96xf32> {
  %d = graph.dequantize %w bits 16 group 32 : tensor<12x64x16xbf16> -> tensor<2x96x64xbf16>
  %y = graph.grouped_matmul %x, %d groups %g {transposed} : (tensor<4x64xbf16>, tensor<2x96x64xbf16>, tensor<3xi32>) -> tensor<4x96xf32>
  return %y : tensor<4x96xf32>
}

// Weights in rows are turned to pairs, once for a block's rows.

// CHECK-LABEL: tile.kernel @grouped_matmul_2(
// CHECK:       %[[X:.*]] = tile.alloc : memref<1x64x96xbf16, #tile.shared>
// CHECK:       %[[W:.*]] = tile.alloc : memref<3x64x32xbf16, #tile.shared<pairs>>
// CHECK:       tile.copy {{.*}} to %[[W]]
// CHECK:       tile.copy {{.*}} to %[[X]]
// CHECK:       tile.mma_staged %[[X]]{{.*}}, %[[W]]{{.*}} shape [64, 32]
// CHECK:       tile.mma_staged {{.*}} shape [16, 32]
func.func @rows(%x: tensor<100x64xbf16>, %w: tensor<2x96x64xbf16>, %g: tensor<3xi32>) -> tensor<100x96xf32> {
  %y = graph.grouped_matmul %x, %w groups %g {transposed} : (tensor<100x64xbf16>, tensor<2x96x64xbf16>, tensor<3xi32>) -> tensor<100x96xf32>
  return %y : tensor<100x96xf32>
}
