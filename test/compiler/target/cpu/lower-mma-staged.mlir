// RUN: tessera-opt %s --lower-tile-to-vector=target=cpu:amx | FileCheck %s
// RUN: tessera-opt %s --lower-tile-to-llvm=target=cpu:amx | FileCheck %s --check-prefix=LLVM
// RUN: not tessera-opt %s --lower-tile-to-vector=target=cpu:avx512 2>&1 | FileCheck %s --check-prefix=ERROR

// ERROR: tile.mma_staged: requires a target with matrix registers

// Registers are shaped once for all blocks and given back behind them. A tile of
// fewer rows has a shape of its own, and the kernel's again behind it.

// CHECK-LABEL: func.func private @staged.block(
// CHECK:         scf.if
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tileloadd64"
// CHECK:         else
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tilezero"
// CHECK:         scf.for
// CHECK-COUNT-2: llvm.call_intrinsic "llvm.x86.tileloaddt164"
// CHECK:         llvm.call_intrinsic "llvm.x86.tileloadd64"
// CHECK-COUNT-2: llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK:         llvm.call_intrinsic "llvm.x86.tileloadd64"
// CHECK-COUNT-2: llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tilestored64"
// CHECK:         llvm.call_intrinsic "llvm.x86.ldtilecfg"
// CHECK:         scf.for
// CHECK:         llvm.intr.prefetch
// CHECK:         llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK-NOT:     llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK:         llvm.call_intrinsic "llvm.x86.ldtilecfg"
// CHECK-LABEL: func.func @staged(
// CHECK:         llvm.call_intrinsic "llvm.x86.ldtilecfg"
// CHECK:         scf.for
// CHECK:         call @staged.block
// CHECK:         llvm.call_intrinsic "llvm.x86.tilerelease"

// LLVM: llvm.call_intrinsic "llvm.x86.tdpbf16ps"(%{{.*}}, %{{.*}}, %{{.*}}) : (i8, i8, i8) -> ()
tile.kernel @staged(%block: index, %x: memref<5x64xbf16>, %again: memref<1xi1>) attributes {
    skeleton = #tile<skeleton contraction>, access = [#tile<access read>, #tile<access read>], summary = "einsum"} {
  %c0 = arith.constant 0 : index
  %depth = arith.constant 64 : index
  %keep = memref.load %again[%c0] : memref<1xi1>
  %a = tile.alloc : memref<32x96xbf16, #tile.shared<rows>>
  %b = tile.alloc : memref<64x32xbf16, #tile.shared<pairs>>
  %s = tile.alloc : memref<32x32xf32, #tile.shared<rows>>
  tile.mma_staged %a[%c0, %c0], %b[%c0, %c0] onto %s[%c0, %c0] keep %keep depth %depth shape [32, 32]
      : memref<32x96xbf16, #tile.shared<rows>>, memref<64x32xbf16, #tile.shared<pairs>>, memref<32x32xf32, #tile.shared<rows>>
  tile.mma_staged %x[%c0, %c0] far, %b[%c0, %c0] onto %s[%c0, %c0] keep %keep depth %depth shape [5, 16]
      : memref<5x64xbf16>, memref<64x32xbf16, #tile.shared<pairs>>, memref<32x32xf32, #tile.shared<rows>>
  tile.return
}

// Tiles of rows pass by a panel: the first loads stand before the loop, and each register is filled again behind its last product. No panel stands
// behind staged ones that would be asked for.

