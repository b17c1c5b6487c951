// RUN: tessera-opt %s --emit-kernels="targets=cuda:sm_80" --canonicalize --cse | FileCheck %s

// Heads of 32 contiguous elements out of 64: a warp has all of a row, and every
// lane an element.
// CHECK-LABEL: tile.kernel @halves
// CHECK-SAME: tile.threads = 32
// CHECK: tile.load {{.*}} vector<32xf32>
func.func @halves(%x: tensor<2048x32x64xf32>, %y: tensor<2048x32xf32>) -> tensor<2048x32x32xf32> {
  %z = graph.cluster elementwise "halves" (%x, %y) : (tensor<2048x32x64xf32>, tensor<2048x32xf32>) -> tensor<2048x32x32xf32> {
  ^bb0(%a: tensor<2048x32x64xf32>, %b: tensor<2048x32xf32>):
    %low = graph.slice %a [0, 0, 0] : tensor<2048x32x64xf32> -> tensor<2048x32x32xf32>
    %table = graph.broadcast %b dims [0, 2] : tensor<2048x32xf32> -> tensor<2048x32x32xf32>
    %p = graph.mul %low, %table : tensor<2048x32x32xf32>
    graph.yield %p : tensor<2048x32x32xf32>
  }
  return %z : tensor<2048x32x32xf32>
}

// Two elements a lane, and powers of two: 64 threads for 96 elements.
// CHECK-LABEL: tile.kernel @longer
// CHECK-SAME: tile.threads = 64
// CHECK-LABEL: tile.kernel @long
// CHECK-NOT: tile.threads
func.func @others(%x: tensor<512x8x192xf32>, %y: tensor<512x8x512xf32>) -> (tensor<512x8x96xf32>, tensor<512x8x256xf32>) {
  %s = graph.cluster elementwise "longer" (%x) : (tensor<512x8x192xf32>) -> tensor<512x8x96xf32> {
  ^bb0(%a: tensor<512x8x192xf32>):
    %low = graph.slice %a [0, 0, 0] : tensor<512x8x192xf32> -> tensor<512x8x96xf32>
    %n = graph.neg %low : tensor<512x8x96xf32>
    graph.yield %n : tensor<512x8x96xf32>
  }
  %t = graph.cluster elementwise "long" (%y) : (tensor<512x8x512xf32>) -> tensor<512x8x256xf32> {
  ^bb0(%a: tensor<512x8x512xf32>):
    %low = graph.slice %a [0, 0, 0] : tensor<512x8x512xf32> -> tensor<512x8x256xf32>
    %n = graph.neg %low : tensor<512x8x256xf32>
    graph.yield %n : tensor<512x8x256xf32>
  }
  return %s, %t : tensor<512x8x96xf32>, tensor<512x8x256xf32>
}
