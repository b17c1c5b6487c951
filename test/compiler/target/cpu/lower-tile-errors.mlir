// RUN: tessera-opt %s --lower-tile-to-vector -split-input-file -verify-diagnostics
// RUN: not tessera-opt %s --lower-tile-to-vector=target=gpu -split-input-file 2>&1 | FileCheck %s --check-prefix=TARGET

// TARGET: unknown CPU target 'gpu'; expected one of cpu:{{.*}}, cpu:avx2

// expected-error @below {{kernel @atan: math.atan: is not a function that the CPU target expands}}
tile.kernel @atan(%block: index, %x: memref<16xf32>) attributes {
    skeleton = #tile<skeleton elementwise>, access = [#tile<access read_write>], summary = "atan"} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0] along [0] : memref<16xf32>, vector<16xf32>
  %b = math.atan %a : vector<16xf32>
  tile.store %b, %x[%c0] along [0] : vector<16xf32>, memref<16xf32>
  tile.return
}

// -----

// expected-error @below {{kernel @odd: tile.load: a tile of paired memory must start at an even row}}
tile.kernel @odd(%block: index, %y: memref<2x16xbf16>) attributes {
    skeleton = #tile<skeleton elementwise>, access = [#tile<access write>], summary = "none"} {
  %c0 = arith.constant 0 : index
  %s = tile.alloc : memref<4x16xbf16, #tile.shared<pairs>>
  %a = tile.load %s[%block, %c0] along [0, 1] : memref<4x16xbf16, #tile.shared<pairs>>, vector<2x16xbf16>
  tile.store %a, %y[%c0, %c0] along [0, 1] : vector<2x16xbf16>, memref<2x16xbf16>
  tile.return
}

// -----

// expected-error @below {{kernel @remainder: arith.remf: has no vector lowering on the CPU}}
tile.kernel @remainder(%block: index, %x: memref<16xf32>) attributes {
    skeleton = #tile<skeleton elementwise>, access = [#tile<access read_write>], summary = "remf"} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0] along [0] : memref<16xf32>, vector<16xf32>
  %b = arith.remf %a, %a : vector<16xf32>
  tile.store %b, %x[%c0] along [0] : vector<16xf32>, memref<16xf32>
  tile.return
}

// -----

// expected-error @below {{kernel @narrow: tile.reduce: supports f32, f64 and integers; extend first}}
tile.kernel @narrow(%block: index, %x: memref<16xbf16>, %y: memref<1xbf16>) attributes {
    skeleton = #tile<skeleton elementwise>, access = [#tile<access read>, #tile<access write>], summary = "reduce"} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0] along [0] : memref<16xbf16>, vector<16xbf16>
  %b = tile.reduce sum %a dim 0 : vector<16xbf16> -> vector<bf16>
  %c = vector.extractelement %b[] : vector<bf16>
  memref.store %c, %y[%c0] : memref<1xbf16>
  tile.return
}

// -----

// expected-error @below {{kernel @strides: tile.kernel: memory holds integers or floats}}
tile.kernel @strides(%block: index, %x: memref<16xindex>) attributes {
    skeleton = #tile<skeleton elementwise>, access = [#tile<access read>], summary = "none"} {
  tile.return
}

// -----

// expected-error @below {{kernel @one_word: tile.mma: requires words of one column}}
tile.kernel @one_word(%block: index, %x: memref<1x1xi32>) attributes {
    skeleton = #tile<skeleton elementwise>, access = [#tile<access read_write>], summary = "none"} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0, %c0] along [0, 1] : memref<1x1xi32>, vector<1x1xi32>
  %b = tile.mma %a, %a, %a : vector<1x1xi32>, vector<1x1xi32>, vector<1x1xi32>
  tile.store %b, %x[%c0, %c0] along [0, 1] : vector<1x1xi32>, memref<1x1xi32>
  tile.return
}
