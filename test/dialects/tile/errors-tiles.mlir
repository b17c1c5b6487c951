// RUN: tessera-opt %s --split-input-file --verify-diagnostics

//===--- tile.load and tile.store -----------------------------------------===//

func.func @load_type(%x: memref<8x8xf32>, %i: index) {
  // expected-error@+1 {{element types differ: 'memref<8x8xf32>' and 'vector<8xbf16>'}}
  %0 = tile.load %x[%i, %i] along [1] : memref<8x8xf32>, vector<8xbf16>
  return
}

// -----

func.func @load_indices(%x: memref<8x8xf32>, %i: index) {
  // expected-error@+1 {{needs 2 indices for 'memref<8x8xf32>', got 1}}
  %0 = tile.load %x[%i] along [1] : memref<8x8xf32>, vector<8xf32>
  return
}

// -----

func.func @load_along(%x: memref<8x8xf32>, %i: index) {
  // expected-error@+1 {{`along` needs one memory dimension for each of 2 tile dimensions, got 1}}
  %0 = tile.load %x[%i, %i] along [1] : memref<8x8xf32>, vector<8x8xf32>
  return
}

// -----

func.func @load_dimension(%x: memref<8x8xf32>, %i: index) {
  // expected-error@+1 {{`along` names dimension 2 of 'memref<8x8xf32>'}}
  %0 = tile.load %x[%i, %i] along [2] : memref<8x8xf32>, vector<8xf32>
  return
}

// -----

func.func @load_negative(%x: memref<8x8xf32>, %i: index) {
  // expected-error@+1 {{`along` names dimension -1 of 'memref<8x8xf32>'}}
  %0 = tile.load %x[%i, %i] along [-1] : memref<8x8xf32>, vector<8xf32>
  return
}

// -----

func.func @load_twice(%x: memref<8x8xf32>, %i: index) {
  // expected-error@+1 {{`along` names dimension 1 twice}}
  %0 = tile.load %x[%i, %i] along [1, 1] : memref<8x8xf32>, vector<8x8xf32>
  return
}

// -----

func.func @load_box(%x: memref<8x4xf32>, %i: index) {
  // expected-error@+1 {{tile of 8 along dimension 1 exceeds 'memref<8x4xf32>'}}
  %0 = tile.load %x[%i, %i] along [0, 1] : memref<8x4xf32>, vector<8x8xf32>
  return
}

// -----

// A bound lets the last dimension of the tile reach beyond the memory, no other.
func.func @load_bound(%x: memref<4x4xf32>, %i: index) {
  %0 = tile.load %x[%i, %i] along [0, 1] bound %i : memref<4x4xf32>, vector<4x8xf32>
  // expected-error@+1 {{tile of 8 along dimension 0 exceeds 'memref<4x4xf32>'}}
  %1 = tile.load %x[%i, %i] along [0, 1] bound %i : memref<4x4xf32>, vector<8x4xf32>
  return
}

// -----

func.func @store_type(%x: memref<8x8xf32>, %tile: vector<8xbf16>, %i: index) {
  // expected-error@+1 {{element types differ: 'memref<8x8xf32>' and 'vector<8xbf16>'}}
  tile.store %tile, %x[%i, %i] along [1] : vector<8xbf16>, memref<8x8xf32>
  return
}

// -----

func.func @store_box(%x: memref<8x4xf32>, %tile: vector<8xf32>, %i: index) {
  // expected-error@+1 {{tile of 8 along dimension 1 exceeds 'memref<8x4xf32>'}}
  tile.store %tile, %x[%i, %i] along [1] : vector<8xf32>, memref<8x4xf32>
  return
}

// -----

//===--- tile.alloc, tile.copy, tile.wait ---------------------------------===//

tile.kernel @global(%block: index) attributes {skeleton = #tile<skeleton row>, summary = "", access = []} {
  // expected-error@+1 {{must allocate a static memref in #tile.shared, got 'memref<8xf32>'}}
  %0 = tile.alloc : memref<8xf32>
  tile.return
}

// -----

tile.kernel @dynamic(%block: index) attributes {skeleton = #tile<skeleton row>, summary = "", access = []} {
  // expected-error@+1 {{must allocate a static memref in #tile.shared, got 'memref<?xf32, #tile.shared>'}}
  %0 = tile.alloc : memref<?xf32, #tile.shared>
  tile.return
}

