// RUN: tessera-opt %s --split-input-file --verify-diagnostics

//===--- tile.kernel ------------------------------------------------------===//

// expected-error@+1 {{returns nothing, got 1 results}}
"tile.kernel"() <{sym_name = "result", function_type = (index) -> index, skeleton = #tile<skeleton row>,
                  access = [], summary = ""}> ({
^bb0(%block: index):
  tile.return
}) : () -> ()

// -----

// expected-error@+1 {{needs a block number and 1 sizes before its buffers}}
tile.kernel @no_size(%block: index)
    attributes {skeleton = #tile<skeleton row>, summary = "", dynamic_sizes = 1 : i64, access = []} {
  tile.return
}

// -----

// expected-error@+1 {{needs a block number and -1 sizes before its buffers}}
tile.kernel @negative(%block: index)
    attributes {skeleton = #tile<skeleton row>, summary = "", dynamic_sizes = -1 : i64, access = []} {
  tile.return
}

// -----

// expected-error@+1 {{argument 1 must be an index, got 'memref<8xf32>'}}
tile.kernel @size_type(%block: index, %n: memref<8xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "", dynamic_sizes = 1 : i64, access = []} {
  tile.return
}

// -----

// expected-error@+1 {{has 1 buffers but 2 access modes}}
tile.kernel @modes(%block: index, %x: memref<8xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "",
                access = [#tile<access read>, #tile<access write>]} {
  tile.return
}

// -----

// expected-error@+1 {{buffer 0 must be a dense memref in global memory, got 'tensor<8xf32>'}}
tile.kernel @tensor(%block: index, %x: tensor<8xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access read>]} {
  tile.return
}

// -----

// expected-error@+1 {{buffer 1 must be a dense memref in global memory, got 'memref<8xf32, #tile.shared>'}}
tile.kernel @shared(%block: index, %x: memref<8xf32>, %y: memref<8xf32, #tile.shared>)
    attributes {skeleton = #tile<skeleton row>, summary = "",
                access = [#tile<access read>, #tile<access read>]} {
  tile.return
}

// -----

// expected-error@+1 {{buffer 0 must be a dense memref in global memory, got 'memref<8xf32, strided<[2]>>'}}
tile.kernel @strided(%block: index, %x: memref<8xf32, strided<[2]>>)
    attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access read>]} {
  tile.return
}

// -----

// expected-error@+1 {{access of buffer 0 is not a #tile<access ...>}}
tile.kernel @access(%block: index, %x: memref<8xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "", access = ["read"]} {
  tile.return
}

// -----

//===--- tile.launch by itself --------------------------------------------===//

func.func @no_instance(%x: tensor<8xf32>) {
  // expected-error@+1 {{needs at least one instance in `blocks`}}
  tile.launch @k(%x) blocks [] sizes [] : (tensor<8xf32>) -> ()
  return
}

// -----

func.func @operands(%x: tensor<8xf32>) {
  // expected-error@+1 {{operands, results and sizes must divide evenly among 2 instances}}
  tile.launch @k(%x) blocks [1, 1] sizes [] : (tensor<8xf32>) -> ()
  return
}

// -----

func.func @results() {
  // expected-error@+1 {{operands, results and sizes must divide evenly among 2 instances}}
  %0 = tile.launch @k() blocks [1, 1] sizes [] : () -> tensor<8xf32>
  return
}

// -----

func.func @sizes() {
  // expected-error@+1 {{operands, results and sizes must divide evenly among 2 instances}}
  tile.launch @k() blocks [1, 1] sizes [4] : () -> ()
  return
}

// -----

func.func @blocks(%x: tensor<8xf32>) {
  // expected-error@+1 {{block counts must not be negative, got -1}}
  tile.launch @k(%x) blocks [-1] sizes [] : (tensor<8xf32>) -> ()
  return
}

// -----

