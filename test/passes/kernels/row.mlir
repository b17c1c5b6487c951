// RUN: tessera-opt %s --emit-kernels=targets=cpu:avx512 --canonicalize --cse | FileCheck %s

// Two walks: the first keeps what is dear to compute in shared memory for the
// second. 133 elements are two tiles of 64 and a rest of 5.

// CHECK-LABEL: tile.kernel @exp_sum
// CHECK:       %[[KEPT:.*]] = tile.alloc : memref<133xf32, #tile.shared>
// CHECK:       scf.for %[[ROW:.*]] =
// CHECK:         scf.for %{{.*}} = %{{.*}} to %c128 step %c64 iter_args
// CHECK:           math.exp %{{.*}} : vector<64xf32>
// CHECK:           tile.store %{{.*}}, %[[KEPT]]
// CHECK:         tile.reduce
// CHECK:         math.exp %{{.*}} : vector<5xf32>
// CHECK-NOT:     math.exp
// CHECK:         scf.for %{{.*}} = %{{.*}} to %c128 step %c64 {
// CHECK:           tile.load %[[KEPT]]
// CHECK:           arith.divf
// CHECK:           tile.store
func.func @main(%x: tensor<7x133xf32>) -> tensor<7x133xf32> {
  %y = graph.cluster row "exp_sum"(%x) : (tensor<7x133xf32>) -> tensor<7x133xf32> {
  ^bb0(%i: tensor<7x133xf32>):
    %e = graph.exp %i : tensor<7x133xf32>
    %s = graph.reduce %e sum dims [1] : tensor<7x133xf32> -> tensor<7xf32>
    %b = graph.broadcast %s dims [0] : tensor<7xf32> -> tensor<7x133xf32>
    %d = graph.div %e, %b : tensor<7x133xf32>
    graph.yield %d : tensor<7x133xf32>
  }
  return %y : tensor<7x133xf32>
}

// What is cheap is computed again, and statistics of rows are scalars.

// CHECK-LABEL: tile.kernel @center
// CHECK-NOT:   tile.alloc
// CHECK:       vector.extract
// CHECK:       arith.mulf %{{.*}}, %{{.*}} : f32
func.func @cheap(%x: tensor<7x128xf32>) -> (tensor<7x128xf32>, tensor<7xf32>) {
  %y, %m = graph.cluster row "center"(%x) : (tensor<7x128xf32>) -> (tensor<7x128xf32>, tensor<7xf32>) {
  ^bb0(%i: tensor<7x128xf32>):
    %s = graph.reduce %i sum dims [1] : tensor<7x128xf32> -> tensor<7xf32>
    %k = graph.constant dense<0.0078125> : tensor<7xf32>
    %n = graph.mul %s, %k : tensor<7xf32>
    %b = graph.broadcast %n dims [0] : tensor<7xf32> -> tensor<7x128xf32>
    %d = graph.sub %i, %b : tensor<7x128xf32>
    graph.yield %d, %n : tensor<7x128xf32>, tensor<7xf32>
  }
  return %y, %m : tensor<7x128xf32>, tensor<7xf32>
}