// CHECK-LABEL: func.func private @panel.block(
// CHECK:         llvm.call_intrinsic "llvm.x86.tileloadd64"
// CHECK:         llvm.call_intrinsic "llvm.x86.tileloaddt164"
// CHECK:         llvm.call_intrinsic "llvm.x86.tileloadd64"
// CHECK:         llvm.call_intrinsic "llvm.x86.tileloaddt164"
// CHECK:         scf.for
// CHECK:           scf.if
// CHECK:           scf.for
// CHECK-COUNT-4:     llvm.intr.prefetch
// CHECK-COUNT-2:     llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK:             llvm.call_intrinsic "llvm.x86.tileloaddt164"
// CHECK:             llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK:             llvm.call_intrinsic "llvm.x86.tileloadd64"
// CHECK:             llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK:             llvm.call_intrinsic "llvm.x86.tileloadd64"
// CHECK:             llvm.call_intrinsic "llvm.x86.tileloaddt164"
// CHECK:           }
// CHECK-COUNT-4:   llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK-COUNT-4:   llvm.call_intrinsic "llvm.x86.tilestored64"
// CHECK-NOT:     llvm.x86.tdpbf16ps
// CHECK-LABEL: func.func @panel(
tile.kernel @panel(%block: index, %again: memref<1xi1>) attributes {
    skeleton = #tile<skeleton contraction>, access = [#tile<access read>], summary = "einsum"} {
  %c0 = arith.constant 0 : index
  %depth = arith.constant 64 : index
  %keep = memref.load %again[%c0] : memref<1xi1>
  %a = tile.alloc : memref<96x96xbf16, #tile.shared<rows>>
  %b = tile.alloc : memref<64x32xbf16, #tile.shared<pairs>>
  %s = tile.alloc : memref<96x32xf32, #tile.shared<rows>>
  tile.mma_staged %a[%c0, %c0], %b[%c0, %c0] onto %s[%c0, %c0] keep %keep depth %depth shape [96, 32]
      : memref<96x96xbf16, #tile.shared<rows>>, memref<64x32xbf16, #tile.shared<pairs>>, memref<96x32xf32, #tile.shared<rows>>
  tile.return
}

// A loop beside a product: its turns are done among the products of the tile of rows behind, one a block of terms, and those of the last tile behind them all.

// CHECK-LABEL: func.func private @beside.block(
// CHECK:         scf.for %[[TILE:.*]] =
// CHECK:           scf.for
// CHECK:             arith.cmpi ugt, %[[TILE]]
// CHECK:             scf.if
// CHECK:               llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK:             llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK:           %[[HAS:.*]] = arith.cmpi ugt, %[[TILE]]
// CHECK:           scf.if %[[HAS]]
// CHECK:             scf.for
// CHECK:               llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-COUNT-4:   llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK-COUNT-4:   llvm.call_intrinsic "llvm.x86.tilestored64"
// CHECK:         scf.for
// CHECK:           llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-NOT:     llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-LABEL: func.func @beside(
tile.kernel @beside(%block: index, %to: memref<96x32xf32>) attributes {
    skeleton = #tile<skeleton contraction>, access = [#tile<access write>], summary = "einsum"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %turns = arith.constant 48 : index
  %depth = arith.constant 64 : index
  %keep = arith.constant false
  %a = tile.alloc : memref<96x96xbf16, #tile.shared<rows>>
  %b = tile.alloc : memref<64x32xbf16, #tile.shared<pairs>>
  %s = tile.alloc : memref<96x32xf32, #tile.shared<rows>>
  tile.mma_staged %a[%c0, %c0], %b[%c0, %c0] onto %s[%c0, %c0] keep %keep depth %depth shape [96, 32]
      : memref<96x96xbf16, #tile.shared<rows>>, memref<64x32xbf16, #tile.shared<pairs>>, memref<96x32xf32, #tile.shared<rows>>
  scf.for %i = %c0 to %turns step %c1 {
    %row = arith.muli %i, %c2 : index
    %sums = tile.load %s[%row, %c0] along [0, 1] : memref<96x32xf32, #tile.shared<rows>>, vector<1x16xf32>
    tile.store %sums, %to[%row, %c0] along [0, 1] : vector<1x16xf32>, memref<96x32xf32>
  } {tile.interleave}
  tile.return
}

// Two loops beside one product: a turn of each goes with a block of terms, and what stands between them goes before all. One brings 16 columns of a row, the other 8, half a register.

