// RUN: tessera-opt %s --fuse --verify-fused | FileCheck %s

// Rows of a table are results of their own kernels; the table is made in planning. Another
// concatenation is a kernel's.
// CHECK-LABEL: func.func @tables
// CHECK: %[[A:.*]] = graph.cluster elementwise "exp"
// CHECK: %[[B:.*]] = graph.cluster elementwise "neg"
// CHECK: %[[TABLE:.*]] = graph.concat %{{.*}}, %{{.*}} dim 0
// CHECK: graph.cluster elementwise "tanh"(%[[TABLE]])
// CHECK: graph.cluster elementwise "concat"
func.func @tables(%x: tensor<16xf32>, %y: tensor<1x8xf32>) -> (tensor<2x16xf32>, tensor<1x16xf32>) {
  %a = graph.exp %x : tensor<16xf32>
  %b = graph.neg %x : tensor<16xf32>
  %ra = graph.reshape %a : tensor<16xf32> -> tensor<1x16xf32>
  %rb = graph.reshape %b : tensor<16xf32> -> tensor<1x16xf32>
  %table = graph.concat %ra, %rb dim 0 : (tensor<1x16xf32>, tensor<1x16xf32>) -> tensor<2x16xf32>
  %t = graph.tanh %table : tensor<2x16xf32>
  %c = graph.concat %y, %y dim 1 : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x16xf32>
  return %t, %c : tensor<2x16xf32>, tensor<1x16xf32>
}

// A row of 64 bytes of a table that is given is read at its address, one of 32 bytes at an index.
// CHECK-LABEL: func.func @rows
// CHECK: %[[ROW:.*]] = graph.slice %{{.*}} [1, 0] : tensor<4x16xf32> -> tensor<1x16xf32>
// CHECK: graph.cluster elementwise "exp"(%[[ROW]])
// CHECK: graph.cluster elementwise "neg"(%{{.*}}) : (tensor<4x8xf32>)
func.func @rows(%x: tensor<4x16xf32>, %y: tensor<4x8xf32>) -> (tensor<1x16xf32>, tensor<1x8xf32>) {
  %a = graph.slice %x [1, 0] : tensor<4x16xf32> -> tensor<1x16xf32>
  %b = graph.slice %y [1, 0] : tensor<4x8xf32> -> tensor<1x8xf32>
  %ea = graph.exp %a : tensor<1x16xf32>
  %nb = graph.neg %b : tensor<1x8xf32>
  return %ea, %nb : tensor<1x16xf32>, tensor<1x8xf32>
}

// A cluster with backward ops of layers 2 and 1 is layer 1's, and so is a sum over its result. One
// with an op of a forward pass is in it.
// CHECK-LABEL: func.func @layers
// CHECK: %[[M:.*]] = graph.cluster elementwise "exp_neg"({{.*}} {graph.layer = #graph.layer<1, backward>}
// CHECK: graph.cluster column "columns_sum"({{.*}} {graph.layer = #graph.layer<1, backward>}
// CHECK: graph.cluster elementwise "sqrt_tanh"({{.*}} {graph.layer = #graph.layer<4>}
func.func @layers(%x: tensor<256x128xf32>, %y: tensor<64xf32>) -> (tensor<256x128xf32>, tensor<128xf32>, tensor<64xf32>) {
  %a = graph.exp %x {graph.layer = #graph.layer<2, backward>} : tensor<256x128xf32>
  %b = graph.neg %a {graph.layer = #graph.layer<1, backward>} : tensor<256x128xf32>
  %flat = graph.reshape %b : tensor<256x128xf32> -> tensor<256x128xf32>
  %sum = graph.reduce %b sum dims [0] {graph.layer = #graph.layer<2, backward>} : tensor<256x128xf32> -> tensor<128xf32>
  %f = graph.sqrt %y {graph.layer = #graph.layer<4>} : tensor<64xf32>
  %g = graph.tanh %f {graph.layer = #graph.layer<4, backward>} : tensor<64xf32>
  return %flat, %sum, %g : tensor<256x128xf32>, tensor<128xf32>, tensor<64xf32>
}
