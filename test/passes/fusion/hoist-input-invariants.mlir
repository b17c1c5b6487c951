// RUN: tessera-opt %s --hoist-input-invariants | FileCheck %s

// CHECK-LABEL: func @main(
// CHECK-NEXT:  %[[I:.*]] = graph.iota dim 0
// CHECK-NEXT:  %[[F:.*]] = graph.convert %[[I]]
// CHECK-NEXT:  %[[C:.*]] = graph.cos %[[F]]
// CHECK-NOT:   graph.cos
// CHECK:       %[[A:.*]] = graph.mul %{{.*}}, %[[C]]
// CHECK-NEXT:  graph.loop
// CHECK-NEXT:    graph.mul %{{.*}}, %[[C]]
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %i = graph.iota dim 0 : tensor<8xi32>
  %f = graph.convert %i : tensor<8xi32> -> tensor<8xf32>
  %c = graph.cos %f : tensor<8xf32>
  %a = graph.mul %x, %c : tensor<8xf32>
  %r = graph.loop 2 (%n, %y = %a) : (tensor<8xf32>) {
    %i2 = graph.iota dim 0 : tensor<8xi32>
    %f2 = graph.convert %i2 : tensor<8xi32> -> tensor<8xf32>
    %c2 = graph.cos %f2 : tensor<8xf32>
    %b = graph.mul %y, %c2 : tensor<8xf32>
    graph.yield %b : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// A mask of indices is computed where it is used: its load would cost more.
// CHECK-LABEL: func @masks(
// CHECK-NEXT:  graph.iota dim 0
// CHECK-NEXT:  graph.loop
// CHECK-NEXT:    graph.compare
func.func @masks(%x: tensor<8xf32>) -> tensor<8xf32> {
  %r = graph.loop 2 (%n, %y = %x) : (tensor<8xf32>) {
    %i = graph.iota dim 0 : tensor<8xi32>
    %m = graph.compare %i lt %i : tensor<8xi32> -> tensor<8xi1>
    %b = graph.select %m, %y, %y : tensor<8xi1>, tensor<8xf32>
    graph.yield %b : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// What follows from the device's place in the mesh alone is a table, too.
// CHECK-LABEL: func @slots(
// CHECK-NEXT:  %[[ONE:.*]] = graph.slice %arg1 [1]
// CHECK-NEXT:  %[[ROW:.*]] = graph.reshape %[[ONE]]
// CHECK-NEXT:  %[[ALL:.*]] = graph.broadcast %[[ROW]]
// CHECK-NEXT:  graph.embedding %arg0, %[[ALL]]
// CHECK-NEXT:  graph.embedding %arg0, %[[ALL]]
func.func @slots(%x: tensor<8x4xf32> {graph.input = "x"}, %offsets: tensor<2xi32> {graph.input = "mesh.offsets"}) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %o = graph.slice %offsets [1] : tensor<2xi32> -> tensor<1xi32>
  %r = graph.reshape %o : tensor<1xi32> -> tensor<i32>
  %b = graph.broadcast %r dims [] : tensor<i32> -> tensor<4xi32>
  %y = graph.embedding %x, %b : (tensor<8x4xf32>, tensor<4xi32>) -> tensor<4x4xf32>
  %o2 = graph.slice %offsets [1] : tensor<2xi32> -> tensor<1xi32>
  %r2 = graph.reshape %o2 : tensor<1xi32> -> tensor<i32>
  %b2 = graph.broadcast %r2 dims [] : tensor<i32> -> tensor<4xi32>
  %z = graph.embedding %x, %b2 : (tensor<8x4xf32>, tensor<4xi32>) -> tensor<4x4xf32>
  return %y, %z : tensor<4x4xf32>, tensor<4x4xf32>
}