// CHECK-LABEL: func.func private @beside_two.block(
// CHECK:         scf.for %[[TILE:.*]] =
// CHECK:           scf.for
// CHECK:             scf.if
// CHECK:               llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK:             scf.if
// CHECK:               llvm.load {{.*}} : !llvm.ptr -> vector<8xf32>
// CHECK:             llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK-COUNT-4:   llvm.call_intrinsic "llvm.x86.tilestored64"
// CHECK:         scf.for
// CHECK:           llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK:         scf.for
// CHECK:           llvm.load {{.*}} : !llvm.ptr -> vector<8xf32>
// CHECK-NOT:     {{llvm.load.*vector<(16|8)xf32>}}
// CHECK-LABEL: func.func @beside_two(
tile.kernel @beside_two(%block: index, %to: memref<96x32xf32>) attributes {
    skeleton = #tile<skeleton contraction>, access = [#tile<access write>], summary = "einsum"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %turns = arith.constant 48 : index
  %depth = arith.constant 64 : index
  %keep = arith.constant false
  %a = tile.alloc : memref<96x96xbf16, #tile.shared<rows>>
  %b = tile.alloc : memref<64x32xbf16, #tile.shared<pairs>>
  %s = tile.alloc : memref<96x32xf32, #tile.shared<rows>>
  tile.mma_staged %a[%c0, %c0], %b[%c0, %c0] onto %s[%c0, %c0] keep %keep depth %depth shape [96, 32]
      : memref<96x96xbf16, #tile.shared<rows>>, memref<64x32xbf16, #tile.shared<pairs>>, memref<96x32xf32, #tile.shared<rows>>
  scf.for %i = %c0 to %turns step %c1 {
    %row = arith.muli %i, %c2 : index
    %sums = tile.load %s[%row, %c0] along [0, 1] : memref<96x32xf32, #tile.shared<rows>>, vector<1x16xf32>
    tile.store %sums, %to[%row, %c0] along [0, 1] : vector<1x16xf32>, memref<96x32xf32>
  } {tile.interleave}
  %c16 = arith.constant 16 : index
  scf.for %i = %c0 to %turns step %c1 {
    %row = arith.muli %i, %c2 : index
    %sums = tile.load %s[%row, %c16] along [0, 1] : memref<96x32xf32, #tile.shared<rows>>, vector<1x8xf32>
    tile.store %sums, %to[%row, %c16] along [0, 1] : vector<1x8xf32>, memref<96x32xf32>
  } {tile.interleave}
  tile.return
}

// Three tiles of rows and 47 turns: no whole number of them for each, and the loop runs behind the product.

// CHECK-LABEL: func.func private @beside_ragged.block(
// CHECK-NOT:     llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tilestored64"
// CHECK:         scf.for
// CHECK:           llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-NOT:     llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-LABEL: func.func @beside_ragged(
tile.kernel @beside_ragged(%block: index, %to: memref<96x32xf32>) attributes {
    skeleton = #tile<skeleton contraction>, access = [#tile<access write>], summary = "einsum"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %turns = arith.constant 47 : index
  %depth = arith.constant 64 : index
  %keep = arith.constant false
  %a = tile.alloc : memref<96x96xbf16, #tile.shared<rows>>
  %b = tile.alloc : memref<64x32xbf16, #tile.shared<pairs>>
  %s = tile.alloc : memref<96x32xf32, #tile.shared<rows>>
  tile.mma_staged %a[%c0, %c0], %b[%c0, %c0] onto %s[%c0, %c0] keep %keep depth %depth shape [96, 32]
      : memref<96x96xbf16, #tile.shared<rows>>, memref<64x32xbf16, #tile.shared<pairs>>, memref<96x32xf32, #tile.shared<rows>>
  scf.for %i = %c0 to %turns step %c1 {
    %row = arith.muli %i, %c2 : index
    %sums = tile.load %s[%row, %c0] along [0, 1] : memref<96x32xf32, #tile.shared<rows>>, vector<1x16xf32>
    tile.store %sums, %to[%row, %c0] along [0, 1] : vector<1x16xf32>, memref<96x32xf32>
  } {tile.interleave}
  tile.return
}

