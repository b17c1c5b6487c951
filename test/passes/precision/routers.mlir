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

// A row of a table of counts, as each layer has it: f32, since a block takes small tensors so.
// CHECK-LABEL: func @counted
// CHECK: %[[ROW:.*]] = graph.reshape %{{.*}} : tensor<1x4xf32> -> tensor<4xf32>
// CHECK: call @scaled(%{{.*}}, %[[ROW]]) : (tensor<6x4xbf16>, tensor<4xf32>)
func.func @counted(%x: tensor<6x4xf32> {graph.state = "x", graph.role = #graph<role parameter>},
                   %n: tensor<2x4xf32> {graph.input = "n", graph.keep_f32}) -> tensor<6x4xf32> {
  %0 = graph.slice %n [1, 0] : tensor<2x4xf32> -> tensor<1x4xf32>
  %1 = graph.reshape %0 : tensor<1x4xf32> -> tensor<4xf32>
  %2 = call @scaled(%x, %1) : (tensor<6x4xf32>, tensor<4xf32>) -> tensor<6x4xf32>
  return %2 : tensor<6x4xf32>
}

// Without the attribute the row is made of narrow values, and converted back.
// CHECK-LABEL: func @moved
// CHECK: %[[ROW:.*]] = graph.reshape %{{.*}} : tensor<1x4xbf16> -> tensor<4xbf16>
// CHECK: %[[WIDE:.*]] = graph.convert %[[ROW]] : tensor<4xbf16> -> tensor<4xf32>
// CHECK: call @scaled(%{{.*}}, %[[WIDE]]) : (tensor<6x4xbf16>, tensor<4xf32>)
func.func @moved(%x: tensor<6x4xf32> {graph.state = "x", graph.role = #graph<role parameter>},
                 %n: tensor<2x4xf32> {graph.input = "n"}) -> tensor<6x4xf32> {
  %0 = graph.slice %n [1, 0] : tensor<2x4xf32> -> tensor<1x4xf32>
  %1 = graph.reshape %0 : tensor<1x4xf32> -> tensor<4xf32>
  %2 = call @scaled(%x, %1) : (tensor<6x4xf32>, tensor<4xf32>) -> tensor<6x4xf32>
  return %2 : tensor<6x4xf32>
}

func.func private @scaled(%x: tensor<6x4xf32>, %n: tensor<4xf32>) -> tensor<6x4xf32> attributes {graph.block} {
  %0 = graph.broadcast %n dims [1] : tensor<4xf32> -> tensor<6x4xf32>
  %1 = graph.mul %x, %0 : tensor<6x4xf32>
  return %1 : tensor<6x4xf32>
}
