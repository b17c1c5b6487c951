// RUN: tessera-opt %s --lower-tile-to-vector=target=cpu:avx512 | FileCheck %s
// RUN: tessera-opt %s --lower-tile-to-vector=target=cpu:avx2 | FileCheck %s --check-prefix=AVX2
// RUN: tessera-opt %s --lower-tile-to-vector=target=cpu:avx512bf16 | FileCheck %s --check-prefix=BF16
// RUN: tessera-opt %s --lower-tile-to-llvm=target=cpu:avx512bf16 | FileCheck %s --check-prefix=LLVM

// A kernel is two functions: one block, and the loop over blocks with the ABI.
// A tile of 2×32 is two rows of two vectors of 16 lanes, four of 8.

// CHECK-LABEL: func.func private @scale.block(
// CHECK-SAME:    %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: !llvm.ptr {llvm.align = 64 : i64, llvm.noalias})
// CHECK-COUNT-4: llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>
// CHECK-NOT:     llvm.load
// CHECK-COUNT-4: arith.mulf %{{.*}} : vector<16xf32>
// CHECK-COUNT-4: llvm.store %{{.*}} {alignment = 4 : i64} : vector<16xf32>, !llvm.ptr
// CHECK-LABEL: func.func @scale(
// CHECK-SAME:    %[[BUFFERS:.*]]: !llvm.ptr, %[[SIZES:.*]]: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64, %[[SCRATCH:.*]]: !llvm.ptr)
// CHECK-SAME:    attributes {tessera.scratch_bytes = 0 : i64}
// CHECK:         scf.for %[[I:.*]] =
// CHECK:           %[[BLOCK:.*]] = arith.index_cast %[[I]] : index to i64
// CHECK:           call @scale.block(%[[BUFFERS]], %[[SIZES]], %[[BLOCK]], %[[SCRATCH]])

// AVX2-LABEL: func.func private @scale.block(
// AVX2-COUNT-8: llvm.load %{{.*}} -> vector<8xf32>
// LLVM-LABEL: llvm.func @scale(
// LLVM-NOT: {{(scf|arith|vector|func)\.}}
tile.kernel @scale(%block: index, %x: memref<8x32xf32>, %y: memref<8x32xf32>) attributes {
    skeleton = #tile<skeleton elementwise>, access = [#tile<access read>, #tile<access write>], summary = "mul"} {
  %c0 = arith.constant 0 : index
  %half = arith.constant dense<0.5> : vector<2x32xf32>
  %a = tile.load %x[%block, %c0] along [0, 1] : memref<8x32xf32>, vector<2x32xf32>
  %b = arith.mulf %a, %half : vector<2x32xf32>
  tile.store %b, %y[%block, %c0] along [0, 1] : vector<2x32xf32>, memref<8x32xf32>
  tile.return
}

// A ragged last vector is masked, or where it is a narrower register loaded and stored as such; a bound masks by comparison.

// CHECK-LABEL: func.func private @ragged.block(
// CHECK:         llvm.load %{{.*}} -> vector<16xf32>
// CHECK:         llvm.intr.masked.load {{.*}} -> vector<16xf32>
// CHECK:         llvm.intr.masked.store
// CHECK:         llvm.load %{{.*}} -> vector<16xf32>
// CHECK:         %[[FOUR:.*]] = llvm.load %{{.*}} -> vector<4xf32>
// CHECK:         vector.shuffle %[[FOUR]], %{{.*}} [0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4] : vector<4xf32>, vector<4xf32>
// CHECK:         llvm.store %{{.*}} : vector<16xf32>
// CHECK:         llvm.store %{{.*}} : vector<4xf32>
// CHECK:         %[[VALID:.*]] = arith.cmpi slt, %{{.*}}, %{{.*}} : vector<16xi32>
// CHECK:         llvm.intr.masked.load %{{.*}}, %[[VALID]]
// AVX2-LABEL: func.func private @ragged.block(
// AVX2:         llvm.intr.masked.store
// AVX2:         %[[FOUR:.*]] = llvm.load %{{.*}} -> vector<4xf32>
// AVX2:         vector.shuffle %[[FOUR]], %{{.*}} [0, 1, 2, 3, 4, 4, 4, 4]
// AVX2:         llvm.store %{{.*}} : vector<4xf32>
tile.kernel @ragged(%block: index, %n: index, %x: memref<?xf32>, %y: memref<?xf32>) attributes {
    skeleton = #tile<skeleton elementwise>, access = [#tile<access read>, #tile<access write>], dynamic_sizes = 1 : i64, summary = "copy"} {
  %c0 = arith.constant 0 : index
  %c20 = arith.constant 20 : index
  %a = tile.load %x[%c0] along [0] : memref<?xf32>, vector<21xf32>
  tile.store %a, %y[%c0] along [0] : vector<21xf32>, memref<?xf32>
  %c = tile.load %x[%c0] along [0] : memref<?xf32>, vector<20xf32>
  tile.store %c, %y[%c0] along [0] : vector<20xf32>, memref<?xf32>
  %b = tile.load %x[%c20] along [0] bound %n : memref<?xf32>, vector<16xf32>
  tile.store %b, %y[%c20] along [0] bound %n : vector<16xf32>, memref<?xf32>
  tile.return
}

