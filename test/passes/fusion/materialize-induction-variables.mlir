// RUN: tessera-opt %s --materialize-induction-variables | FileCheck %s

// A number of each loop that uses it as one, made before everything else.
// CHECK-LABEL: func @main(
// CHECK-DAG:   %[[OUTER:.*]] = graph.iota dim 0 : tensor<3xi32>
// CHECK-DAG:   %[[INNER:.*]] = graph.iota dim 0 : tensor<2xi32>
// CHECK:       graph.loop 3 (%[[I:.*]], %{{.*}} = %{{.*}})
// CHECK-NEXT:    %[[M:.*]] = graph.dynamic_slice %[[OUTER]][%[[I]]]
// CHECK:         graph.dynamic_slice %{{.*}}[%[[I]]] : tensor<3x8xi32>
// CHECK:         graph.convert %[[M]] :
// CHECK:         graph.loop 2 (%[[J:.*]], %{{.*}} = %{{.*}})
// CHECK-NEXT:      %[[N:.*]] = graph.dynamic_slice %[[INNER]][%[[J]]]
// CHECK:           graph.convert %[[N]] :
func.func @main(%x: tensor<3x8xi32>) -> tensor<i64> {
  %zero = graph.constant dense<0> : tensor<i64>
  %r = graph.loop 3 (%i, %sum = %zero) : (tensor<i64>) {
    %row = graph.dynamic_slice %x[%i] : tensor<3x8xi32>, tensor<i32> -> tensor<8xi32>
    %first = graph.slice %row [0] : tensor<8xi32> -> tensor<1xi32>
    %one = graph.reshape %first : tensor<1xi32> -> tensor<i32>
    %wide = graph.convert %one : tensor<i32> -> tensor<i64>
    %m = graph.convert %i : tensor<i32> -> tensor<i64>
    %a = graph.add %m, %wide : tensor<i64>
    %s = graph.loop 2 (%j, %inner = %sum) : (tensor<i64>) {
      %n = graph.convert %j : tensor<i32> -> tensor<i64>
      %b = graph.add %n, %inner : tensor<i64>
      graph.yield %b : tensor<i64>
    }
    %t = graph.add %s, %a : tensor<i64>
    graph.yield %t : tensor<i64>
  }
  return %r : tensor<i64>
}

// An index alone stays what it is.
// CHECK-LABEL: func @index(
// CHECK-NOT:   graph.iota
func.func @index(%x: tensor<3x8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %r = graph.loop 3 (%i, %sum = %y) : (tensor<8xf32>) {
    %row = graph.dynamic_slice %x[%i] : tensor<3x8xf32>, tensor<i32> -> tensor<8xf32>
    %s = graph.add %sum, %row : tensor<8xf32>
    graph.yield %s : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// Where the count is data, a carried value: no address advances.
// CHECK-LABEL: func @counted(
// CHECK-NOT:   graph.iota
// CHECK:       %[[FIRST:.*]] = graph.constant dense<0> : tensor<i32>
// CHECK:       %[[ALL:.*]]:3 = graph.loop 3 (%{{.*}}, %[[C:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}}, %[[M:.*]] = %[[FIRST]])
// CHECK-SAME:    counted
// CHECK:         %[[NEXT:.*]] = graph.add %[[SUM]], %[[M]]
// CHECK:         %[[ONE:.*]] = graph.constant dense<1>
// CHECK:         %[[N:.*]] = graph.add %[[M]], %[[ONE]]
// CHECK:         graph.yield %[[C]], %[[NEXT]], %[[N]]
// CHECK:       return %[[ALL]]#1
func.func @counted(%n: tensor<i32>, %zero: tensor<i32>) -> tensor<i32> {
  %r:2 = graph.loop 3 (%i, %count = %n, %sum = %zero) : (tensor<i32>, tensor<i32>) attributes {counted} {
    %next = graph.add %sum, %i : tensor<i32>
    graph.yield %count, %next : tensor<i32>, tensor<i32>
  }
  return %r#1 : tensor<i32>
}
