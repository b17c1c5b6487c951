// RUN: tessera-opt %s --split-input-file --verify-diagnostics

tile.kernel @role_of_await(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  tile.warp_specialize producer {
    // expected-error@+1 {{must be in the code of consumers}}
    %s = tile.await %ring : <2 stages, 2 consumers>
  } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @role_of_acquire(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  tile.warp_specialize producer { tile.barrier } consumers {
    // expected-error@+1 {{must be in the code of a producer}}
    %s = tile.acquire %ring bytes 0 : <2 stages, 2 consumers>
  }
  tile.return
}

// -----

tile.kernel @bytes(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  tile.warp_specialize producer {
    // expected-error@+1 {{expects 100 bytes, but its copies have 8192}}
    %s = tile.acquire %ring bytes 100 : <2 stages, 2 consumers>
    tile.bulk_copy %x[%c0, %c0] along [0, 1] to %a[%s] on %ring : memref<256x512xbf16> to memref<2x64x64xbf16, #tile.shared<swizzled>>, <2 stages, 2 consumers>
  } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @columns(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  tile.warp_specialize producer {
    %s = tile.acquire %ring bytes 8192 : <2 stages, 2 consumers>
    // expected-error@+1 {{columns must be contiguous and other strides multiples of 16 bytes}}
    tile.bulk_copy %x[%c0, %c0] along [1, 0] to %a[%s] on %ring : memref<256x512xbf16> to memref<2x64x64xbf16, #tile.shared<swizzled>>, <2 stages, 2 consumers>
  } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @strides(%block: index, %x: memref<256x12xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  tile.warp_specialize producer {
    %s = tile.acquire %ring bytes 8192 : <2 stages, 2 consumers>
    // expected-error@+1 {{columns must be contiguous and other strides multiples of 16 bytes}}
    tile.bulk_copy %x[%c0, %c0] along [0, 1] to %a[%s] on %ring : memref<256x12xbf16> to memref<2x64x64xbf16, #tile.shared<swizzled>>, <2 stages, 2 consumers>
  } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @box_indices(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  tile.warp_specialize producer {
    %s = tile.acquire %ring bytes 8192 : <2 stages, 2 consumers>
    // expected-error@+1 {{needs 2 indices, got 1}}
    tile.bulk_copy %x[%c0] along [0, 1] to %a[%s] on %ring : memref<256x512xbf16> to memref<2x64x64xbf16, #tile.shared<swizzled>>, <2 stages, 2 consumers>
  } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @box_along(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  tile.warp_specialize producer {
    %s = tile.acquire %ring bytes 8192 : <2 stages, 2 consumers>
    // expected-error@+1 {{`along` names two dimensions of 'memref<256x512xbf16>'}}
    tile.bulk_copy %x[%c0, %c0] along [0, 2] to %a[%s] on %ring : memref<256x512xbf16> to memref<2x64x64xbf16, #tile.shared<swizzled>>, <2 stages, 2 consumers>
  } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @box_type(%block: index, %x: memref<256x512xf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  tile.warp_specialize producer {
    %s = tile.acquire %ring bytes 8192 : <2 stages, 2 consumers>
    // expected-error@+1 {{element types differ}}
    tile.bulk_copy %x[%c0, %c0] along [0, 1] to %a[%s] on %ring : memref<256x512xf16> to memref<2x64x64xbf16, #tile.shared<swizzled>>, <2 stages, 2 consumers>
  } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @ring_stages(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  %b = tile.alloc : memref<3x64x64xbf16, #tile.shared<swizzled>>
  tile.warp_specialize producer {
    %s = tile.acquire %ring bytes 8192 : <2 stages, 2 consumers>
    // expected-error@+1 {{whose stages are not those of}}
    tile.bulk_copy %x[%c0, %c0] along [0, 1] to %b[%s] on %ring : memref<256x512xbf16> to memref<3x64x64xbf16, #tile.shared<swizzled>>, <2 stages, 2 consumers>
  } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @registers(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  // expected-error@+1 {{registers of a thread must be a multiple of 8 from 24 to 256, got 100}}
  tile.warp_specialize registers [40, 100] producer { tile.barrier } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @role_warps(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 2, 2>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  // expected-error@+1 {{requires a kernel whose `warps` are warpgroups}}
  tile.warp_specialize producer { tile.barrier } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @not_last(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<2x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <2 stages, 2 consumers>
  // expected-error@+1 {{must be the last op of a kernel}}
  tile.warp_specialize producer { tile.barrier } consumers { tile.barrier }
  tile.barrier
  tile.return
}

// -----

tile.kernel @registers(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 12, 1>,
                access = [#tile<access read>]} {
  // expected-error@+1 {{takes 93184 registers, but a block of 512 threads has 65536}}
  tile.warp_specialize registers [32, 232] producer { tile.barrier } consumers { tile.barrier }
  tile.return
}

// -----

// As many as an SM has, but more than the block was launched with: 168 for each
// thread.
tile.kernel @registers(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  // expected-error@+1 {{takes 65536 registers, but a block of 384 threads has 64512}}
  tile.warp_specialize registers [32, 240] producer { tile.barrier } consumers { tile.barrier }
  tile.return
}

// -----

tile.kernel @reductions(%block: index, %x: memref<256x512xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 8, 1>,
                access = [#tile<access read>]} {
  tile.warp_specialize producer { tile.barrier } consumers {
    %tile = arith.constant dense<1.0> : vector<128x64xf32>
    %rows = tile.reduce sum %tile dim 1 : vector<128x64xf32> -> vector<128xf32>
    // expected-error@+1 {{in warp-specialized code must reduce along the rows of a tile}}
    %columns = tile.reduce sum %tile dim 0 : vector<128x64xf32> -> vector<64xf32>
  }
  tile.return
}
