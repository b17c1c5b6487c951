// RUN: tessera-opt %s --expand-linear-cross-entropy=chunk-bytes=1024 | FileCheck %s

// 12 tokens × 64 words × 4 bytes are 3072 bytes: three chunks of four tokens.

// CHECK-LABEL: func @loss(
// CHECK-SAME:  %[[X:.*]]: tensor<12x8xf32>, %[[W:.*]]: tensor<64x8xf32>, %[[T:.*]]: tensor<12xi32>)
// CHECK-DAG:   %[[XS:.*]] = graph.reshape %[[X]] : tensor<12x8xf32> -> tensor<3x4x8xf32>
// CHECK-DAG:   %[[TS:.*]] = graph.reshape %[[T]] : tensor<12xi32> -> tensor<3x4xi32>
// CHECK:       %[[L:.*]] = graph.loop 3 (%[[I:.*]], %[[SUM:.*]] = %{{.*}}) : (tensor<f32>)
// CHECK-DAG:     %[[XI:.*]] = graph.dynamic_slice %[[XS]][%[[I]]]
// CHECK-DAG:     %[[TI:.*]] = graph.dynamic_slice %[[TS]][%[[I]]]
// CHECK:         %[[LI:.*]] = graph.linear_cross_entropy %[[XI]], %[[W]], %[[TI]]
// CHECK:         %[[NEXT:.*]] = graph.add %[[SUM]], %[[LI]]
// CHECK:         graph.yield %[[NEXT]]
// CHECK:       return %[[L]]
func.func @loss(%x: tensor<12x8xf32>, %w: tensor<64x8xf32>, %t: tensor<12xi32>) -> tensor<f32> {
  %l = graph.linear_cross_entropy %x, %w, %t : tensor<12x8xf32>, tensor<64x8xf32>, tensor<12xi32> -> tensor<f32>
  return %l : tensor<f32>
}

// The gradient of a bf16 weight is summed in f32 over the chunks.

// CHECK-LABEL: func @gradient(
// CHECK:       graph.loop 3 (%[[I:.*]], %[[SUM:.*]] = %{{.*}}, %[[DXS:.*]] = %{{.*}}, %[[DW:.*]] = %{{.*}}) : (tensor<f32>, tensor<3x4x8xbf16>, tensor<64x8xf32>)
// CHECK:         %[[L:.*]], %[[DX:.*]], %[[DWI:.*]] = graph.linear_cross_entropy_grad {{.*}} -> (tensor<f32>, tensor<4x8xbf16>, tensor<64x8xf32>)
// CHECK-DAG:     %[[A:.*]] = graph.add %[[SUM]], %[[L]]
// CHECK-DAG:     %[[B:.*]] = graph.dynamic_update %[[DX]] into %[[DXS]][%[[I]]]
// CHECK-DAG:     %[[C:.*]] = graph.add %[[DW]], %[[DWI]]
// CHECK:         graph.yield %[[A]], %[[B]], %[[C]]
// CHECK-DAG:   graph.reshape %{{.*}}#1 : tensor<3x4x8xbf16> -> tensor<12x8xbf16>
// CHECK-DAG:   graph.convert %{{.*}}#2 : tensor<64x8xf32> -> tensor<64x8xbf16>
func.func @gradient(%x: tensor<12x8xbf16>, %w: tensor<64x8xbf16>, %t: tensor<12xi32>, %c: tensor<f32>) -> (tensor<f32>, tensor<12x8xbf16>, tensor<64x8xbf16>) {
  %l, %dx, %dw = graph.linear_cross_entropy_grad %x, %w, %t, %c : (tensor<12x8xbf16>, tensor<64x8xbf16>, tensor<12xi32>, tensor<f32>) -> (tensor<f32>, tensor<12x8xbf16>, tensor<64x8xbf16>)
  return %l, %dx, %dw : tensor<f32>, tensor<12x8xbf16>, tensor<64x8xbf16>
}

// A weight without a gradient, the head of an adapter's base, has no sum.

// CHECK-LABEL: func @frozen(
// CHECK:       graph.loop 3 (%[[I:.*]], %[[SUM:.*]] = %{{.*}}, %[[DXS:.*]] = %{{.*}}) : (tensor<f32>, tensor<3x4x8xbf16>)
// CHECK:         graph.linear_cross_entropy_grad
// CHECK:         graph.yield %{{.*}}, %{{.*}} : tensor<f32>, tensor<3x4x8xbf16>
func.func @frozen(%x: tensor<12x8xbf16>, %w: tensor<64x8xbf16>, %t: tensor<12xi32>, %c: tensor<f32>) -> (tensor<f32>, tensor<12x8xbf16>) {
  %l, %dx, %dw = graph.linear_cross_entropy_grad %x, %w, %t, %c : (tensor<12x8xbf16>, tensor<64x8xbf16>, tensor<12xi32>, tensor<f32>) -> (tensor<f32>, tensor<12x8xbf16>, tensor<64x8xbf16>)
  return %l, %dx : tensor<f32>, tensor<12x8xbf16>
}

// With several targets a token each chunk fills its part of the losses.

// CHECK-LABEL: func @several(
// CHECK:       graph.loop 3 (%[[I:.*]], %[[ALL:.*]] = %{{.*}}) : (tensor<3x4x2xf32>)
// CHECK:         %[[LI:.*]] = graph.linear_cross_entropy {{.*}}, tensor<4x2xi32> -> tensor<4x2xf32>
// CHECK:         %[[NEXT:.*]] = graph.dynamic_update %[[LI]] into %[[ALL]][%[[I]]]
// CHECK:         graph.yield %[[NEXT]]
// CHECK:       graph.reshape %{{.*}} : tensor<3x4x2xf32> -> tensor<12x2xf32>
func.func @several(%x: tensor<12x8xf32>, %w: tensor<64x8xf32>, %t: tensor<12x2xi32>) -> tensor<12x2xf32> {
  %l = graph.linear_cross_entropy %x, %w, %t : tensor<12x8xf32>, tensor<64x8xf32>, tensor<12x2xi32> -> tensor<12x2xf32>
  return %l : tensor<12x2xf32>
}

// What fits one chunk stays.

// CHECK-LABEL: func @small(
// CHECK-NOT:   graph.loop
func.func @small(%x: tensor<4x8xf32>, %w: tensor<64x8xf32>, %t: tensor<4xi32>) -> tensor<f32> {
  %l = graph.linear_cross_entropy %x, %w, %t : tensor<4x8xf32>, tensor<64x8xf32>, tensor<4xi32> -> tensor<f32>
  return %l : tensor<f32>
}
