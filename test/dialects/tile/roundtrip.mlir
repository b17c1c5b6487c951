// RUN: tessera-opt %s | tessera-opt | FileCheck %s

module {
  // CHECK: tile.kernel @gemm(%[[BLOCK:.*]]: index, %[[X:.*]]: memref<16x8xbf16>, %[[Y:.*]]: memref<8x32xbf16>, %[[Z:.*]]: memref<16x32xf32>)
  // CHECK-SAME: access = [#tile<access read>, #tile<access read>, #tile<access read_write>]
  // CHECK-SAME: skeleton = #tile<skeleton contraction>, summary = "gemm"
  tile.kernel @gemm(%block: index, %x: memref<16x8xbf16>, %y: memref<8x32xbf16>, %z: memref<16x32xf32>)
      attributes {skeleton = #tile<skeleton contraction>, summary = "gemm",
                  access = [#tile<access read>, #tile<access read>, #tile<access read_write>]} {
    %zero = arith.constant 0 : index
    // CHECK: %[[ROWS:.*]] = tile.alloc : memref<8x32xbf16, #tile.shared>
    %rows = tile.alloc : memref<8x32xbf16, #tile.shared>
    // CHECK: %[[PAIRS:.*]] = tile.alloc : memref<8x32xbf16, #tile.shared<pairs>>
    %pairs = tile.alloc : memref<8x32xbf16, #tile.shared<pairs>>
    // CHECK: tile.copy %[[Y]][%{{.*}}, %{{.*}}] along [0, 1] to %[[PAIRS]][%{{.*}}, %{{.*}}] along [0, 1] shape [8, 32] : memref<8x32xbf16> to memref<8x32xbf16, #tile.shared<pairs>>
    tile.copy %y[%zero, %zero] along [0, 1] to %pairs[%zero, %zero] along [0, 1] shape [8, 32]
        : memref<8x32xbf16> to memref<8x32xbf16, #tile.shared<pairs>>
    // CHECK: tile.commit
    // CHECK: tile.wait 0
    // CHECK: tile.barrier
    tile.commit
    tile.wait 0
    tile.barrier
    // CHECK: %[[A:.*]] = tile.load %[[X]][%{{.*}}, %{{.*}}] along [0, 1] : memref<16x8xbf16>, vector<8x8xbf16>
    %a = tile.load %x[%zero, %zero] along [0, 1] : memref<16x8xbf16>, vector<8x8xbf16>
    // CHECK: %[[B:.*]] = tile.load %[[PAIRS]][%{{.*}}, %{{.*}}] along [0, 1] : memref<8x32xbf16, #tile.shared<pairs>>, vector<8x32xbf16>
    %b = tile.load %pairs[%zero, %zero] along [0, 1] : memref<8x32xbf16, #tile.shared<pairs>>, vector<8x32xbf16>
    %c = tile.load %z[%zero, %zero] along [0, 1] : memref<16x32xf32>, vector<8x32xf32>
    // CHECK: %[[C:.*]] = tile.mma %[[A]], %[[B]], %{{.*}} : vector<8x8xbf16>, vector<8x32xbf16>, vector<8x32xf32>
    %sum = tile.mma %a, %b, %c : vector<8x8xbf16>, vector<8x32xbf16>, vector<8x32xf32>
    // CHECK: tile.store %[[C]], %[[Z]][%{{.*}}, %{{.*}}] along [0, 1] : vector<8x32xf32>, memref<16x32xf32>
    tile.store %sum, %z[%zero, %zero] along [0, 1] : vector<8x32xf32>, memref<16x32xf32>
    tile.return
  }

  // CHECK: tile.kernel @staged(
  tile.kernel @staged(%block: index, %x: memref<16x64xbf16>, %z: memref<16x16xf32>)
      attributes {skeleton = #tile<skeleton contraction>, summary = "staged",
                  access = [#tile<access read>, #tile<access read_write>]} {
    %zero = arith.constant 0 : index
    %depth = arith.constant 64 : index
    %fresh = arith.constant false
    %pairs = tile.alloc : memref<64x16xbf16, #tile.shared<pairs>>
    %sums = tile.alloc : memref<16x16xf32, #tile.shared<rows>>
    // CHECK: tile.mma_staged %{{.*}}[%{{.*}}, %{{.*}}] far, %{{.*}}[%{{.*}}, %{{.*}}] onto %{{.*}}[%{{.*}}, %{{.*}}] keep %{{.*}} depth %{{.*}} shape [16, 16] : memref<16x64xbf16>, memref<64x16xbf16, #tile.shared<pairs>>, memref<16x16xf32, #tile.shared>
    tile.mma_staged %x[%zero, %zero] far, %pairs[%zero, %zero] onto %sums[%zero, %zero]
        keep %fresh depth %depth shape [16, 16]
        : memref<16x64xbf16>, memref<64x16xbf16, #tile.shared<pairs>>, memref<16x16xf32, #tile.shared<rows>>
    tile.return
  }

  // CHECK: tile.kernel @flat(%[[BLOCK:.*]]: index, %[[N:.*]]: index, %[[X:.*]]: memref<?xf32>, %[[Z:.*]]: memref<?xf32>)
  // CHECK-SAME: dynamic_sizes = 1 : i64
  tile.kernel @flat(%block: index, %n: index, %x: memref<?xf32>, %z: memref<?xf32>)
      attributes {skeleton = #tile<skeleton elementwise>, summary = "flat", dynamic_sizes = 1 : i64,
                  access = [#tile<access read>, #tile<access write>]} {
    // CHECK: %[[TILE:.*]] = tile.load %[[X]][%[[BLOCK]]] along [0] bound %[[N]] : memref<?xf32>, vector<16xf32>
    %x0 = tile.load %x[%block] along [0] bound %n : memref<?xf32>, vector<16xf32>
    // CHECK: %[[SUM:.*]] = tile.reduce sum %[[TILE]] dim 0 : vector<16xf32> -> vector<f32>
    %sum = tile.reduce sum %x0 dim 0 : vector<16xf32> -> vector<f32>
    // CHECK: %[[WIDE:.*]] = tile.broadcast %[[SUM]] dims [] : vector<f32> -> vector<2x16xf32>
    %wide = tile.broadcast %sum dims [] : vector<f32> -> vector<2x16xf32>
    // CHECK: tile.broadcast %[[TILE]] dims [1] : vector<16xf32> -> vector<2x16xf32>
    %rows = tile.broadcast %x0 dims [1] : vector<16xf32> -> vector<2x16xf32>
    // CHECK: tile.transpose %[[WIDE]] : vector<2x16xf32> -> vector<16x2xf32>
    %turned = tile.transpose %wide : vector<2x16xf32> -> vector<16x2xf32>
    // CHECK: tile.reduce max %{{.*}} dim 1 : vector<16x2xf32> -> vector<16xf32>
    %max = tile.reduce max %turned dim 1 : vector<16x2xf32> -> vector<16xf32>
    // CHECK: tile.iota %[[BLOCK]] dim 1 : vector<2x16xi32>
    %iota = tile.iota %block dim 1 : vector<2x16xi32>
    // CHECK: tile.store %{{.*}}, %[[Z]][%[[BLOCK]]] along [0] bound %[[N]] : vector<16xf32>, memref<?xf32>
    tile.store %max, %z[%block] along [0] bound %n : vector<16xf32>, memref<?xf32>
    tile.return
  }

  // A producer brings boxes of both operands; two warpgroups multiply them.
  // CHECK-LABEL: tile.kernel @roles
  tile.kernel @roles(%block: index, %x: memref<256x512xbf16>, %w: memref<512x128xbf16>, %y: memref<256x128xf32>)
      attributes {skeleton = #tile<skeleton contraction>, summary = "einsum", warps = array<i64: 8, 1>,
                  access = [#tile<access read>, #tile<access read>, #tile<access write>]} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %c64 = arith.constant 64 : index
    %c128 = arith.constant 128 : index
    %zeros = arith.constant dense<0.0> : vector<128x128xf32>
    %row = arith.muli %block, %c128 : index
    %a = tile.alloc : memref<4x128x64xbf16, #tile.shared<swizzled>>
    %b = tile.alloc : memref<4x64x128xbf16, #tile.shared<swizzled>>
    // CHECK: %[[RING:.*]] = tile.ring : <4 stages, 2 consumers>
    %ring = tile.ring : <4 stages, 2 consumers>
    // CHECK: tile.warp_specialize registers [40, 232] producer {
    tile.warp_specialize registers [40, 232] producer {
      scf.for %i = %c0 to %c8 step %c1 {
        // CHECK: %[[STAGE:.*]] = tile.acquire %[[RING]] bytes 32768 : <4 stages, 2 consumers>
        %stage = tile.acquire %ring bytes 32768 : <4 stages, 2 consumers>
        %k = arith.muli %i, %c64 : index
        // CHECK: tile.bulk_copy %{{.*}}[%{{.*}}, %{{.*}}] along [0, 1] to %{{.*}}[%[[STAGE]]] on %[[RING]] : memref<256x512xbf16> to memref<4x128x64xbf16, #tile.shared<swizzled>>, <4 stages, 2 consumers>
        tile.bulk_copy %x[%row, %k] along [0, 1] to %a[%stage] on %ring
          : memref<256x512xbf16> to memref<4x128x64xbf16, #tile.shared<swizzled>>, <4 stages, 2 consumers>
        tile.bulk_copy %w[%k, %c0] along [0, 1] to %b[%stage] on %ring
          : memref<512x128xbf16> to memref<4x64x128xbf16, #tile.shared<swizzled>>, <4 stages, 2 consumers>
      }
    // CHECK: } consumers {
    } consumers {
      %sum = scf.for %i = %c0 to %c8 step %c1 iter_args(%s = %zeros) -> (vector<128x128xf32>) {
        // CHECK: tile.await %[[RING]] : <4 stages, 2 consumers>
        %stage = tile.await %ring : <4 stages, 2 consumers>
        %lhs = tile.load %a[%stage, %c0, %c0] along [1, 2] : memref<4x128x64xbf16, #tile.shared<swizzled>>, vector<128x64xbf16>
        %rhs = tile.load %b[%stage, %c0, %c0] along [1, 2] : memref<4x64x128xbf16, #tile.shared<swizzled>>, vector<64x128xbf16>
        // CHECK: tile.mma_async %{{.*}}, %{{.*}}, %{{.*}} : vector<128x64xbf16>, vector<64x128xbf16>, vector<128x128xf32> -> vector<128x128xf32>
        %next = tile.mma_async %lhs, %rhs, %s : vector<128x64xbf16>, vector<64x128xbf16>, vector<128x128xf32> -> vector<128x128xf32>
        // CHECK: tile.release %[[RING]] : <4 stages, 2 consumers>
        tile.release %ring : <4 stages, 2 consumers>
        scf.yield %next : vector<128x128xf32>
      }
      // CHECK: tile.mma_wait %{{.*}} : vector<128x128xf32> -> vector<128x128xf32>
      %done = tile.mma_wait %sum : vector<128x128xf32> -> vector<128x128xf32>
      // CHECK: tile.release last %[[RING]] : <4 stages, 2 consumers>
      tile.release last %ring : <4 stages, 2 consumers>
      // CHECK: tile.ping_pong take
      tile.ping_pong take
      // CHECK: tile.ping_pong pass
      tile.ping_pong pass
      // CHECK: tile.mma_wait %{{.*}} pending 1 : vector<128x128xf32> -> vector<128x128xf32>
      %again = tile.mma_wait %done pending 1 : vector<128x128xf32> -> vector<128x128xf32>
      tile.store %again, %y[%row, %c0] along [0, 1] : vector<128x128xf32>, memref<256x128xf32>
    }
    tile.return
  }

  // Weights that are integers with scales: four groups of them, and a part of one.
  // CHECK-LABEL: func.func @quantized
  func.func @quantized(%x: vector<16x128xbf16>, %w: vector<4x256xi32>, %s: vector<4x128xf16>, %y: vector<64x32xf32>,
                       %v: vector<4x128xi32>, %t: vector<4x16xf16>, %sum: vector<16x64xf32>, %wide: vector<64x64xf32>,
                       %u: vector<2x128xi32>, %r: vector<2x32xf16>) {
    // CHECK: tile.mma_quantized {{.*}} bits 4 group 32 zeros splits 4 : vector<16x128xbf16>
    %2 = tile.mma_quantized %x, %w, %s, %wide bits 4 group 32 zeros splits 4
        : vector<16x128xbf16>, vector<4x256xi32>, vector<4x128xf16>, vector<64x64xf32>
    // CHECK: tile.mma_quantized %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} bits 4 group 32 zeros : vector<16x128xbf16>, vector<4x256xi32>, vector<4x128xf16>, vector<16x64xf32>
    %0 = tile.mma_quantized %x, %w, %s, %sum bits 4 group 32 zeros
        : vector<16x128xbf16>, vector<4x256xi32>, vector<4x128xf16>, vector<16x64xf32>
    // CHECK: tile.mma_quantized {{.*}} bits 8 group 128 : vector<64x32xf32>, vector<4x128xi32>, vector<4x16xf16>, vector<64x64xf32>
    %1 = tile.mma_quantized %y, %v, %t, %wide bits 8 group 128
        : vector<64x32xf32>, vector<4x128xi32>, vector<4x16xf16>, vector<64x64xf32>
    // CHECK: tile.mma_quantized {{.*}} bits 8 group 128 floats : vector<64x32xf32>, vector<4x128xi32>
    %3 = tile.mma_quantized %y, %v, %t, %wide bits 8 group 128 floats
        : vector<64x32xf32>, vector<4x128xi32>, vector<4x16xf16>, vector<64x64xf32>
    // CHECK: tile.mma_quantized {{.*}} bits 4 group 32 rows : vector<64x32xf32>, vector<2x128xi32>
    %4 = tile.mma_quantized %y, %u, %r, %wide bits 4 group 32 rows
        : vector<64x32xf32>, vector<2x128xi32>, vector<2x32xf16>, vector<64x64xf32>
    return
  }

  // Two instances of one kernel; operand 0 of an instance may lend its bytes to
  // result 0.
  // CHECK-LABEL: func.func @launch
  func.func @launch(%a: tensor<4xf32>, %b: tensor<2x3xf32>) -> (tensor<4xf32>, tensor<2x3xf32>) {
    // CHECK: tile.launch @flat(%{{.*}}, %{{.*}}) blocks [1, 1] sizes [4, 6] reuse [0, 0] : (tensor<4xf32>, tensor<2x3xf32>) -> (tensor<4xf32>, tensor<2x3xf32>)
    %0:2 = tile.launch @flat(%a, %b) blocks [1, 1] sizes [4, 6] reuse [0, 0]
        : (tensor<4xf32>, tensor<2x3xf32>) -> (tensor<4xf32>, tensor<2x3xf32>)
    return %0#0, %0#1 : tensor<4xf32>, tensor<2x3xf32>
  }
}