// -----

tile.kernel @nested(%block: index) attributes {skeleton = #tile<skeleton row>, summary = "", access = []} {
  scf.for %i = %block to %block step %block {
    // expected-error@+1 {{must be at the top level of a kernel}}
    %0 = tile.alloc : memref<8xf32, #tile.shared>
  }
  tile.return
}

// -----

tile.kernel @odd_pairs(%block: index) attributes {skeleton = #tile<skeleton row>, summary = "", access = []} {
  // expected-error@+1 {{layout `pairs` needs an even next-to-last dimension, got 'memref<3x8xbf16, #tile.shared<pairs>>'}}
  %0 = tile.alloc : memref<3x8xbf16, #tile.shared<pairs>>
  tile.return
}

// -----

tile.kernel @flat_pairs(%block: index) attributes {skeleton = #tile<skeleton row>, summary = "", access = []} {
  // expected-error@+1 {{layout `pairs` needs an even next-to-last dimension, got 'memref<8xbf16, #tile.shared<pairs>>'}}
  %0 = tile.alloc : memref<8xbf16, #tile.shared<pairs>>
  tile.return
}

// -----

func.func @copy_type(%x: memref<8xf32>, %y: memref<8xbf16, #tile.shared>, %i: index) {
  // expected-error@+1 {{element types differ: 'memref<8xf32>' and 'memref<8xbf16, #tile.shared>'}}
  tile.copy %x[%i] along [0] to %y[%i] along [0] shape [8] : memref<8xf32> to memref<8xbf16, #tile.shared>
  return
}

// -----

func.func @copy_to_global(%x: memref<8xf32>, %y: memref<8xf32>, %i: index) {
  // expected-error@+1 {{must copy from global to #tile.shared memory}}
  tile.copy %x[%i] along [0] to %y[%i] along [0] shape [8] : memref<8xf32> to memref<8xf32>
  return
}

// -----

func.func @copy_from_shared(%x: memref<8xf32, #tile.shared>, %y: memref<8xf32, #tile.shared>, %i: index) {
  // expected-error@+1 {{must copy from global to #tile.shared memory}}
  tile.copy %x[%i] along [0] to %y[%i] along [0] shape [8] : memref<8xf32, #tile.shared> to memref<8xf32, #tile.shared>
  return
}

// -----

func.func @copy_source(%x: memref<4xf32>, %y: memref<8xf32, #tile.shared>, %i: index) {
  // expected-error@+1 {{tile of 8 along dimension 0 exceeds 'memref<4xf32>'}}
  tile.copy %x[%i] along [0] to %y[%i] along [0] shape [8] : memref<4xf32> to memref<8xf32, #tile.shared>
  return
}

// -----

func.func @copy_target(%x: memref<8xf32>, %y: memref<4xf32, #tile.shared>, %i: index) {
  // expected-error@+1 {{tile of 8 along dimension 0 exceeds 'memref<4xf32, #tile.shared>'}}
  tile.copy %x[%i] along [0] to %y[%i] along [0] shape [8] : memref<8xf32> to memref<4xf32, #tile.shared>
  return
}

// -----

func.func @wait() {
  // expected-error@+1 {{`pending` is not negative}}
  tile.wait -1
  return
}

// -----

//===--- computing on tiles -----------------------------------------------===//

func.func @mma_rank(%a: vector<8xf32>, %b: vector<8x8xf32>) {
  // expected-error@+1 {{requires tiles of rank 2}}
  %0 = tile.mma %a, %b, %b : vector<8xf32>, vector<8x8xf32>, vector<8x8xf32>
  return
}

// -----

func.func @mma_shape(%a: vector<8x4xf32>, %b: vector<8x16xf32>, %c: vector<8x16xf32>) {
  // expected-error@+1 {{tile shapes do not fit: 'vector<8x4xf32>' × 'vector<8x16xf32>' into 'vector<8x16xf32>'}}
  %0 = tile.mma %a, %b, %c : vector<8x4xf32>, vector<8x16xf32>, vector<8x16xf32>
  return
}

// -----

