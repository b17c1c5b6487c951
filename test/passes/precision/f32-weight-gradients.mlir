// RUN: tessera-opt %s --f32-weight-gradients --split-input-file | FileCheck %s

// Through the border of a block, a sum, a view; into the contraction's accumulators.

// CHECK-LABEL: func private @layer.backward
// CHECK-SAME:  -> (tensor<4x8xbf16>, tensor<8x16xf32>, tensor<16x4xf32>)
// CHECK:       %[[DX:.*]] = graph.einsum "mn,kn->mk" {{.*}} -> tensor<4x8xbf16>
// CHECK-NEXT:  %[[DW:.*]] = graph.einsum "mk,mn->kn" {{.*}} : (tensor<4x8xbf16>, tensor<4x16xbf16>) -> tensor<8x16xf32>
// CHECK-NEXT:  %[[DV:.*]] = graph.einsum "mk,mn->kn" {{.*}} -> tensor<8x8xf32>
// CHECK-NEXT:  %[[DR:.*]] = graph.reshape %[[DV]] : tensor<8x8xf32> -> tensor<16x4xf32>
// CHECK-NEXT:  return %[[DX]], %[[DW]], %[[DR]]
func.func private @layer.backward(%x: tensor<4x8xbf16>, %w: tensor<8x16xbf16>, %dy: tensor<4x16xbf16>) -> (tensor<4x8xbf16>, tensor<8x16xbf16>, tensor<16x4xbf16>) {
  %dx = graph.einsum "mn,kn->mk" %dy, %w : (tensor<4x16xbf16>, tensor<8x16xbf16>) -> tensor<4x8xbf16>
  %dw = graph.einsum "mk,mn->kn" %x, %dy : (tensor<4x8xbf16>, tensor<4x16xbf16>) -> tensor<8x16xbf16>
  %dv = graph.einsum "mk,mn->kn" %x, %x : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xbf16>
  %dr = graph.reshape %dv : tensor<8x8xbf16> -> tensor<16x4xbf16>
  return %dx, %dw, %dr : tensor<4x8xbf16>, tensor<8x16xbf16>, tensor<16x4xbf16>
}

// The gradient of an activation stays bf16. A head writes f32; scattered rows are widened by the scatter.

// CHECK-LABEL: func @gradients
// CHECK:       %{{.*}}, %{{.*}}, %[[DE:.*]] = graph.linear_cross_entropy_grad {{.*}} -> (tensor<f32>, tensor<4x8xbf16>, tensor<32x8xf32>)
// CHECK-NEXT:  %[[B2:.*]]:3 = call @layer.backward({{.*}} -> (tensor<4x8xbf16>, tensor<8x16xf32>, tensor<16x4xf32>)
// CHECK-NEXT:  %[[B1:.*]]:3 = call @layer.backward(%[[B2]]#0
// CHECK-NEXT:  %[[SW:.*]] = graph.add %[[B2]]#1, %[[B1]]#1 : tensor<8x16xf32>
// CHECK-NEXT:  %[[SV:.*]] = graph.add %[[B2]]#2, %[[B1]]#2 : tensor<16x4xf32>
// CHECK:       %[[ROWS:.*]] = graph.scatter_add %[[B1]]#0 at %{{.*}} onto %{{.*}} : tensor<4x8xbf16>, tensor<4xi32>, tensor<32x8xf32>
// CHECK-NEXT:  %[[SE:.*]] = graph.add %[[DE]], %[[ROWS]]
// CHECK-NEXT:  return %{{.*}}, %[[SE]], %[[SW]], %[[SV]]
func.func @gradients(%x: tensor<4x8xbf16>, %e: tensor<32x8xbf16>, %w: tensor<8x16xbf16>, %dy: tensor<4x16xbf16>, %t: tensor<4xi32>, %c: tensor<f32>)
    -> (tensor<f32>, tensor<32x8xf32>, tensor<8x16xf32>, tensor<16x4xf32>) attributes {graph.program = #graph.program<gradients>} {
  %l, %dx, %de = graph.linear_cross_entropy_grad %x, %e, %t, %c : (tensor<4x8xbf16>, tensor<32x8xbf16>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xbf16>, tensor<32x8xbf16>)
  %b2:3 = call @layer.backward(%dx, %w, %dy) : (tensor<4x8xbf16>, tensor<8x16xbf16>, tensor<4x16xbf16>) -> (tensor<4x8xbf16>, tensor<8x16xbf16>, tensor<16x4xbf16>)
  %b1:3 = call @layer.backward(%b2#0, %w, %dy) : (tensor<4x8xbf16>, tensor<8x16xbf16>, tensor<4x16xbf16>) -> (tensor<4x8xbf16>, tensor<8x16xbf16>, tensor<16x4xbf16>)
  %sw = graph.add %b2#1, %b1#1 : tensor<8x16xbf16>
  %sww = graph.convert %sw : tensor<8x16xbf16> -> tensor<8x16xf32>
  %v2 = graph.convert %b2#2 : tensor<16x4xbf16> -> tensor<16x4xf32>
  %v1 = graph.convert %b1#2 : tensor<16x4xbf16> -> tensor<16x4xf32>
  %sv = graph.add %v2, %v1 : tensor<16x4xf32>
  %dew = graph.convert %de : tensor<32x8xbf16> -> tensor<32x8xf32>
  %zero = graph.constant dense<0.0> : tensor<32x8xf32>
  %dxw = graph.convert %b1#0 : tensor<4x8xbf16> -> tensor<4x8xf32>
  %rows = graph.scatter_add %dxw at %t onto %zero : tensor<4x8xf32>, tensor<4xi32>, tensor<32x8xf32>
  %se = graph.add %dew, %rows : tensor<32x8xf32>
  return %l, %se, %sww, %sv : tensor<f32>, tensor<32x8xf32>, tensor<8x16xf32>, tensor<16x4xf32>
}

// -----

// A contraction that somebody else reads in bf16 is not done twice; a block one of whose callers wants bf16 keeps it.

// CHECK-LABEL: func private @block
// CHECK-SAME:  -> tensor<8x8xbf16>
func.func private @block(%x: tensor<4x8xbf16>) -> tensor<8x8xbf16> {
  %d = graph.einsum "mk,mn->kn" %x, %x : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xbf16>
  return %d : tensor<8x8xbf16>
}
// CHECK-LABEL: func @gradients
// CHECK:       %[[D:.*]] = graph.einsum {{.*}} -> tensor<8x8xbf16>
// CHECK-NEXT:  graph.exp %[[D]]
// CHECK-NEXT:  %[[DW:.*]] = graph.convert %[[D]]
// CHECK-NEXT:  %[[A:.*]] = call @block
// CHECK-NEXT:  %[[AW:.*]] = graph.convert %[[A]]
func.func @gradients(%x: tensor<4x8xbf16>, %c: tensor<f32>) -> (tensor<f32>, tensor<8x8xf32>, tensor<8x8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %d = graph.einsum "mk,mn->kn" %x, %x : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xbf16>
  %other = graph.exp %d : tensor<8x8xbf16>
  %dw = graph.convert %d : tensor<8x8xbf16> -> tensor<8x8xf32>
  %a = call @block(%x) : (tensor<4x8xbf16>) -> tensor<8x8xbf16>
  %aw = graph.convert %a : tensor<8x8xbf16> -> tensor<8x8xf32>
  %b = call @block(%x) : (tensor<4x8xbf16>) -> tensor<8x8xbf16>
  %e = graph.exp %b : tensor<8x8xbf16>
  return %c, %dw, %aw : tensor<f32>, tensor<8x8xf32>, tensor<8x8xf32>
}
