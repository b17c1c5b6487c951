// RUN: tessera-opt %s --decompose-composites --fuse --verify-fused | FileCheck %s

// A gated layer of experts: two kernels, the gate on the accumulators of its own product.

// CHECK-LABEL: func @gate(
// CHECK-NEXT:  %[[U:.*]] = graph.cluster grouped "grouped_matmul"(%arg0, %arg2, %arg3)
// CHECK:         graph.grouped_matmul {{.*}} {transposed}
// CHECK-NEXT:    graph.yield
// CHECK:       %[[H:.*]] = graph.cluster grouped "grouped_matmul_silu_mul"(%arg0, %arg1, %arg3, %[[U]])
// CHECK:         %[[P:.*]] = graph.grouped_matmul {{.*}} {transposed}
// CHECK-NEXT:    %[[S:.*]] = graph.silu %[[P]]
// CHECK-NEXT:    graph.mul %[[S]]
// CHECK:       return %[[H]]
func.func @gate(%x: tensor<64x32xbf16>, %v: tensor<4x48x32xbf16>, %w: tensor<4x48x32xbf16>, %g: tensor<5xi32>) -> tensor<64x48xbf16> {
  %gate = graph.grouped_matmul %x, %v groups %g {transposed} : (tensor<64x32xbf16>, tensor<4x48x32xbf16>, tensor<5xi32>) -> tensor<64x48xbf16>
  %act = graph.silu %gate : tensor<64x48xbf16>
  %up = graph.grouped_matmul %x, %w groups %g {transposed} : (tensor<64x32xbf16>, tensor<4x48x32xbf16>, tensor<5xi32>) -> tensor<64x48xbf16>
  %h = graph.mul %act, %up : tensor<64x48xbf16>
  return %h : tensor<64x48xbf16>
}

// A gradient of weights is added where it accumulates.

// CHECK-LABEL: func @accumulate(
// CHECK:       graph.cluster grouped "grouped_outer_add"(%{{.*}}, %{{.*}}, %arg2, %[[ACC:.*]]) attributes {accumulates = array<i64: 3, 0>}
func.func @accumulate(%x: tensor<2x3x8x4xf32>, %z: tensor<3x4x4xf32>, %c: tensor<3xi32>) -> tensor<3x4x4xf32> {
  %r = graph.loop 2 (%i, %acc = %z) : (tensor<3x4x4xf32>) {
    %t = graph.dynamic_slice %x[%i] : tensor<2x3x8x4xf32>, tensor<i32> -> tensor<3x8x4xf32>
    %u = graph.relu %t : tensor<3x8x4xf32>
    %d = graph.grouped_outer %t, %u groups %c : (tensor<3x8x4xf32>, tensor<3x8x4xf32>, tensor<3xi32>) -> tensor<3x4x4xf32>
    %n = graph.add %acc, %d : tensor<3x4x4xf32>
    graph.yield %n : tensor<3x4x4xf32>
  }
  return %r : tensor<3x4x4xf32>
}

// Rows of groups are one dimension: an epilogue that would divide it is a kernel of its own.

// CHECK-LABEL: func @divided(
// CHECK-NEXT:  %[[Y:.*]] = graph.cluster grouped "grouped_matmul"(%arg0, %arg1, %arg2)
// CHECK:       graph.cluster elementwise "add"(%[[Y]], %arg3)
func.func @divided(%x: tensor<8x4xf32>, %w: tensor<3x4x6xf32>, %g: tensor<4xi32>, %b: tensor<4x6xf32>) -> tensor<2x4x6xf32> {
  %y = graph.grouped_matmul %x, %w groups %g : (tensor<8x4xf32>, tensor<3x4x6xf32>, tensor<4xi32>) -> tensor<8x6xf32>
  %r = graph.reshape %y : tensor<8x6xf32> -> tensor<2x4x6xf32>
  %c = graph.broadcast %b dims [1, 2] : tensor<4x6xf32> -> tensor<2x4x6xf32>
  %s = graph.add %r, %c : tensor<2x4x6xf32>
  return %s : tensor<2x4x6xf32>
}

// One row has no skeleton: a mask and a product for all groups.

// CHECK-LABEL: func @single(
// CHECK-NOT:   grouped "
// CHECK:       graph.cluster contraction
// CHECK:       return
func.func @single(%x: tensor<1x4xf32>, %w: tensor<3x4x6xf32>, %g: tensor<4xi32>) -> tensor<1x6xf32> {
  %y = graph.grouped_matmul %x, %w groups %g : (tensor<1x4xf32>, tensor<3x4x6xf32>, tensor<4xi32>) -> tensor<1x6xf32>
  return %y : tensor<1x6xf32>
}