func.func @mma_types(%a: vector<8x8xbf16>, %b: vector<8x8xf32>) {
  // expected-error@+1 {{operands must have one element type, got 'vector<8x8xbf16>' and 'vector<8x8xf32>'}}
  %0 = tile.mma %a, %b, %b : vector<8x8xbf16>, vector<8x8xf32>, vector<8x8xf32>
  return
}

// -----

func.func @mma_pairs(%a: vector<8x8xf32>) {
  // expected-error@+1 {{`pairs` are of words of bytes, got 'vector<8x8xf32>'}}
  %0 = tile.mma %a, %a, %a pairs : vector<8x8xf32>, vector<8x8xf32>, vector<8x8xf32>
  return
}

// -----

func.func @mma_accumulator(%a: vector<8x8xbf16>) {
  // expected-error@+1 {{accumulates in f32, got 'vector<8x8xbf16>'}}
  %0 = tile.mma %a, %a, %a : vector<8x8xbf16>, vector<8x8xbf16>, vector<8x8xbf16>
  return
}

// -----

func.func @mma_words(%a: vector<8x1xi32>, %b: vector<1x8xi32>, %c: vector<8x8xf32>) {
  // expected-error@+1 {{words of bytes must accumulate in i32, got 'vector<8x8xf32>'}}
  %0 = tile.mma %a, %b, %c : vector<8x1xi32>, vector<1x8xi32>, vector<8x8xf32>
  return
}

// -----

func.func @mma_double(%a: vector<8x8xf64>, %c: vector<8x8xf32>) {
  // expected-error@+1 {{accumulates in f64, got 'vector<8x8xf32>'}}
  %0 = tile.mma %a, %a, %c : vector<8x8xf64>, vector<8x8xf64>, vector<8x8xf32>
  return
}

// -----

func.func @reduce_dimension(%x: vector<8x4xf32>) {
  // expected-error@+1 {{has no dimension 2 in 'vector<8x4xf32>'}}
  %0 = tile.reduce sum %x dim 2 : vector<8x4xf32> -> vector<8xf32>
  return
}

// -----

func.func @reduce_result(%x: vector<8x4xf32>) {
  // expected-error@+1 {{reduces 'vector<8x4xf32>' along 1 but has result 'vector<4xf32>'}}
  %0 = tile.reduce sum %x dim 1 : vector<8x4xf32> -> vector<4xf32>
  return
}

// -----

func.func @broadcast_type(%x: f32) {
  // expected-error@+1 {{element types differ: 'f32' and 'vector<8xbf16>'}}
  %0 = tile.broadcast %x dims [] : f32 -> vector<8xbf16>
  return
}

// -----

func.func @broadcast_dims(%x: vector<8xf32>) {
  // expected-error@+1 {{`dims` needs one entry for each of 1 input dimensions}}
  %0 = tile.broadcast %x dims [] : vector<8xf32> -> vector<8x4xf32>
  return
}

// -----

func.func @broadcast_size(%x: vector<8xf32>) {
  // expected-error@+1 {{`dims` must increase and match sizes in 'vector<8x4xf32>'}}
  %0 = tile.broadcast %x dims [1] : vector<8xf32> -> vector<8x4xf32>
  return
}

// -----

func.func @broadcast_order(%x: vector<4x4xf32>) {
  // expected-error@+1 {{`dims` must increase and match sizes in 'vector<4x4xf32>'}}
  %0 = tile.broadcast %x dims [1, 0] : vector<4x4xf32> -> vector<4x4xf32>
  return
}

// -----

func.func @broadcast_range(%x: vector<4xf32>) {
  // expected-error@+1 {{`dims` must increase and match sizes in 'vector<4x4xf32>'}}
  %0 = tile.broadcast %x dims [2] : vector<4xf32> -> vector<4x4xf32>
  return
}

// -----

func.func @iota(%i: index) {
  // expected-error@+1 {{has no dimension 1 in 'vector<8xi32>'}}
  %0 = tile.iota %i dim 1 : vector<8xi32>
  return
}

// -----

func.func @transpose(%x: vector<8x4xf32>) {
  // expected-error@+1 {{swaps the dimensions of 'vector<8x4xf32>', got 'vector<8x4xf32>'}}
  %0 = tile.transpose %x : vector<8x4xf32> -> vector<8x4xf32>
  return
}