func.func @odd_reuse(%x: tensor<8xf32>) {
  // expected-error@+1 {{`reuse` lists pairs (operand, result)}}
  %0 = tile.launch @k(%x) blocks [1] sizes [] reuse [0] : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// Positions are those within an instance: of two operands, the second one
// belongs to instance 1.
func.func @reuse_operand(%x: tensor<8xf32>) {
  // expected-error@+1 {{`reuse` pair 1 does not name an operand and a result of an instance}}
  %0:2 = tile.launch @k(%x, %x) blocks [1, 1] sizes [] reuse [0, 0, 1, 0] : (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  return
}

// -----

func.func @reuse_result(%x: tensor<8xf32>) {
  // expected-error@+1 {{`reuse` pair 0 does not name an operand and a result of an instance}}
  %0 = tile.launch @k(%x) blocks [1] sizes [] reuse [0, 1] : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @reuse_negative(%x: tensor<8xf32>) {
  // expected-error@+1 {{`reuse` pair 0 does not name an operand and a result of an instance}}
  %0 = tile.launch @k(%x) blocks [1] sizes [] reuse [-1, 0] : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

//===--- tile.launch and its kernel ---------------------------------------===//

tile.kernel @k(%block: index, %x: memref<8xf32>, %z: memref<8xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "",
                access = [#tile<access read>, #tile<access write>]} {
  tile.return
}
func.func @inputs(%x: tensor<8xf32>) {
  // expected-error@+1 {{kernel @k takes 1 inputs an instance, got 4 for 2}}
  %0:2 = tile.launch @k(%x, %x, %x, %x) blocks [1, 1] sizes [] : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  return
}

// -----

// A buffer that is read and written is both an operand and a result.
tile.kernel @k(%block: index, %x: memref<8xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access read_write>]} {
  tile.return
}
func.func @outputs(%x: tensor<8xf32>) {
  // expected-error@+1 {{kernel @k takes 1 outputs an instance, got 0 for 1}}
  tile.launch @k(%x) blocks [1] sizes [] : (tensor<8xf32>) -> ()
  return
}

// -----

tile.kernel @k(%block: index, %x: memref<8xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access read>]} {
  tile.return
}
func.func @element_type(%x: tensor<8xf32>, %y: tensor<8xbf16>) {
  // expected-error@+1 {{inputs 1 is 'tensor<8xbf16>' but kernel @k expects 'memref<8xf32>'}}
  tile.launch @k(%x, %y) blocks [1, 1] sizes [] : (tensor<8xf32>, tensor<8xbf16>) -> ()
  return
}

// -----

tile.kernel @k(%block: index, %x: memref<8xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access write>]} {
  tile.return
}
func.func @elements() {
  // expected-error@+1 {{outputs 0 is 'tensor<4xf32>' but kernel @k expects 'memref<8xf32>'}}
  %0 = tile.launch @k() blocks [1] sizes [] : () -> tensor<4xf32>
  return
}

// -----

tile.kernel @k(%block: index, %n: index, %x: memref<?xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "", dynamic_sizes = 1 : i64,
                access = [#tile<access read>]} {
  tile.return
}
func.func @missing_size(%x: tensor<8xf32>) {
  // expected-error@+1 {{kernel @k takes 1 sizes an instance}}
  tile.launch @k(%x) blocks [1] sizes [] : (tensor<8xf32>) -> ()
  return
}

// -----

tile.kernel @beside_no_loop(%block: index, %x: memref<8xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access write>]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  // expected-error@+1 {{only an scf.for may carry `tile.interleave`}}
  memref.store %zero, %x[%c0] {tile.interleave} : memref<8xf32>
  tile.return
}

// -----

// A product in another block is none that a loop could be beside of.
tile.kernel @beside_no_product(%block: index, %x: memref<8xf32>)
    attributes {skeleton = #tile<skeleton row>, summary = "", access = [#tile<access write>]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %keep = arith.constant false
  %a = tile.alloc : memref<64x64xbf16, #tile.shared<rows>>
  %b = tile.alloc : memref<64x32xbf16, #tile.shared<pairs>>
  %s = tile.alloc : memref<64x32xf32, #tile.shared<rows>>
  tile.mma_staged %a[%c0, %c0], %b[%c0, %c0] onto %s[%c0, %c0] keep %keep depth %c64 shape [64, 32]
      : memref<64x64xbf16, #tile.shared<rows>>, memref<64x32xbf16, #tile.shared<pairs>>, memref<64x32xf32, #tile.shared<rows>>
  scf.for %i = %c0 to %c64 step %c1 {
    // expected-error@+1 {{carries `tile.interleave` but follows no tile.mma_staged of its block}}
    scf.for %j = %c0 to %c64 step %c1 {
    } {tile.interleave}
  }
  tile.return
}
