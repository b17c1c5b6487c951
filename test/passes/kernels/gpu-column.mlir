// RUN: tessera-opt %s --emit-kernels="targets=cuda:sm_80" --canonicalize --cse | FileCheck %s

// A column has one thread, which adds the rows in their order: 64 of each run,
// then the partial results of all runs. The loads of 16 rows are in flight at
// once.
// CHECK-LABEL: func.func @columns
// CHECK: tile.launch @sums_partial(%{{.*}}) blocks [96]
// CHECK: tile.launch @sums(%{{.*}}) blocks [6]
// CHECK: tile.kernel @sums_partial
// CHECK: scf.for
// CHECK: tile.load {{.*}} vector<128xbf16>
// CHECK: arith.addf
// CHECK: } {tile.unroll_by = 16 : i64}
// CHECK: tile.kernel @sums
// CHECK: scf.for
// CHECK: tile.load {{.*}} vector<128xf32>
// CHECK: arith.addf
// CHECK: } {tile.unroll_by = 16 : i64}
func.func @columns(%x: tensor<1024x768xbf16>) -> tensor<768xf32> {
  %y = graph.cluster column "sums" (%x) : (tensor<1024x768xbf16>) -> tensor<768xf32> {
  ^bb0(%a: tensor<1024x768xbf16>):
    %c = graph.convert %a : tensor<1024x768xbf16> -> tensor<1024x768xf32>
    %s = graph.reduce %c sum dims [0] : tensor<1024x768xf32> -> tensor<768xf32>
    graph.yield %s : tensor<768xf32>
  }
  return %y : tensor<768xf32>
}
