// RUN: tessera-opt %s --emit-kernels=targets=cpu:avx512,cpu:avx2 --canonicalize --cse | FileCheck %s
// RUN: not tessera-opt %s --emit-kernels=targets=abacus 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not tessera-opt %s --emit-kernels=targets=cpu:avx2,cuda:sm_80 2>&1 | FileCheck %s --check-prefix=MIXED

// UNKNOWN: error: loc("emit-kernels"): unknown target 'abacus'; expected one of cpu (all CPU variants), cpu:
// MIXED: error: loc("emit-kernels"): cuda:sm_80 must be the only target

// Dense tensors of any length share one flat kernel, whatever their shapes and
// layers. A launch is of its cluster's layer.

// CHECK-LABEL: func @flat(
// CHECK-NEXT:  %[[A:.*]] = tile.launch @relu(%arg0) blocks [1] sizes [32] reuse [0, 0] : (tensor<8x4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:  %[[B:.*]] = tile.launch @relu(%arg1) blocks [2] sizes [20000] reuse [0, 0] {graph.layer = #graph.layer<3>} : (tensor<20000xf32>) -> tensor<20000xf32>
func.func @flat(%x: tensor<8x4xf32>, %y: tensor<20000xf32>) -> (tensor<8x4xf32>, tensor<20000xf32>) {
  %a = graph.cluster elementwise "relu"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32> {
  ^bb0(%i: tensor<8x4xf32>):
    %r = graph.relu %i : tensor<8x4xf32>
    graph.yield %r : tensor<8x4xf32>
  }
  %b = graph.cluster elementwise "relu"(%y) attributes {graph.layer = #graph.layer<3>} : (tensor<20000xf32>) -> tensor<20000xf32> {
  ^bb0(%i: tensor<20000xf32>):
    %r = graph.relu %i : tensor<20000xf32>
    graph.yield %r : tensor<20000xf32>
  }
  return %a, %b : tensor<8x4xf32>, tensor<20000xf32>
}

// The same name, another computation.

// CHECK-LABEL: func @strided(
// CHECK-NEXT:  tile.launch @relu_1(%arg0) blocks [1] sizes [] : (tensor<8x4xf32>) -> tensor<4x8xf32>
func.func @strided(%x: tensor<8x4xf32>) -> tensor<4x8xf32> {
  %a = graph.cluster elementwise "relu"(%x) : (tensor<8x4xf32>) -> tensor<4x8xf32> {
  ^bb0(%i: tensor<8x4xf32>):
    %r = graph.relu %i : tensor<8x4xf32>
    %t = graph.transpose %r [1, 0] : tensor<8x4xf32> -> tensor<4x8xf32>
    graph.yield %t : tensor<4x8xf32>
  }
  return %a : tensor<4x8xf32>
}

// An accumulating pair is one buffer, read and written.

// CHECK-LABEL: func @accumulate(
// CHECK-NEXT:  tile.launch @sums(%arg0, %arg1) blocks [1] sizes [] : (tensor<9x16xf32>, tensor<16xf32>) -> tensor<16xf32>
func.func @accumulate(%x: tensor<9x16xf32>, %acc: tensor<16xf32>) -> tensor<16xf32> {
  %a = graph.cluster column "sums"(%x, %acc) attributes {accumulates = array<i64: 1, 0>} : (tensor<9x16xf32>, tensor<16xf32>) -> tensor<16xf32> {
  ^bb0(%i: tensor<9x16xf32>, %j: tensor<16xf32>):
    %s = graph.reduce %i sum dims [0] : tensor<9x16xf32> -> tensor<16xf32>
    %r = graph.add %j, %s : tensor<16xf32>
    graph.yield %r : tensor<16xf32>
  }
  return %a : tensor<16xf32>
}

// Partial results of fixed blocks in f64, then one block.

// CHECK-LABEL: func @total(
// CHECK-NEXT:  %[[P:.*]] = tile.launch @total(%arg0) blocks [3] sizes [40000] : (tensor<40000xf32>) -> tensor<3xf64>
// CHECK-NEXT:  tile.launch @partial_sum(%[[P]]) blocks [1] sizes [3] : (tensor<3xf64>) -> tensor<f32>
func.func @total(%x: tensor<40000xf32>) -> tensor<f32> {
  %a = graph.cluster reduce_all "total"(%x) : (tensor<40000xf32>) -> tensor<f32> {
  ^bb0(%i: tensor<40000xf32>):
    %s = graph.reduce %i sum dims [0] : tensor<40000xf32> -> tensor<f32>
    graph.yield %s : tensor<f32>
  }
  return %a : tensor<f32>
}

// Kernels stand once a target, with that target's tiles.

// CHECK-LABEL: module @cpu_avx512 attributes {tile.target = "cpu:avx512"}
// CHECK:       tile.kernel @relu(%{{.*}}: index, %{{.*}}: index, %{{.*}}: memref<?xf32>, %{{.*}}: memref<?xf32>) attributes {access = [#tile<access read>, #tile<access write>], dynamic_sizes = 1 : i64, skeleton = #tile<skeleton elementwise>, summary = "relu"}
// CHECK:         tile.load %{{.*}} : memref<?xf32>, vector<64xf32>
// CHECK:         arith.maximumf
// CHECK:         tile.store
// The last tile is bounded.
// CHECK:         scf.if
// CHECK:           tile.load %{{.*}} bound %{{.*}} : memref<?xf32>, vector<64xf32>
// CHECK:       tile.kernel @relu_1
// Rows of 8, gathered with a stride of 4.
// CHECK:         memref.reinterpret_cast %{{.*}} sizes: [4, 8], strides: [1, 4]
// CHECK:       tile.kernel @sums({{.*}}) attributes {access = [#tile<access read>, #tile<access read_write>]
// A sum, and the sum of its rounding errors.
// CHECK:         scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>)
// CHECK:       tile.kernel @total
// CHECK:       tile.kernel @partial_sum
// CHECK-LABEL: module @cpu_avx2 attributes {tile.target = "cpu:avx2"}
// CHECK:       tile.kernel @relu(
// CHECK:         tile.load %{{.*}} : memref<?xf32>, vector<32xf32>
