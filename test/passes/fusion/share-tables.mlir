// RUN: tessera-opt %s --share-tables | FileCheck %s

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