// exp is arithmetic: reduction by ln 2, a polynomial, a power of two.

// CHECK-LABEL: func.func private @exponential.block(
// CHECK:         math.roundeven
// CHECK-COUNT-8: math.fma
// CHECK:         llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
// CHECK-NOT:     math.exp
// AVX2-LABEL: func.func private @exponential.block(
// AVX2-NOT:     call_intrinsic
// AVX2:         arith.shli %{{.*}} : vector<8xi32>
// AVX2-LABEL: func.func @exponential(
tile.kernel @exponential(%block: index, %x: memref<16xf32>) attributes {
    skeleton = #tile<skeleton elementwise>, access = [#tile<access read_write>], summary = "exp"} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0] along [0] : memref<16xf32>, vector<16xf32>
  %b = math.exp %a : vector<16xf32>
  tile.store %b, %x[%c0] along [0] : vector<16xf32>, memref<16xf32>
  tile.return
}

// A product: elements of the left operand are loaded as scalars and splat. With
// the instruction, two of bf16 at once, from paired memory; without, extended.

// CHECK-LABEL: func.func private @product.block(
// CHECK:         llvm.load %{{.*}} {alignment = 2 : i64} : !llvm.ptr -> i16
// CHECK:         arith.extui %{{.*}} : i16 to i32
// CHECK:         vector.splat %{{.*}} : vector<16xf32>
// CHECK:         math.fma %{{.*}} : vector<16xf32>
// CHECK-LABEL: func.func @product(
// CHECK-SAME:    tessera.scratch_bytes = 128 : i64
// BF16-LABEL: func.func private @product.block(
// BF16:         llvm.load %{{.*}} {alignment = 2 : i64} : !llvm.ptr -> i32
// BF16:         vector.splat %{{.*}} : vector<16xi32>
// BF16:         llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"
// BF16-NOT:     math.fma
// BF16-LABEL: func.func @product(
tile.kernel @product(%block: index, %a: memref<1x2xbf16>, %b: memref<2x16xbf16>, %c: memref<1x16xf32>) attributes {
    skeleton = #tile<skeleton contraction>, access = [#tile<access read>, #tile<access read>, #tile<access write>], summary = "einsum"} {
  %c0 = arith.constant 0 : index
  %s = tile.alloc : memref<2x32xbf16, #tile.shared<pairs>>
  tile.copy %b[%c0, %c0] along [0, 1] to %s[%c0, %c0] along [0, 1] shape [2, 16] : memref<2x16xbf16> to memref<2x32xbf16, #tile.shared<pairs>>
  tile.commit
  tile.wait 0
  %x = tile.load %a[%c0, %c0] along [0, 1] : memref<1x2xbf16>, vector<1x2xbf16>
  %y = tile.load %s[%c0, %c0] along [0, 1] : memref<2x32xbf16, #tile.shared<pairs>>, vector<2x16xbf16>
  %z = arith.constant dense<0.0> : vector<1x16xf32>
  %r = tile.mma %x, %y, %z : vector<1x2xbf16>, vector<2x16xbf16>, vector<1x16xf32>
  tile.store %r, %c[%c0, %c0] along [0, 1] : vector<1x16xf32>, memref<1x16xf32>
  tile.return
}