// -----

//===--- tile.mma_staged --------------------------------------------------===//

func.func @staged_indices(%x: memref<16x64xbf16>, %y: memref<64x16xbf16, #tile.shared<pairs>>,
                          %s: memref<16x16xf32, #tile.shared<rows>>, %i: index, %b: i1) {
  // expected-error@+1 {{needs a matrix and an index for each dimension of 'memref<16x64xbf16>', got 1}}
  tile.mma_staged %x[%i], %y[%i, %i] onto %s[%i, %i] keep %b depth %i shape [16, 16]
      : memref<16x64xbf16>, memref<64x16xbf16, #tile.shared<pairs>>, memref<16x16xf32, #tile.shared<rows>>
  return
}

// -----

func.func @staged_types(%x: memref<16x64xf32>, %y: memref<64x16xbf16, #tile.shared<pairs>>,
                        %s: memref<16x16xf32, #tile.shared<rows>>, %i: index, %b: i1) {
  // expected-error@+1 {{requires bf16 operands and f32 sums, got 'memref<16x64xf32>'}}
  tile.mma_staged %x[%i, %i], %y[%i, %i] onto %s[%i, %i] keep %b depth %i shape [16, 16]
      : memref<16x64xf32>, memref<64x16xbf16, #tile.shared<pairs>>, memref<16x16xf32, #tile.shared<rows>>
  return
}

// -----

func.func @staged_layout(%x: memref<16x64xbf16>, %y: memref<64x16xbf16, #tile.shared<rows>>,
                         %s: memref<16x16xf32, #tile.shared<rows>>, %i: index, %b: i1) {
  // expected-error@+1 {{expects rhs in layout `pairs`, sums in `rows` and lhs in rows, got}}
  tile.mma_staged %x[%i, %i], %y[%i, %i] onto %s[%i, %i] keep %b depth %i shape [16, 16]
      : memref<16x64xbf16>, memref<64x16xbf16, #tile.shared<rows>>, memref<16x16xf32, #tile.shared<rows>>
  return
}

// -----

func.func @staged_shape(%x: memref<16x64xbf16>, %y: memref<64x32xbf16, #tile.shared<pairs>>,
                        %s: memref<16x32xf32, #tile.shared<rows>>, %i: index, %b: i1) {
  // expected-error@+1 {{`shape` must be rows and 1 to 16 or 32 columns}}
  tile.mma_staged %x[%i, %i], %y[%i, %i] onto %s[%i, %i] keep %b depth %i shape [16, 24]
      : memref<16x64xbf16>, memref<64x32xbf16, #tile.shared<pairs>>, memref<16x32xf32, #tile.shared<rows>>
  return
}

// -----

func.func @staged_panel(%x: memref<64x64xbf16>, %y: memref<64x32xbf16, #tile.shared<pairs>>,
                        %s: memref<64x32xf32, #tile.shared<rows>>, %i: index, %b: i1) {
  // expected-error@+1 {{of more than 32 rows requires a multiple of 32 rows, 32 columns, and no `far`}}
  tile.mma_staged %x[%i, %i], %y[%i, %i] onto %s[%i, %i] keep %b depth %i shape [48, 32]
      : memref<64x64xbf16>, memref<64x32xbf16, #tile.shared<pairs>>, memref<64x32xf32, #tile.shared<rows>>
  return
}

// -----

//===--- tile.lookup ------------------------------------------------------===//

func.func @f(%i: vector<2x16xi32>) {
  // expected-error @+1 {{'tile.lookup' op `table` must have 16 numbers, got 2}}
  %0 = tile.lookup %i in [1.0, 2.0] : vector<2x16xi32> -> vector<2x16xf32>
  return
}

// -----

func.func @f(%i: vector<2x16xi32>) {
  // expected-error @+1 {{'tile.lookup' op shapes do not fit}}
  %0 = tile.lookup %i in [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0] : vector<2x16xi32> -> vector<16xf32>
  return
}

// -----

//===--- tile.mma_quantized -----------------------------------------------===//

