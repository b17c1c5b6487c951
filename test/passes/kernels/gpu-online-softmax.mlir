// RUN: tessera-opt %s --decompose-composites --fuse --emit-kernels=targets=cuda:sm_90a --canonicalize --cse | FileCheck %s
// RUN: tessera-opt %s --decompose-composites --fuse --emit-kernels=targets=cpu:avx2 --canonicalize --cse | FileCheck %s --check-prefix=CPU

// A row that is too long for shared memory is read twice on a GPU, once for the maximum and the sum of exponentials
// relative to it, once for the results. CPUs read it three times.

// CHECK-LABEL: tile.kernel @softmax(
// CHECK:       scf.for {{.*}} -> (vector<2048xf32>, vector<2048xf32>)
// CHECK:         arith.maximumf
// CHECK:         math.exp
// CHECK:         arith.cmpf ogt
// CHECK:         math.fma
// CHECK:       tile.reduce{{ +}}max
// CHECK:       math.exp {{.*}} : vector<2048xf32>
// CHECK:       tile.reduce{{ +}}sum
// CHECK:       scf.for
// CHECK-NOT:   scf.for
// CHECK:       tile.return

// CPU-LABEL:   tile.kernel @softmax(
// CPU-COUNT-3: scf.for {{.*}} step %c32
// CPU:         tile.return
func.func @long(%x: tensor<200x49152xf32>) -> tensor<200x49152xf32> {
  %y = graph.softmax %x : tensor<200x49152xf32>
  return %y : tensor<200x49152xf32>
}

// One that fits keeps its exponentials there.
// CHECK-LABEL: tile.kernel @softmax_1(
// CHECK:       tile.alloc : memref<4096xf32
// CHECK-NOT:   arith.cmpf ogt
func.func @short(%x: tensor<200x4096xf32>) -> tensor<200x4096xf32> {
  %y = graph.softmax %x : tensor<200x4096xf32>
  return %y : tensor<200x4096xf32>
}
