// RUN: tessera-opt %s --fuse --emit-kernels=targets=cpu:avx512 --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: tessera-opt %s --fuse --emit-kernels=targets=cuda:sm_80 --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,GPU

// Three launches: 32 runs of each row hide what is not allowed, one block for every 16 changes, one block a row draws.
// What is written by the second is no operand that it reads; the third has the weights for itself.

// CHECK-LABEL: func.func @draw
// CHECK:       %[[MASKED:.*]] = tile.launch @sample_allowed(%[[L:.*]], %[[A:.*]]) blocks [96] sizes [] : (tensor<3x4096xf32>, tensor<3x128xi32>) -> tensor<3x4096xf32>
// CHECK-NEXT:  %[[CHANGED:.*]] = tile.launch @sample_changed(%[[L]], %[[A]], %{{.*}}, %{{.*}}, %[[MASKED]]) blocks [9] sizes []
// CHECK-NEXT:  %[[ROW:.*]]:2 = tile.launch @sample(%[[CHANGED]], %{{.*}}, %{{.*}}) blocks [3] sizes []
// CHECK-NEXT:  return %[[ROW]]#1 : tensor<3xi32>

// Bit r of word w is token 128 r + w: a tile of words and one of logits lie side by side.
// CHECK-LABEL: tile.kernel @sample_allowed
// CHECK:       %[[PART:.*]] = arith.remui %{{.*}}, %c32
// CHECK:       %[[FIRST:.*]] = arith.muli %[[PART]], %c128
// CHECK:       tile.load
// CHECK:       tile.load
// CHECK:       arith.shrui

// A logit is changed where its token is one, and allowed.
// CHECK-LABEL: tile.kernel @sample_changed
// CHECK:       arith.cmpi ult, %{{.*}}, %c4096_i32
// CHECK:       scf.if
// CHECK:       scf.if
// CHECK:       memref.store

// The threads of a GPU's block share a row; seven keys are tried a walk, and ten walks find one.
// CHECK-LABEL: tile.kernel @sample(
// GPU:         vector<1024xf32>
// CPU:         vector<16xf32>
// CHECK:       scf.for %{{.*}} = %c0 to %c10 step %c1
// CHECK:       scf.for %{{.*}} -> (vector<[[N:[0-9]+]]xi32>, vector<[[N]]xi32>, vector<[[N]]xi32>, vector<[[N]]xi32>, vector<[[N]]xi32>, vector<[[N]]xi32>, vector<[[N]]xi32>)
func.func @draw(%l: tensor<3x4096xf32>, %a: tensor<3x128xi32>, %t: tensor<3x40xi32>, %c: tensor<3x40x4xf32>, %o: tensor<3x2xf32>, %n: tensor<3x4xi32>) -> tensor<3xi32> {
  %r = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<3x4096xf32>, tensor<3x128xi32>, tensor<3x40xi32>, tensor<3x40x4xf32>, tensor<3x2xf32>, tensor<3x4xi32> -> tensor<3xi32>
  return %r : tensor<3xi32>
}
