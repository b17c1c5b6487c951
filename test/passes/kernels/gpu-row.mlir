// RUN: tessera-opt %s --emit-kernels="targets=cuda:sm_80" --canonicalize --cse | FileCheck %s

// A long row that is read from one buffer: tiles of 2048 elements, all of whose
// loads are in flight at once; the rest is 1024 and 81.
// CHECK-LABEL: tile.kernel @long
// CHECK: scf.for %{{.*}} = %c0 to %c49152 step %c2048
// CHECK: tile.load {{.*}} vector<2048xf32>
// CHECK: tile.load {{.*}} vector<1024xf32>
// CHECK: tile.load {{.*}} vector<81xf32>
// CHECK: scf.for %{{.*}} = %c0 to %c49152 step %c2048
// CHECK: tile.load {{.*}} vector<2048xf32>
// CHECK: tile.store {{.*}} vector<2048xf32>
func.func @long(%x: tensor<64x50257xf32>) -> tensor<64x50257xf32> {
  %y = graph.cluster row "long" (%x) : (tensor<64x50257xf32>) -> tensor<64x50257xf32> {
  ^bb0(%a: tensor<64x50257xf32>):
    %m = graph.reduce %a max dims [1] : tensor<64x50257xf32> -> tensor<64xf32>
    %s = graph.broadcast %m dims [0] : tensor<64xf32> -> tensor<64x50257xf32>
    %d = graph.sub %a, %s : tensor<64x50257xf32>
    graph.yield %d : tensor<64x50257xf32>
  }
  return %y : tensor<64x50257xf32>
}

// Two buffers: half as many. A row without two such tiles has narrower ones.
// CHECK-LABEL: tile.kernel @two
// CHECK: tile.load {{.*}} vector<1024xf32>
// CHECK-LABEL: tile.kernel @short
// CHECK: tile.load {{.*}} vector<512xf32>
func.func @others(%x: tensor<64x4096xf32>, %y: tensor<64x4096xf32>, %z: tensor<64x1000xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %s = graph.cluster row "two" (%x, %y) : (tensor<64x4096xf32>, tensor<64x4096xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<64x4096xf32>, %b: tensor<64x4096xf32>):
    %p = graph.mul %a, %b : tensor<64x4096xf32>
    %r = graph.reduce %p sum dims [1] : tensor<64x4096xf32> -> tensor<64xf32>
    graph.yield %r : tensor<64xf32>
  }
  %t = graph.cluster row "short" (%z) : (tensor<64x1000xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<64x1000xf32>):
    %r = graph.reduce %a sum dims [1] : tensor<64x1000xf32> -> tensor<64xf32>
    graph.yield %r : tensor<64xf32>
  }
  return %s, %t : tensor<64xf32>, tensor<64xf32>
}