func.func @quantized_bits(%x: vector<16x32xbf16>, %w: vector<4x64xi32>, %s: vector<4x16xf16>, %sum: vector<16x64xf32>) {
  // expected-error@+1 {{`bits` must be 4 or 8, got 5}}
  %0 = tile.mma_quantized %x, %w, %s, %sum bits 5 group 32 : vector<16x32xbf16>, vector<4x64xi32>, vector<4x16xf16>, vector<16x64xf32>
  return
}

// -----

func.func @quantized_floats(%x: vector<16x32xbf16>, %w: vector<4x128xi32>, %s: vector<4x32xf16>, %sum: vector<16x64xf32>) {
  // expected-error@+1 {{`floats` must have 8 bits and no zero points}}
  %0 = tile.mma_quantized %x, %w, %s, %sum bits 8 group 32 zeros floats : vector<16x32xbf16>, vector<4x128xi32>, vector<4x32xf16>, vector<16x64xf32>
  return
}

// -----

func.func @quantized_terms(%x: vector<16x48xbf16>, %w: vector<4x96xi32>, %s: vector<4x16xf16>, %sum: vector<16x64xf32>) {
  // expected-error@+1 {{terms and groups must be multiples of 32, got 48 and 32}}
  %0 = tile.mma_quantized %x, %w, %s, %sum bits 4 group 32 : vector<16x48xbf16>, vector<4x96xi32>, vector<4x16xf16>, vector<16x64xf32>
  return
}

// -----

func.func @quantized_columns(%x: vector<16x32xbf16>, %w: vector<2x96xi32>, %s: vector<2x16xf16>, %sum: vector<16x48xf32>) {
  // expected-error@+1 {{columns must be whole groups or within one, got 48 of groups of 32}}
  %0 = tile.mma_quantized %x, %w, %s, %sum bits 4 group 32 rows : vector<16x32xbf16>, vector<2x96xi32>, vector<2x16xf16>, vector<16x48xf32>
  return
}

// -----

func.func @quantized_rows_splits(%x: vector<16x32xbf16>, %w: vector<2x128xi32>, %s: vector<2x32xf16>, %sum: vector<16x64xf32>) {
  // expected-error@+1 {{`rows` has no `splits`, got 2}}
  %0 = tile.mma_quantized %x, %w, %s, %sum bits 4 group 32 rows splits 2 : vector<16x32xbf16>, vector<2x128xi32>, vector<2x32xf16>, vector<16x64xf32>
  return
}

// -----

func.func @quantized_groups(%x: vector<16x96xbf16>, %w: vector<4x192xi32>, %s: vector<4x16xf16>, %sum: vector<16x64xf32>) {
  // expected-error@+1 {{terms must be whole groups or within one, got 96 of groups of 64}}
  %0 = tile.mma_quantized %x, %w, %s, %sum bits 4 group 64 : vector<16x96xbf16>, vector<4x192xi32>, vector<4x16xf16>, vector<16x64xf32>
  return
}

// -----

func.func @quantized_zeros(%x: vector<16x32xbf16>, %w: vector<4x64xi32>, %s: vector<4x16xf16>, %sum: vector<16x64xf32>) {
  // expected-error@+1 {{tile shapes do not fit}}
  %0 = tile.mma_quantized %x, %w, %s, %sum bits 4 group 32 zeros : vector<16x32xbf16>, vector<4x64xi32>, vector<4x16xf16>, vector<16x64xf32>
  return
}

// -----

func.func @quantized_words(%x: vector<16x32xbf16>, %w: vector<4x64xi32>, %s: vector<4x16xf16>, %sum: vector<16x64xf32>) {
  // expected-error@+1 {{tile shapes do not fit}}
  %0 = tile.mma_quantized %x, %w, %s, %sum bits 8 group 32 : vector<16x32xbf16>, vector<4x64xi32>, vector<4x16xf16>, vector<16x64xf32>
  return
}

// -----

func.func @quantized_splits(%x: vector<16x96xbf16>, %w: vector<4x192xi32>, %s: vector<4x48xf16>, %sum: vector<32x64xf32>) {
  // expected-error@+1 {{`splits` must be parts of whole 32 terms, got 2 of 96}}
  %0 = tile.mma_quantized %x, %w, %s, %sum bits 4 group 32 splits 2 : vector<16x96xbf16>, vector<4x192xi32>, vector<4x48xf16>, vector<32x64xf32>
  return
}