// So it does where the number of turns is known only when it runs.

// CHECK-LABEL: func.func private @beside_dynamic.block(
// CHECK-NOT:     llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tilestored64"
// CHECK:         scf.for
// CHECK:           llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-NOT:     llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-LABEL: func.func @beside_dynamic(
tile.kernel @beside_dynamic(%block: index, %to: memref<96x32xf32>, %some: memref<1xi1>) attributes {
    skeleton = #tile<skeleton contraction>, access = [#tile<access write>, #tile<access read>], summary = "einsum"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %few = arith.constant 24 : index
  %many = arith.constant 48 : index
  %isMany = memref.load %some[%c0] : memref<1xi1>
  %turns = arith.select %isMany, %many, %few : index
  %depth = arith.constant 64 : index
  %keep = arith.constant false
  %a = tile.alloc : memref<96x96xbf16, #tile.shared<rows>>
  %b = tile.alloc : memref<64x32xbf16, #tile.shared<pairs>>
  %s = tile.alloc : memref<96x32xf32, #tile.shared<rows>>
  tile.mma_staged %a[%c0, %c0], %b[%c0, %c0] onto %s[%c0, %c0] keep %keep depth %depth shape [96, 32]
      : memref<96x96xbf16, #tile.shared<rows>>, memref<64x32xbf16, #tile.shared<pairs>>, memref<96x32xf32, #tile.shared<rows>>
  scf.for %i = %c0 to %turns step %c1 {
    %row = arith.muli %i, %c2 : index
    %sums = tile.load %s[%row, %c0] along [0, 1] : memref<96x32xf32, #tile.shared<rows>>, vector<1x16xf32>
    tile.store %sums, %to[%row, %c0] along [0, 1] : vector<1x16xf32>, memref<96x32xf32>
  } {tile.interleave}
  tile.return
}

// And where something between the two writes memory, which the loop may read.

// CHECK-LABEL: func.func private @beside_effect.block(
// CHECK-NOT:     llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tilestored64"
// CHECK:         scf.for
// CHECK:           llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-NOT:     llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-LABEL: func.func @beside_effect(
tile.kernel @beside_effect(%block: index, %to: memref<96x32xf32>) attributes {
    skeleton = #tile<skeleton contraction>, access = [#tile<access write>], summary = "einsum"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %turns = arith.constant 48 : index
  %depth = arith.constant 64 : index
  %keep = arith.constant false
  %a = tile.alloc : memref<96x96xbf16, #tile.shared<rows>>
  %b = tile.alloc : memref<64x32xbf16, #tile.shared<pairs>>
  %s = tile.alloc : memref<96x32xf32, #tile.shared<rows>>
  tile.mma_staged %a[%c0, %c0], %b[%c0, %c0] onto %s[%c0, %c0] keep %keep depth %depth shape [96, 32]
      : memref<96x96xbf16, #tile.shared<rows>>, memref<64x32xbf16, #tile.shared<pairs>>, memref<96x32xf32, #tile.shared<rows>>
  %zeros = arith.constant dense<0.0> : vector<1x32xf32>
  tile.store %zeros, %s[%c0, %c0] along [0, 1] : vector<1x32xf32>, memref<96x32xf32, #tile.shared<rows>>
  scf.for %i = %c0 to %turns step %c1 {
    %row = arith.muli %i, %c2 : index
    %sums = tile.load %s[%row, %c0] along [0, 1] : memref<96x32xf32, #tile.shared<rows>>, vector<1x16xf32>
    tile.store %sums, %to[%row, %c0] along [0, 1] : vector<1x16xf32>, memref<96x32xf32>
  } {tile.interleave}
  tile.return
}
