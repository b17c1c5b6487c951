// RUN: tessera-opt %s --decompose-composites --canonicalize --cse --hoist-input-invariants --fuse --verify-fused | FileCheck %s
// Routing stores orders and choices, nothing that is as large as their comparisons. Counting an expert's choices walks other rows than
// picking the choices' scores does, although there are as many: the two stay apart, and each is one kernel.

// CHECK-LABEL: func @choices
// CHECK-NEXT: %[[RANK:.*]] = graph.cluster row "top_k"(%arg0) : (tensor<16x8xf32>) -> tensor<16x8xi32>
// CHECK: %[[CHOICE:.*]]:2 = graph.cluster row "top_k_take_along_axis"(%[[RANK]], %arg0) : (tensor<16x8xi32>, tensor<16x8xf32>) -> (tensor<16x2xi32>, tensor<16x2xf32>)
// CHECK: %[[LOADS:.*]] = graph.cluster row "rows_compare_convert_sum"(%[[CHOICE]]#0) : (tensor<16x2xi32>) -> tensor<4x8xf32>
// CHECK-NOT: graph.cluster
// CHECK: return %[[CHOICE]]#0, %[[CHOICE]]#1, %[[LOADS]]
func.func @choices(%s: tensor<16x8xf32>) -> (tensor<16x2xi32>, tensor<16x2xf32>, tensor<4x8xf32>) {
  %i = graph.top_k %s : (tensor<16x8xf32>) -> tensor<16x2xi32>
  %w = graph.take_along_axis %s at %i : (tensor<16x8xf32>, tensor<16x2xi32>) -> tensor<16x2xf32>
  %r = graph.reshape %i : tensor<16x2xi32> -> tensor<4x8xi32>
  %b = graph.broadcast %r dims [0, 2] : tensor<4x8xi32> -> tensor<4x8x8xi32>
  %e = graph.iota dim 1 : tensor<4x8x8xi32>
  %c = graph.compare %b eq %e : tensor<4x8x8xi32> -> tensor<4x8x8xi1>
  %f = graph.convert %c : tensor<4x8x8xi1> -> tensor<4x8x8xf32>
  %l = graph.reduce %f sum dims [2] : tensor<4x8x8xf32> -> tensor<4x8xf32>
  return %i, %w, %l : tensor<16x2xi32>, tensor<16x2xf32>, tensor<4x8xf32>
}

// Rows that are written where they are computed, and read and added in one kernel.
// CHECK-LABEL: func @rows
// CHECK: graph.cluster scatter "dispatch_rows"
// CHECK: %[[SAFE:.*]] = graph.cluster elementwise "combine_rows"(%arg1) : (tensor<16x2xi32>) -> tensor<16x2xi32>
// CHECK: graph.cluster gather "combine_rows"(%{{.*}}, %[[SAFE]], %arg1)
// CHECK-NOT: graph.cluster
// CHECK: return
func.func @rows(%x: tensor<16x32xf32>, %p: tensor<16x2xi32>, %w: tensor<16x2xf32>) -> tensor<16x32xf32> {
  %r = graph.dispatch_rows %x slots %p weights %w : (tensor<16x32xf32>, tensor<16x2xi32>, tensor<16x2xf32>) -> tensor<32x32xf32>
  %y = graph.combine_rows %r slots %p : (tensor<32x32xf32>, tensor<16x2xi32>) -> tensor<16x32xf32>
  return %y : tensor<16x32xf32>
}
