// RUN: tessera-opt %s --verify-tiled --split-input-file --verify-diagnostics

func.func @cluster(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'graph.cluster' is neither a launch, a loop, a collective nor a contiguous view: fusion or tile-clusters missed it}}
  %y = graph.cluster elementwise "exp"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    // expected-error @+1 {{'graph.exp' is neither a launch}}
    %e = graph.exp %a : tensor<4xf32>
    graph.yield %e : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// -----

func.func @gap(%x: tensor<4x4xf32>) -> tensor<4x2xf32> {
  // expected-error @+1 {{slice has gaps or does not start at a multiple of 64 bytes: it should have become a kernel}}
  %y = graph.slice %x [0, 1] : tensor<4x4xf32> -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// -----

func.func @missing(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{kernel @f is not in module @cpu}}
  %y = tile.launch @f(%x) blocks [1] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
module @cpu attributes {tile.target = "cpu:avx2"} {
}

// -----

func.func @sizes(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{kernel @f takes 1 sizes an instance, got 0}}
  %y = tile.launch @f(%x) blocks [1] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
module @cpu attributes {tile.target = "cpu:avx2"} {
  tile.kernel @f(%b: index, %n: index, %x: memref<?xf32>, %y: memref<?xf32>) attributes {access = [#tile<access read>, #tile<access write>], dynamic_sizes = 1 : i64, skeleton = #tile<skeleton elementwise>, summary = ""} {
    tile.return
  }
}

// -----

func.func @operands(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{kernel @f takes 2 operands an instance, got 1 for 1}}
  %y = tile.launch @f(%x) blocks [1] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
module @cpu attributes {tile.target = "cpu:avx2"} {
  tile.kernel @f(%b: index, %x: memref<4xf32>, %y: memref<4xf32>) attributes {access = [#tile<access read>, #tile<access read_write>], dynamic_sizes = 0 : i64, skeleton = #tile<skeleton elementwise>, summary = ""} {
    tile.return
  }
}

// -----

func.func @shape(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{results 0 is 'tensor<4xf32>' but kernel @f expects 'memref<5xf32>'}}
  %y = tile.launch @f(%x) blocks [1] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
module @cpu attributes {tile.target = "cpu:avx2"} {
  tile.kernel @f(%b: index, %x: memref<4xf32>, %y: memref<5xf32>) attributes {access = [#tile<access read>, #tile<access write>], dynamic_sizes = 0 : i64, skeleton = #tile<skeleton elementwise>, summary = ""} {
    tile.return
  }
}

// -----

func.func @blocks(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{kernel @f is made for 8 blocks, got 800}}
  %y = tile.launch @f(%x) blocks [800] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
module @cpu attributes {tile.target = "cpu:avx2"} {
  tile.kernel @f(%b: index, %x: memref<4xf32>, %y: memref<4xf32>) attributes {access = [#tile<access read>, #tile<access write>], dynamic_sizes = 0 : i64, skeleton = #tile<skeleton elementwise>, summary = "", tile.blocks = 8 : i64} {
    tile.return
  }
}

// -----

func.func @variants(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = tile.launch @f(%x) blocks [8] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
module @gpu attributes {tile.target = "cuda:sm_80"} {
  // expected-error @+1 {{variant @g takes other buffers}}
  tile.kernel @f(%b: index, %x: memref<4xf32>, %y: memref<4xf32>) attributes {access = [#tile<access read>, #tile<access write>], dynamic_sizes = 0 : i64, skeleton = #tile<skeleton contraction>, summary = "", tile.blocks = 8 : i64, tile.variants = [@g]} {
    tile.return
  }
  tile.kernel @g(%b: index, %x: memref<4xf32>, %y: memref<4xbf16>) attributes {access = [#tile<access read>, #tile<access write>], dynamic_sizes = 0 : i64, skeleton = #tile<skeleton contraction>, summary = "", tile.blocks = 4 : i64} {
    tile.return
  }
  // expected-error @+1 {{variant @none is not a kernel with a number of blocks}}
  tile.kernel @h(%b: index, %x: memref<4xf32>, %y: memref<4xf32>) attributes {access = [#tile<access read>, #tile<access write>], dynamic_sizes = 0 : i64, skeleton = #tile<skeleton contraction>, summary = "", tile.blocks = 8 : i64, tile.variants = [@none]} {
    tile.return
  }
}
