// RUN: tessera-opt %s --mark-unwritten | FileCheck %s

// A launch of @over puts its result in the place of its first operand; @rows and its variant write nothing that they
// read; @slices reads slices of what other iterations write; @both has an operand that another instance writes.
module {
  module @gpu attributes {tile.target = "cuda:sm_80"} {
    // CHECK-LABEL: tile.kernel @over(
    // CHECK-SAME: %{{[a-z0-9_]+}}: memref<8xf32>, %{{[a-z0-9_]+}}: memref<8xf32> {tile.unwritten}, %{{[a-z0-9_]+}}: memref<8xf32>)
    tile.kernel @over(%block: index, %x: memref<8xf32>, %y: memref<8xf32>, %z: memref<8xf32>)
        attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access read>, #tile<access read>, #tile<access write>]} {
      tile.return
    }
    // CHECK-LABEL: tile.kernel @rows(
    // CHECK-SAME: memref<8xf32> {tile.unwritten}, %{{[a-z0-9_]+}}: memref<8xf32>)
    tile.kernel @rows(%block: index, %x: memref<8xf32>, %y: memref<8xf32>)
        attributes {skeleton = #tile<skeleton contraction>, summary = "", access = [#tile<access read>, #tile<access write>],
                    tile.variants = [@rows_wide]} {
      tile.return
    }
    // CHECK-LABEL: tile.kernel @rows_wide(
    // CHECK-SAME: memref<8xf32> {tile.unwritten}, %{{[a-z0-9_]+}}: memref<8xf32>)
    tile.kernel @rows_wide(%block: index, %x: memref<8xf32>, %y: memref<8xf32>)
        attributes {skeleton = #tile<skeleton contraction>, summary = "", access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
    // CHECK-LABEL: tile.kernel @slices(
    // CHECK-NOT: tile.unwritten
    // CHECK-LABEL: tile.kernel @both(
    // CHECK-NOT: tile.unwritten
    tile.kernel @slices(%block: index, %x: memref<8xf32>, %y: memref<8xf32>)
        attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
    tile.kernel @both(%block: index, %n: index, %x: memref<?xf32>, %y: memref<?xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, dynamic_sizes = 1 : i64, summary = "",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
    // CHECK: tile.kernel @updated(
    // CHECK-NOT: tile.unwritten
    tile.kernel @updated(%block: index, %x: memref<8xf32>)
        attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access read_write>]} {
      tile.return
    }
  }
  plan.program @p arena 1024 io 0 {
    %a = plan.buffer arena at 0 lives [0, 6] : memref<64xf32>
    %b = plan.buffer arena at 256 lives [0, 6] : memref<64xf32>
    %x = plan.view %a at 32 : memref<64xf32> to memref<8xf32>
    %next = plan.view %a at 64 : memref<64xf32> to memref<8xf32>
    %y = plan.view %b at 0 : memref<64xf32> to memref<8xf32>
    plan.launch @over(%x, %y, %next) blocks [1] sizes [] : memref<8xf32>, memref<8xf32>, memref<8xf32>
    plan.launch @over(%x, %y, %x) blocks [1] sizes [] : memref<8xf32>, memref<8xf32>, memref<8xf32>
    plan.launch @rows(%x, %next) blocks [1] sizes [] : memref<8xf32>, memref<8xf32>
    plan.launch @both(%x, %y, %y, %next) blocks [1, 1] sizes [8, 8] : memref<8xf32>, memref<8xf32>, memref<8xf32>, memref<8xf32>
    plan.launch @updated(%x) blocks [1] sizes [] : memref<8xf32>
    plan.loop %i to 4 {
      %from = plan.view %a at 0 plus %i times 32 : memref<64xf32> to memref<8xf32>
      %to = plan.view %a at 96 : memref<64xf32> to memref<8xf32>
      plan.launch @slices(%from, %to) blocks [1] sizes [] : memref<8xf32>, memref<8xf32>
    }
  }
}
