// RUN: tessera-opt %s --mark-aligned | FileCheck %s

// @rows has one launch at a multiple of 16 bytes and one that is not, for its first buffer; @slices loops over rows of
// 24 and of 32 bytes; @unused is not launched.
module {
  module @gpu attributes {tile.target = "cuda:sm_80"} {
    // CHECK-LABEL: tile.kernel @rows(
    // CHECK-SAME: %{{[a-z0-9_]+}}: memref<8xf32>, %{{[a-z0-9_]+}}: memref<8xf32> {tile.aligned})
    tile.kernel @rows(%block: index, %x: memref<8xf32>, %y: memref<8xf32>)
        attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
    // CHECK-LABEL: tile.kernel @slices(
    // CHECK-SAME: %{{[a-z0-9_]+}}: index, %{{[a-z0-9_]+}}: memref<?xf32>, %{{[a-z0-9_]+}}: memref<?xf32> {tile.aligned})
    tile.kernel @slices(%block: index, %n: index, %x: memref<?xf32>, %y: memref<?xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, dynamic_sizes = 1 : i64, summary = "",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
    // CHECK-LABEL: tile.kernel @unused(
    // CHECK-NOT: tile.aligned
    tile.kernel @unused(%block: index, %x: memref<8xf32>)
        attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access read>]} {
      tile.return
    }
  }
  plan.program @p arena 1024 io 0 {
    %a = plan.buffer arena at 0 lives [0, 4] : memref<64xf32>
    %b = plan.buffer arena at 256 lives [0, 4] : memref<64xf32>
    %shifted = plan.view %a at 8 : memref<64xf32> to memref<8xf32>
    %whole = plan.view %a at 32 : memref<64xf32> to memref<8xf32>
    %out = plan.view %b at 16 : memref<64xf32> to memref<8xf32>
    plan.launch @rows(%whole, %out) blocks [1] sizes [] : memref<8xf32>, memref<8xf32>
    plan.launch @rows(%shifted, %out) blocks [1] sizes [] : memref<8xf32>, memref<8xf32>
    plan.loop %i to 4 {
      %x = plan.view %a at 0 plus %i times 24 : memref<64xf32> to memref<6xf32>
      %y = plan.view %b at 0 plus %i times 32 : memref<64xf32> to memref<6xf32>
      plan.launch @slices(%x, %y) blocks [1] sizes [6] : memref<6xf32>, memref<6xf32>
    }
  }
}
