// RUN: tessera-opt %s --apply-precision=compute=bf16 --verify-precision=compute=bf16 | FileCheck %s
// A router's weight is f32 everywhere, and so is what is computed of it alone; rows are bf16.

// CHECK-LABEL: func @loss
// The weight goes to the block as it is, others as their copies.
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<6x8xf32> {{.*}}, %[[R:[a-z0-9]+]]: tensor<4x8xf32> {
// CHECK: %[[NARROW:.*]] = graph.convert %[[X]] : tensor<6x8xf32> -> tensor<6x8xbf16>
// CHECK: call @layer(%[[NARROW]], %[[R]]) : (tensor<6x8xbf16>, tensor<4x8xf32>) -> (tensor<6x8xbf16>, tensor<f32>)
func.func @loss(%x: tensor<6x8xf32> {graph.state = "x", graph.role = #graph<role parameter>},
                %r: tensor<4x8xf32> {graph.state = "r", graph.role = #graph<role parameter>, graph.keep_f32}) -> tensor<f32> {
  %0:2 = call @layer(%x, %r) : (tensor<6x8xf32>, tensor<4x8xf32>) -> (tensor<6x8xf32>, tensor<f32>)
  return %0#1 : tensor<f32>
}

// CHECK-LABEL: func private @layer
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<6x8xbf16>, %[[R:[a-z0-9]+]]: tensor<4x8xf32> {graph.keep_f32}
func.func private @layer(%x: tensor<6x8xf32>, %r: tensor<4x8xf32> {graph.keep_f32}) -> (tensor<6x8xf32>, tensor<f32>) attributes {graph.block} {
  // CHECK: %[[WIDE:.*]] = graph.convert %[[X]] : tensor<6x8xbf16> -> tensor<6x8xf32>
  // CHECK: graph.einsum "tk,ek->te" %[[WIDE]], %[[R]] : (tensor<6x8xf32>, tensor<4x8xf32>) -> tensor<6x4xf32>
  %s = graph.einsum "tk,ek->te" %x, %r : (tensor<6x8xf32>, tensor<4x8xf32>) -> tensor<6x4xf32>
  // CHECK: %[[P:.*]] = graph.softmax %{{.*}} : tensor<6x4xf32>
  %p = graph.softmax %s : tensor<6x4xf32>
  // CHECK: graph.top_k %[[P]] : (tensor<6x4xf32>)
  %i = graph.top_k %p : (tensor<6x4xf32>) -> tensor<6x2xi32>
  // CHECK: %[[W:.*]] = graph.take_along_axis %[[P]] at %{{.*}} : (tensor<6x4xf32>, tensor<6x2xi32>) -> tensor<6x2xf32>
  %w = graph.take_along_axis %p at %i : (tensor<6x4xf32>, tensor<6x2xi32>) -> tensor<6x2xf32>
  %o, %q = graph.group_rows %i : (tensor<6x2xi32>) -> (tensor<5xi32>, tensor<6x2xi32>)
  // CHECK: graph.dispatch_rows %[[X]] slots %{{.*}} : (tensor<6x8xbf16>, tensor<6x2xi32>) -> tensor<12x8xbf16>
  %a = graph.dispatch_rows %x slots %q : (tensor<6x8xf32>, tensor<6x2xi32>) -> tensor<12x8xf32>
  // CHECK: graph.combine_rows %{{.*}} slots %{{.*}} weights %[[W]] : (tensor<12x8xbf16>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xbf16>
  %y = graph.combine_rows %a slots %q weights %w : (tensor<12x8xf32>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  %z = graph.reduce %s sum dims [0, 1] : tensor<6x4xf32> -> tensor<f32>
  return %y, %z : tensor<6x8xf32>, tensor<f32>
}
